"""Response bodies that consist of files of a job: composes, reads and sends them.

Used by `downloads`, and by `server.pond_job_files` for the agents of ponds.
"""

import asyncio
import contextlib
import hashlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.data.stores import port
from kilnwork.jobs import file_job_types
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import body as bodies
from kilnwork.server.jobs import range_headers

PIECE_BYTES = 128 << 10
"""Number of bytes read and sent at once. A client that does not read holds one piece in memory,
others two: smaller pieces cost more to hand over than to read, larger ones take that much memory
for each client."""

STALL_S = 60.0
"""A client that reads nothing for this long is disconnected."""

MAX_OPEN = 32
"""Maximum number of files of one response that are open at once. An open file can still be sent
after it has been deleted."""


class Piece(NamedTuple):
    """A file of the store as a piece of a body: its `key`, and its recorded size and digest.
    `small`: the content, if the file is not in the store yet.
    """

    key: str
    size: int
    sha256: str
    small: bytes | None = None


class JoinedReader:
    """Reader of several files as one: bytes `start` to `end` of their concatenation. Methods block;
    not thread-safe.
    """

    def __init__(self, store: port.Store, pieces: Sequence[Piece], *, start: int, end: int) -> None:
        self._store = store
        self._left = deque(_cut(pieces, start=start, end=end))
        self._ahead: deque[port.Reading] = deque()
        self._reading: port.Reading | None = None
        self._bytes: Iterator[bytes] = iter(())
        if len(pieces) == 1 and pieces[0].small is not None:
            self._left.clear()
            self._bytes = iter((pieces[0].small[start:end],))

    def open(self) -> None:
        """Open the next files before the response begins, so that errors are found in time.

        At most `MAX_OPEN` files are opened. An open file can still be sent after it has been
        deleted.
        """
        for each in itertools.islice(self._left, len(self._ahead), MAX_OPEN):
            self._ahead.append(self._opened(*each))

    def _opened(self, piece: Piece, start: int, end: int) -> port.Reading:
        found = self._store.read(piece.key, start=start, end=end)
        reading = port.read_in_pieces(found, PIECE_BYTES)
        if reading.facts.bytes != piece.size:
            seen = reading.facts.bytes
            reading.close()
            raise errors.HttpError(
                f"{piece.key} has {seen} bytes, not the {piece.size} that were recorded: "
                "another process has changed it in the store"
            )
        return reading

    def next(self) -> bytes:
        """Return the next bytes, or b"" at the end."""
        while True:
            data = next(self._bytes, b"")
            if data:
                return data
            if self._reading is not None:
                self._reading.close()
                self._reading = None
            if not self._left:
                return b""
            self.open()
            self._left.popleft()
            self._reading = self._ahead.popleft()
            self._bytes = iter(self._reading)

    def close(self) -> None:
        """Close all open files."""
        if self._reading is not None:
            self._ahead.append(self._reading)
            self._reading = None
        while self._ahead:
            self._ahead.popleft().close()


def _cut(pieces: Sequence[Piece], *, start: int, end: int) -> Iterator[tuple[Piece, int, int]]:
    """Yield each piece that overlaps with the range, and the start and end (exclusive) of the
    overlap within the piece.
    """
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), min(end - at, piece.size)
        if first < last:
            yield piece, first, last
        at += piece.size


class Body(NamedTuple):
    """A response body made of pieces. `whole`: SHA-256 of all pieces together, "" if it is
    unknown.
    """

    pieces: Sequence[Piece]
    content_type: str
    whole: str = ""


async def send(
    request: asgi.Request,
    response: asgi.Response,
    body: Body,
    *,
    store: port.Store,
    pool: futures.Executor | None,
    slot: contextlib.AbstractContextManager[None],
) -> None:
    """Send the whole body, or the requested range, in response to a GET or HEAD.

    `slot`: a context manager that is entered while bytes are sent. `pool`: the threads that read;
    by default those of the event loop.
    """
    etag = f'"{body.whole}"' if body.whole else _tag(body.pieces)
    size = sum(piece.size for piece in body.pieces)
    head = [(b"etag", etag.encode()), (b"accept-ranges", b"bytes")]
    if range_headers.matches_any(request.header(b"if-none-match"), etag):
        await response.empty(304, head)
        return
    range_headers.check_match(request.header(b"if-match"), etag)
    span = None
    if request.method == "GET":
        span = range_headers.parse_range(
            request.header(b"range"), size=size, if_range=request.header(b"if-range"), etag=etag
        )
    if span is not None:
        head.append((b"content-range", f"bytes {span.start}-{span.end - 1}/{size}".encode()))
    status = 200 if span is None else 206
    start, end = span or (0, size)
    with contextlib.nullcontext() if request.method == "HEAD" else slot:
        reading = JoinedReader(store, body.pieces, start=start, end=end)
        try:
            await bodies.run(pool, reading.open)
            await response.start(status, body.content_type, length=end - start, headers=head)
            await _copy(request, response, reading, pool=pool)
        finally:
            reading.close()


async def _copy(
    request: asgi.Request,
    response: asgi.Response,
    reading: JoinedReader,
    *,
    pool: futures.Executor | None,
) -> None:
    """Send all bytes of a reader. The next bytes are read while the last ones are being sent,
    unless the client is slow.
    """
    if request.method == "HEAD":
        await response.end()
        return
    loop, slow = asyncio.get_running_loop(), False
    coming = loop.run_in_executor(pool, reading.next)
    try:
        while data := await coming:
            if not slow:
                coming = loop.run_in_executor(pool, reading.next)
            async with asyncio.timeout(STALL_S):
                await response.write(data)
                del data
                waited = await request.drained()
            if await request.disconnected(within_s=0):
                raise asgi.Disconnected
            if slow:
                coming = loop.run_in_executor(pool, reading.next)
            slow = waited
        await response.end()
    except TimeoutError as error:
        await request.cut()
        raise asgi.Disconnected from error
    finally:
        await bodies.wait_done(coming)


def piece_of_file(view: file_job_types.JobView, found: filejobs.StoredFile) -> Piece:
    """Return the piece for a file that a job has written."""
    return Piece(f"{view.directory}/{found.key}", found.bytes, found.sha256)


def _tag(pieces: Sequence[Piece]) -> str:
    """Return a strong entity tag, derived from the digests of all pieces."""
    if len(pieces) == 1:
        return f'"{pieces[0].sha256}"'
    joined = "".join(piece.sha256 for piece in pieces)
    return f'"{hashlib.sha256(joined.encode()).hexdigest()}"'
