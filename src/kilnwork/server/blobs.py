"""Blob server: `/blobs/NAMESPACE/sha256:DIGEST`, for workers and drivers that share no directory
with the manager.

Mounted by the composition roots; `data.remote_blobs` is the client. GET and HEAD read a blob. PUT
stores the body as a blob if it has this digest (201 when it is on disk). POST renews a blob (204;
see `data.local_blobs`: a blob is kept for some time after it was last renewed). POST to the
namespace renews all existing blobs of a JSON list. Callers are authenticated here: a worker sends
its cluster and the token of that cluster, the sidecar of an attempt sends the token of its Pod, a
driver sends a token with which it may submit calls in the namespace. They may read and write blobs
of that namespace only. An executor sends its name and a token (`guard.admit_peer`).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from kilnwork.api import names
from kilnwork.channel import ports
from kilnwork.data import disk_checks, local_blobs
from kilnwork.data import errors as data_errors
from kilnwork.kit import asgi
from kilnwork.server import errors, guard, problems

_TYPE = "application/octet-stream"


class _Call(NamedTuple):
    """One request for a blob."""

    kept: local_blobs.Blobs
    digest: bytes
    request: asgi.Request
    response: asgi.Response


class BlobsApp:
    """ASGI app of `/blobs`. `root`: the directory with the blobs of each namespace, which the hub
    uses too.
    """

    def __init__(self, root: Path, verifier: ports.TokenVerifier) -> None:
        self._root = root
        self._verifier = verifier
        self._kept: dict[str, local_blobs.Blobs] = {}
        self._methods: dict[str, Callable[[_Call], Awaitable[None]]] = {
            "GET": _read,
            "HEAD": _head,
            "PUT": _write,
            "POST": _renew,
        }

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        request, response = asgi.Request(scope, receive), problems.response(send)
        await problems.respond(self._route(request, response), request, response)

    async def _route(self, request: asgi.Request, response: asgi.Response) -> None:
        namespace, digest = _address(request.path)
        handler = self._methods.get(request.method)
        if digest is None:
            handler = _renew_all if request.method == "POST" else None
        if handler is None:
            raise errors.MethodNotAllowed
        await guard.admit_peer(request, namespace, self._verifier)
        await handler(_Call(self._of(namespace), digest or b"", request, response))

    def _of(self, namespace: str) -> local_blobs.Blobs:
        return self._kept.setdefault(
            namespace, local_blobs.Blobs(self._root / namespace, durable=True)
        )


def _address(path: str) -> tuple[str, bytes | None]:
    """Return the namespace in the path of a request, and the digest if the path has one."""
    parts = path.strip("/").split("/")
    if len(parts) == 2 and names.is_dns_label(parts[1]):
        return parts[1], None
    if len(parts) != 3 or not names.is_dns_label(parts[1]):
        raise errors.NotFound("blobs are at /blobs/NAMESPACE/sha256:DIGEST")
    try:
        return parts[1], local_blobs.parse(parts[2])
    except ValueError as error:
        raise errors.BadRequest(str(error)) from error


def _open(call: _Call) -> int:
    try:
        return call.kept.descriptor(call.digest)
    except data_errors.BlobMissing as error:
        raise errors.NotFound(
            f"there is no blob {local_blobs.text(call.digest)}: nothing referred to it for an "
            "hour, or it was never put here"
        ) from error


async def _head(call: _Call) -> None:
    descriptor = _open(call)
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    await call.response.start(200, _TYPE, length=size)
    await call.response.end()


async def _read(call: _Call) -> None:
    """Send a blob without verifying its digest, which the client does."""
    await send(_open(call), _TYPE, call.request, call.response)


async def send(
    descriptor: int,
    content_type: str,
    request: asgi.Request,
    response: asgi.Response,
    *,
    headers: asgi.Headers = (),
) -> None:
    """Send a whole file, and close its descriptor. Disconnects a client that does not read the
    response.
    """
    try:
        size, at = os.fstat(descriptor).st_size, 0
        await response.start(200, content_type, length=size, headers=headers)
        while at < size:
            piece = await asyncio.to_thread(os.pread, descriptor, asgi.PIECE_BYTES, at)
            if not piece:
                raise errors.HttpError(f"{size - at} bytes of {size} are missing in the file")
            at += len(piece)
            async with asyncio.timeout(asgi.STALL_S):
                await response.write(piece, more=at < size)
        if not size:
            await response.end()
    except TimeoutError:
        await request.cut()
    finally:
        os.close(descriptor)


async def _write(call: _Call) -> None:
    """Store the body of a request as a blob. The blob becomes visible when it is complete, matches
    the digest in the path, and is on disk.
    """
    with call.kept.writer() as new:
        body = call.request.body()
        while piece := await body.batch(asgi.PIECE_BYTES):
            _check_room(call.kept.directory)
            await asyncio.to_thread(new.write, piece)
        if new.digest != call.digest:
            raise errors.BadRequest(
                f"the content is {local_blobs.text(new.digest)}, "
                f"not {local_blobs.text(call.digest)}"
            )
        await asyncio.to_thread(new.commit)
    await call.response.send(201, _TYPE, b"")


def _check_room(directory: Path) -> None:
    lack = disk_checks.describe_lack(directory)
    if lack:
        raise errors.InsufficientStorage(
            f"a value cannot be kept by the manager: {lack}. Free some room there, or keep values "
            "elsewhere"
        )


async def _renew(call: _Call) -> None:
    if not call.kept.touch(call.digest):
        raise errors.NotFound(f"there is no blob {local_blobs.text(call.digest)}")
    await call.response.start(204, _TYPE)
    await call.response.end()


async def _renew_all(call: _Call) -> None:
    """Renew many blobs, and let the event loop serve other requests in between: a thousand renewals
    take half a second.
    """
    body = await call.request.body().read(limit=asgi.PIECE_BYTES)
    try:
        digests = [local_blobs.parse(name) for name in msgspec.json.decode(body, type=list[str])]
    except (ValueError, msgspec.MsgspecError) as error:
        raise errors.BadRequest(f"send a JSON list of digests: {error}") from error
    for digest in digests:
        call.kept.touch(digest)
        await asyncio.sleep(0)
    await call.response.start(204, _TYPE)
    await call.response.end()
