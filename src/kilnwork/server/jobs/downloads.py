"""Files of a job: its result, the results of single parts, its errors, its input.

Used by `app`. What is sent is one file of the store or several, one behind the other; their lengths
and digests are known before, so that a length, an entity tag and ranges (RFC 9110 §14) hold for the
whole. A file that is not what was recorded is refused, or cut off: never a short 200.
"""

import asyncio
import contextlib
import hashlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.data.stores import port
from kilnwork.jobs import model
from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import body, context, ranges, requests

PIECE_BYTES = 128 << 10
"""Read and sent at once. One piece is in memory for a client that does not read, two for others:
less costs more to hand over than to read, more is held as often as there are clients."""

NDJSON = "application/x-ndjson"
STALL_S = 60.0
"""A client that reads nothing for so long is cut off."""

MOST_OPEN = 32
"""Files of an answer that are open at once: those may be deleted while it is sent."""


class Piece(NamedTuple):
    """A file of the store: `key`, and what was recorded of it. `small`: its bytes, if they are not
    in the store yet."""

    key: str
    size: int
    sha256: str
    small: bytes | None = None


class Downloads:
    """The handlers."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    async def results(self, request: requests.Request, response: asgi.Response) -> None:
        """GET /jobs/ID/results: all of it once it is published; `part=N`: of that part;
        `partial=true`: of those parts that have succeeded so far."""
        request.only("part", "partial")
        if "part" in request.query and "partial" in request.query:
            raise errors.BadRequest("part and partial: give one of them")
        view = await self._shared.job(request, "get")
        number, partial, whole = _part_number(request), request.flag("partial"), ""
        if number is not None:
            found = [await self._part(view, number)]
        elif partial:
            found = await self._committed(view, errors_too=False)
        elif view.progress.output is None:
            raise self._incomplete(view)
        elif view.progress.output.key == filejobs.OUTPUTS:
            found = await self._committed(view, errors_too=False)
            whole = view.progress.output.sha256
        else:
            found = [_piece(view, view.progress.output)]
        await self._send(request, response, found, whole=whole)

    async def bad_records(self, request: requests.Request, response: asgi.Response) -> None:
        """GET /jobs/ID/errors: a line for each bad record, in order; `partial=true`: so far."""
        self._shared.only_token(request)
        request.only("partial")
        view = await self._shared.job(request, "get")
        partial = request.flag("partial")
        if not view.phase.final and not partial:
            raise self._incomplete(view)
        found = await self._committed(view, errors_too=True)
        await self._send(request, response, found)

    async def input(self, request: requests.Request, response: asgi.Response) -> None:
        """GET /jobs/ID/input: as it was stored."""
        self._shared.only_token(request)
        request.only()
        view = await self._shared.job(request, "get")
        small = self._shared.jobs.small_input(view.namespace, view.id)
        key = f"{view.folder}/{model.FOLDER_INPUT}"
        await self._send(
            request, response, [Piece(key, view.progress.bytes, view.progress.sha256, small)]
        )

    async def _part(self, view: model.JobView, number: int) -> Piece:
        part = await self._shared.jobs.part(view.namespace, view.id, number)
        if part is None:
            text = f"part={number}: the parts of job {view.id} are 1 to {view.parts.total}"
            if self._shared.settings.source is not None:  # that was its answer
                raise errors.BadRequest(text)
            raise errors.NotFound(text)
        if part.commit is not None and part.commit.output is not None:
            return _piece(view, part.commit.output)
        raise errors.Conflict(
            f"part {number} is {part.state}: {part.message or 'it has no result yet'}",
            members=self._shared.progress(view),
        )

    async def _committed(self, view: model.JobView, *, errors_too: bool) -> list[Piece]:
        commits = await self._shared.jobs.commits(view.namespace, view.id)
        if errors_too:
            found = [one.errors for one in commits]
        else:
            good = filejobs.Outcome.SUCCEEDED
            found = [one.output if one.outcome == good else None for one in commits]
        return [_piece(view, one) for one in found if one is not None]

    def _incomplete(self, view: model.JobView) -> errors.Conflict:
        if view.phase.final:
            text = (
                f"job {view.id} is {view.phase} and has no result: {view.message or view.reason}. "
                "What its parts have made is at ?partial=true; POST …/redrive runs the others anew"
            )
        else:
            done, parts = view.parts.succeeded, view.parts.total
            text = f"job {view.id} is {view.phase}: {done} of {parts} parts are done"
        return errors.Conflict(text, members=self._shared.progress(view))

    async def _send(
        self,
        request: requests.Request,
        response: asgi.Response,
        pieces: Sequence[Piece],
        *,
        whole: str = "",
    ) -> None:
        """`whole`: SHA-256 of all of them together, if that is known."""
        etag = f'"{whole}"' if whole else _tag(pieces)
        size = sum(piece.size for piece in pieces)
        head = [(b"etag", etag.encode()), (b"accept-ranges", b"bytes")]
        if ranges.matches(request.header(b"if-none-match"), etag):
            await response.empty(304, head)
            return
        ranges.check_match(request.header(b"if-match"), etag)
        span = None
        if request.method == "GET":
            span = ranges.wanted(
                request.header(b"range"),
                size=size,
                if_range=request.header(b"if-range"),
                etag=etag,
            )
        status = 200
        if span is not None:
            status = 206
            head.append((b"content-range", f"bytes {span.start}-{span.end - 1}/{size}".encode()))
        start, end = span or (0, size)
        user = request.user_name
        only_head = request.method == "HEAD"
        with contextlib.nullcontext() if only_head else self._shared.limits.download(user):
            reading = _Joined(self._shared.store, pieces, start=start, end=end)
            try:
                await self._shared.run(reading.open)
                await response.start(status, NDJSON, length=end - start, headers=head)
                await self._copy(request, response, reading)
            finally:
                reading.close()

    async def _copy(
        self, request: requests.Request, response: asgi.Response, reading: "_Joined"
    ) -> None:
        """Read the next piece while one is being sent, unless the client is slower than that."""
        if request.method == "HEAD":
            await response.end()
            return
        loop, pool, slow = asyncio.get_running_loop(), self._shared.pool, False
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
            await body.settled(coming)


async def taken(request: requests.Request) -> None:
    """Wait until the client has read an answer, and cut it off if it does not."""
    try:
        async with asyncio.timeout(STALL_S):
            await request.drained()
    except TimeoutError as error:
        await request.cut()
        raise asgi.Disconnected from error


class _Joined:
    """Bytes `start` to `end` of several files as one. Methods block; not for several threads."""

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
        """Look at the next files, so that what is wrong with them is said before an answer begins,
        and that they may be deleted while it is sent."""
        for each in itertools.islice(self._left, len(self._ahead), MOST_OPEN):
            self._ahead.append(self._opened(*each))

    def _opened(self, piece: Piece, start: int, end: int) -> port.Reading:
        found = self._store.read(piece.key, start=start, end=end)
        reading = port.read_in_pieces(found, PIECE_BYTES)
        if reading.facts.bytes != piece.size:
            seen = reading.facts.bytes
            reading.close()
            raise errors.HttpError(
                f"{piece.key} has {seen} bytes, not the {piece.size} that were recorded: "
                "somebody has changed it in the store"
            )
        return reading

    def next(self) -> bytes:
        """Some bytes; b"" at the end."""
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
        """Let go of what is open."""
        if self._reading is not None:
            self._ahead.append(self._reading)
            self._reading = None
        while self._ahead:
            self._ahead.popleft().close()


def _cut(pieces: Sequence[Piece], *, start: int, end: int) -> Iterator[tuple[Piece, int, int]]:
    """Of each piece that has some of it: which bytes."""
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), min(end - at, piece.size)
        if first < last:
            yield piece, first, last
        at += piece.size


def _piece(view: model.JobView, found: filejobs.StoredFile) -> Piece:
    return Piece(f"{view.folder}/{found.key}", found.bytes, found.sha256)


def _tag(pieces: Sequence[Piece]) -> str:
    """Strong: made of the digests of all bytes."""
    if len(pieces) == 1:
        return f'"{pieces[0].sha256}"'
    joined = "".join(piece.sha256 for piece in pieces)
    return f'"{hashlib.sha256(joined.encode()).hexdigest()}"'


def _part_number(request: requests.Request) -> int | None:
    """The source took 0, negative ones and what is no number for all parts; we say so instead."""
    return request.number("part", least=1, most=filejobs.MAX_PARTS)
