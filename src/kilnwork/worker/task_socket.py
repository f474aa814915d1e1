"""The requests of a running task on its KILN_SOCKET: to spawn children, to query their state, to
set its progress.

Used by `attempt`, and by `sidecar_socket_server` for attempts in Pods. There is one socket per
attempt, so the parent of a child is the owner of the socket, never a field of the request. The
requests are described in docs/reference/worker-contract.md. Responses of the dispatcher are passed
on unchanged.
"""

import itertools
import socket
from collections.abc import Callable
from typing import Annotated, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from kilnwork.api import attempts, task
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages, worker_side
from kilnwork.kit import clock, ids
from kilnwork.worker import unix_http_server

T = TypeVar("T")

MAX_WAIT_S = 3600.0
"""Maximum seconds of `?wait=`; a client that wants to wait longer asks again."""

_CALLS = "POST /tasks, GET /tasks/{id}?wait=SECONDS and POST /progress"


class _Child(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request POST /tasks, which spawns a child."""

    spec: msgspec.Raw
    name: task.Name | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] | None = None


class _ClusterOf(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a task's spec that is decoded here: whether it names a cluster. The rest is
    checked later.
    """

    cluster_name: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request POST /progress."""

    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class TaskSocket:
    """Handler of the requests of one attempt.

    `children`: returns the next ordinal of a child that is requested without a key.
    """

    def __init__(
        self,
        ref: attempts.AttemptRef,
        *,
        cluster: str,
        link: worker_side.Peer,
        clock: clock.Clock,
        children: Callable[[], int] | None = None,
    ) -> None:
        self._ref = ref
        self._cluster = cluster
        self._link = link
        self._clock = clock
        self._unsent: messages.Progress | None = None
        self._count_child = children or itertools.count(1).__next__

    async def handle(self, request: unix_http_server.HttpRequest) -> unix_http_server.HttpResponse:
        """Carry out one request. Raises `unix_http_server.HttpError`."""
        address = urlsplit(request.target)
        match address.path.strip("/").split("/"):
            case ["tasks"]:
                _only("POST", request)
                return await self._spawn(bytes(request.body))
            case ["tasks", text]:
                _only("GET", request)
                return await self._ask(text, query=address.query)
            case ["progress"]:
                _only("POST", request)
                return self._progress(bytes(request.body))
        raise unix_http_server.HttpError(404, f"there is no {address.path} here, only {_CALLS}")

    async def _spawn(self, body: bytes) -> unix_http_server.HttpResponse:
        child = _decode(body, _Child)
        spec = self._spec_of(bytes(child.spec))
        ordinal = 0 if child.key is not None else self._count_child()

        def make(serial: int) -> messages.Spawn:
            return messages.Spawn(
                serial=serial,
                parent=self._ref,
                ordinal=ordinal,
                key=child.key,
                name=child.name,
                spec=spec,
                inputs=None,
            )

        return await self._request(make)

    def _spec_of(self, raw: bytes) -> task.TaskSpec:
        spec = _decode(raw, task.TaskSpec, at="$.spec")
        if _decode(raw, _ClusterOf).cluster_name is msgspec.UNSET:
            spec = msgspec.structs.replace(spec, cluster_name=self._cluster)
        if not spec.command and spec.executor == task.WORKER:
            raise unix_http_server.HttpError(
                400, "spec.command is empty: name the program to run - at `$.spec`"
            )
        return spec

    async def _ask(self, text: str, *, query: str) -> unix_http_server.HttpResponse:
        try:
            asked = ids.task_id(text)
        except ValueError:
            raise unix_http_server.HttpError(404, f"{text!r} is not the id of a task") from None
        until = self._clock.monotonic() + _wait_s(query)

        def make(serial: int) -> messages.GetTask:
            # Only the rest of the time: the request is made again for each new link.
            left_s = max(0.0, until - self._clock.monotonic())
            return messages.GetTask(serial=serial, parent=self._ref, task=asked, wait_s=left_s)

        return await self._request(make)

    def _progress(self, body: bytes) -> unix_http_server.HttpResponse:
        shown = _decode(body, _Progress)
        progress = messages.Progress(self._ref, shown.fraction, shown.message)
        # Only the last report counts: an older one must not follow it.
        self._unsent = None
        if self._link.congested:
            self._unsent = progress
        else:
            self._link.send(progress)
        return unix_http_server.HttpResponse(status=204)

    def welcomed(self) -> None:
        """Send the newest progress, if it could not be sent when it was reported.

        Called when a new link stands.
        """
        if self._unsent is not None:
            self._link.send(self._unsent)
            self._unsent = None

    async def _request(
        self, make: Callable[[int], worker_side.Request]
    ) -> unix_http_server.HttpResponse:
        try:
            response = await self._link.request(make)
        except channel_errors.FrameTooLarge as error:
            raise unix_http_server.HttpError(413, str(error)) from error
        return unix_http_server.HttpResponse(status=response.status, body=response.body)


async def serve(calls: TaskSocket, listener: socket.socket) -> unix_http_server.UnixHttpServer:
    """Return a server of the requests of a task on a listening socket, which the server owns from
    now on.

    The caller closes the server.
    """
    server = unix_http_server.UnixHttpServer(calls.handle)
    await server.start(listener)
    return server


def _only(method: str, request: unix_http_server.HttpRequest) -> None:
    if request.method != method:
        raise unix_http_server.HttpError(
            405, f"use {method} here, not {request.method}", allow=method
        )


def _decode(body: bytes, kind: type[T], *, at: str = "$") -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = str(error).replace("`$", f"`{at}") if "`$" in str(error) else f"{error} - at `{at}`"
        raise unix_http_server.HttpError(400, f"the body is refused: {why}") from error


def _wait_s(query: str) -> float:
    given = parse_qs(query, keep_blank_values=True).get("wait", ["0"])[-1]
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise unix_http_server.HttpError(400, f"wait={given} must be 0 to {MAX_WAIT_S:.0f} seconds")
    return seconds
