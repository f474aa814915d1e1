"""The body of a request as it comes, and the pipe from it to whatever takes it in.

Used by uploads. The event loop only collects; hashing, indexing and writing happen in threads, on
one batch while the next one comes in: two cores are used, and no request holds more than two
batches. A sink that does not keep up stops the reading from the network by itself (uvicorn pauses a
connection of whose body 64 KiB are waiting).
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent import futures
from typing import Any, Protocol, TypeVar

from kilnwork.data.records import foreign_formats
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import requests

BATCH_BYTES = 512 << 10
"""Handed to a thread at once; less costs more to hand over than to do."""

INLINE_BYTES = 64 << 10
"""A body that is here as a whole and no longer than that is taken in on the event loop."""

TURN_S = 60.0
"""A file that is expensive to read waits so long for others of the kind, then is refused."""

_T = TypeVar("_T")


class Sink(Protocol):
    """What takes a body in. Its methods block; no two at the same time.

    `slow`: a batch may take a thousand times as long as to read it.
    """

    @property
    def slow(self) -> bool: ...

    def take(self, piece: bytes) -> None:
        """The next bytes."""
        ...


def open_body(
    request: requests.Request, *, limit: int | None = None, unpacks: bool = False
) -> asgi.Body:
    """Return the body of a request; nothing of it is read yet. `limit`: more bytes are refused.
    `unpacks`: its receiver heeds its Content-Encoding; others get it encoded, or not at all."""
    transfer = (request.header(b"transfer-encoding") or "chunked").strip().lower()
    if transfer != "chunked":
        raise errors.NotImplementedHere(
            f"Transfer-Encoding: {transfer[:100]}: send the body as it is, or chunked"
        )
    codings = coding(request)
    if codings and not unpacks:
        raise errors.UnsupportedMediaType(
            f"Content-Encoding: {codings[:100]}: send this body as it is",
            headers=((b"accept-encoding", b"identity"),),
        )
    return request.body(limit=limit)


def coding(request: requests.Request) -> str:
    """The Content-Encoding of a request, "" for a body that is not encoded."""
    found = ",".join(request.headers(b"content-encoding")).replace(" ", "").lower()
    return "" if found == "identity" else found


async def pour(
    body: asgi.Body,
    sink: Sink,
    pool: futures.Executor,
    *,
    inline: bool = True,
    turns: asyncio.Semaphore | None = None,
) -> None:
    """Give all of the body to the sink; what that raises is raised here.

    `inline`: the sink takes `INLINE_BYTES` without blocking, unless there is an archive in them,
    which may unpack to a thousand times as much. `turns`: a slow sink gets one for each batch, so
    that a few of them do not have all threads, nor Python's lock all the time. When this ends,
    however it does, the sink is not used any more.
    """
    batch = await body.batch(BATCH_BYTES)
    if inline and body.ended and len(batch) <= INLINE_BYTES and not _has_gzip(batch):
        sink.take(batch)
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
                await in_turn(turns, pool, functools.partial(sink.take, ready))
            else:
                taking = loop.run_in_executor(pool, sink.take, ready)
            batch = b"" if body.ended else await body.batch(BATCH_BYTES)
        if taking is not None:
            await taking
    except BaseException:
        if taking is not None:
            await settled(taking)
        raise
    finally:
        taking = None  # else what it raised holds this frame, and that the bytes of the upload


def _has_gzip(data: bytes) -> bool:
    """Return whether a gzip member may begin in `data`.

    One byte is searched for first: that is memchr, some thirty times as fast as Python's search for
    two bytes, and text has none of them.
    """
    return foreign_formats.GZIP[:1] in data and foreign_formats.GZIP in data


async def run(pool: futures.Executor | None, work: Callable[[], _T]) -> _T:
    """Do what blocks, in a thread; it is over when this ends, also when that is cancelled."""
    running = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await settled(running)
        raise
    finally:
        del running  # as in `pour`


async def in_turn(turns: asyncio.Semaphore, pool: futures.Executor, work: Callable[[], _T]) -> _T:
    """As `run`, when a turn is free. Raises TooManyRequests if none is within `TURN_S`."""
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


async def settled(work: asyncio.Future[Any]) -> None:
    """Wait for a thread, whatever comes of it, even if the waiting coroutine is cancelled."""
    while not work.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    if not work.cancelled():
        work.exception()
