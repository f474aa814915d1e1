"""Request bodies as they arrive, and the pipe that passes a body to its sink.

Used by all handlers that read a body; `file_bodies` uses its threads. The event loop only collects;
hashing, indexing and writing happen in threads, on one batch while the next one arrives: two cores
are used, and no request holds more than two batches. A sink that does not keep up stops the reading
from the network: uvicorn pauses a connection once 64 KiB of its body are waiting.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent import futures
from typing import Any, Protocol, TypeVar

from kilnwork.data.records import unsupported_formats
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import http_resource_base

BATCH_BYTES = 512 << 10
"""Number of bytes passed to a thread at once; for less, the handover costs more than the work."""

INLINE_BYTES = 64 << 10
"""Maximum size of a complete body that is processed on the event loop."""

TURN_S = 60.0
"""Maximum time that a slow file waits for other slow files before it is refused."""

_T = TypeVar("_T")


class Sink(Protocol):
    """Receiver of a body. Its methods block; they are never called concurrently.

    `slow`: whether processing a batch may take a thousand times as long as reading it.
    """

    @property
    def slow(self) -> bool: ...

    def process(self, piece: bytes) -> None:
        """Process the next bytes of the body."""
        ...


def open_body(
    request: http_resource_base.JobRequest, *, limit: int | None = None, unpacks: bool = False
) -> asgi.Body:
    """Return the body of a request, without reading it.

    A body of more than `limit` bytes is refused. `unpacks`: whether the receiver of the body
    handles the Content-Encoding; for other receivers an encoded body is refused.
    """
    transfer = (request.header(b"transfer-encoding") or "chunked").strip().lower()
    if transfer != "chunked":
        raise errors.NotImplementedHere(
            f"Transfer-Encoding: {transfer[:100]}: send the body as it is, or chunked"
        )
    codings = content_coding(request)
    if codings and not unpacks:
        raise errors.UnsupportedMediaType(
            f"Content-Encoding: {codings[:100]}: send this body as it is",
            headers=((b"accept-encoding", b"identity"),),
        )
    return request.body(limit=limit)


def content_coding(request: http_resource_base.JobRequest) -> str:
    """Return the Content-Encoding of a request, or "" if the body is not encoded."""
    found = ",".join(request.headers(b"content-encoding")).replace(" ", "").lower()
    return "" if found == "identity" else found


async def feed_sink(
    body: asgi.Body,
    sink: Sink,
    pool: futures.Executor,
    *,
    inline: bool = True,
    turns: asyncio.Semaphore | None = None,
) -> None:
    """Pass a whole body to the sink. Raises the exceptions of the sink.

    `inline`: the sink processes `INLINE_BYTES` without blocking, unless they contain an archive,
    which may unpack to a thousand times as much. `turns`: a semaphore that a slow sink acquires for
    each batch, so that a few slow sinks do not occupy all threads or hold the interpreter lock all
    the time. When this returns or raises, the sink is not used any more.
    """
    batch = await body.batch(BATCH_BYTES)
    if inline and body.ended and len(batch) <= INLINE_BYTES and not _has_gzip(batch):
        sink.process(batch)
        return
    loop = asyncio.get_running_loop()
    taking: asyncio.Future[None] | None = None
    try:
        while batch:
            ready = batch
            if taking is not None:
                await taking
            if turns is not None and (sink.slow or _has_gzip(ready)):
                taking = None
                await run_in_turn(turns, pool, functools.partial(sink.process, ready))
            else:
                taking = loop.run_in_executor(pool, sink.process, ready)
            batch = b"" if body.ended else await body.batch(BATCH_BYTES)
        if taking is not None:
            await taking
    except BaseException:
        if taking is not None:
            await wait_done(taking)
        raise
    finally:
        taking = None  # else its exception would hold this frame, and so the bytes of the upload


def _has_gzip(data: bytes) -> bool:
    """Return whether a gzip member may begin in `data`.

    The first byte is searched for first: that is memchr, some thirty times as fast as Python's
    search for two bytes, and text does not contain the byte.
    """
    return unsupported_formats.GZIP[:1] in data and unsupported_formats.GZIP in data


async def run(pool: futures.Executor | None, work: Callable[[], _T]) -> _T:
    """Run blocking work in a thread, and wait until it has ended, even if the caller is
    cancelled.
    """
    running = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await wait_done(running)
        raise
    finally:
        del running  # as in `feed_sink`


async def run_in_turn(
    turns: asyncio.Semaphore, pool: futures.Executor, work: Callable[[], _T]
) -> _T:
    """Run blocking work in a thread, as `run` does, once one of `turns` is free. Raises
    TooManyRequests if none is free within `TURN_S`.
    """
    try:
        async with asyncio.timeout(TURN_S):
            await turns.acquire()
    except TimeoutError as error:
        raise errors.TooManyRequests(
            f"the server was busy with other files for {TURN_S:g} s: send this one again later",
            headers=((b"retry-after", b"%d" % TURN_S),),
        ) from error
    try:
        return await run(pool, work)
    finally:
        turns.release()


async def wait_done(work: asyncio.Future[Any]) -> None:
    """Wait until the work in a thread has ended, whatever its outcome, even if the waiting
    coroutine is cancelled.
    """
    while not work.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    if not work.cancelled():
        work.exception()
