"""Uploads of a file in pieces, so that a broken connection costs one piece.

Used by `upload`. Resumable as in draft-ietf-httpbis-resumable-upload: POST creates an upload, PATCH
appends at an offset, HEAD returns the offset. A piece is kept until the server has it. With
`--resume` a file is read from the server's offset.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import IO, NamedTuple
from urllib import parse

import msgspec

from kilnwork.cli import errors, file_jobs, session, wait_notice
from kilnwork.kit import progress_meter
from kilnwork.kube import errors as kube_errors

PIECE_BYTES = 16 << 20
"""Bytes per request: large compared with its round trip, small enough to send again."""

PATIENCE_S = 120.0
"""Total pause between the attempts to send one piece, in seconds, before the upload fails.

The server keeps the pieces that it has received.
"""

_HEAD_BYTES = 64 << 10
_PAUSE_S = 0.5
_NO_ROOM = 507
_TYPE = "application/partial-upload"


class UploadSource:
    """Source of the bytes of an upload: a file, or standard input. `size`: None if unknown."""

    def __init__(self, name: str) -> None:
        self.name = "standard input" if name == "-" else name
        self._file: IO[bytes] = sys.stdin.buffer if name == "-" else _opened(Path(name))
        found = os.fstat(self._file.fileno())
        self.seekable = self._file.seekable()
        self.size = found.st_size if self.seekable else None
        self._known = (found.st_size, found.st_mtime_ns)

    def is_array(self) -> bool:
        """Return whether a file seems to be one JSON array instead of lines of JSON.

        False for a pipe.
        """
        if not self.seekable:
            return False
        head = self._file.read(_HEAD_BYTES)
        self._file.seek(0)
        line, _, rest = head.strip().partition(b"\n")
        if not line.startswith(b"["):
            return False
        try:
            msgspec.json.decode(line)
        except msgspec.DecodeError:
            return True
        return not rest

    def close(self) -> None:
        self._file.close()

    def seek(self, offset: int) -> None:
        """Continue reading at an offset. Raises `errors.CommandError` if that is not possible."""
        if not self.seekable:
            raise errors.CommandError(
                f"{self.name} cannot be read again from byte {offset:,}: write it to a file first"
            )
        self._file.seek(offset)

    def going_on(self, upload: str) -> str:
        """Return the text that tells the user how to resume an interrupted upload."""
        if self.seekable:
            return f"the same command with --resume {upload} continues it"
        return (
            f"{self.name} cannot be read again, so start again. `kiln delete upload/{upload}` "
            "deletes them; otherwise they go after a day"
        )

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes of the source, fewer only at its end.

        Raises `errors.CommandError`.
        """
        try:
            found = self._file.read(count)
        except OSError as error:
            raise errors.CommandError(f"{self.name}: {error.strerror or error}") from error
        now = os.fstat(self._file.fileno())
        if self.seekable and (now.st_size, now.st_mtime_ns) != self._known:
            raise errors.CommandError(
                f"{self.name} has changed while it was uploaded; what was sent is not used: start "
                "again when no process writes it"
            )
        return found


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except IsADirectoryError as error:
        raise errors.InvalidInput(
            f"{path}: it is a directory: name a file in it, or send several as one: "
            f"cat {path}/* | kiln upload - …"
        ) from error
    except OSError as error:
        raise errors.InvalidInput(f"{path}: {error.strerror or error}") from error


class _Piece(NamedTuple):
    """Piece of an upload: its bytes, their offset, and whether they are the last ones."""

    start: int
    data: bytes
    last: bool


class _Seen(NamedTuple):
    """State of an upload on the server: its offset, and the total length if that is known."""

    offset: int
    length: int | None
    complete: bool


class Upload:
    """One upload of a file in pieces; `id` identifies it to the server and for `--resume`."""

    def __init__(
        self, s: session.Session, source: UploadSource, *, known: str | None = None
    ) -> None:
        self._session = s
        self._source = source
        self._clock = s.clock
        self.id = known or ""
        self.sent = 0
        self._meter = progress_meter.Meter(source.size, file_jobs.size_text)

    async def run(self) -> str:
        """Send all bytes of the source and return the id that the upload has on the server."""
        text = "uploading"
        async with wait_notice.waiting(text, every_s=5.0) as waiting:
            over = await self._begin()
            while not over:
                piece = await self._read()
                await self._append(piece, waiting)
                self._meter.at(self.sent, now_s=self._clock.monotonic())
                waiting.say(f"{text}  {self._meter.text()}")
                over = piece.last
        return self.id

    async def forget(self) -> None:
        """Delete the upload on the server; if that fails, the server deletes it by its age."""
        with contextlib.suppress(*errors.SERVER_ERRORS):
            path = f"/files/{session.quoted(self.id)}"
            await self._session.exchange(
                "DELETE", path, query=file_jobs.namespace_query(self._session)
            )

    async def _begin(self) -> bool:
        """Create the upload or read its offset; return True if the server has all bytes already."""
        if not self.id:
            headers = {"Upload-Complete": "?0"}
            if self._source.size is not None:
                headers["Upload-Length"] = str(self._source.size)
            made = await self._session.exchange(
                "POST",
                "/files",
                query=file_jobs.namespace_query(self._session),
                headers=headers,
                body=b"",
            )
            place = parse.urlsplit(made.headers.get("Location", "")).path
            self.id = parse.unquote(place.rpartition("/")[2])
            return False
        try:
            self.sent, length, over = await self._look()
        except kube_errors.NotFound as error:
            lost, self.id = self.id, ""
            raise errors.Missing(
                f"there is no upload {lost}: it was used up or deleted, or nothing came for it for "
                "a day. Leave out --resume"
            ) from error
        if self._source.size is not None and length not in (None, self._source.size):
            raise errors.CommandError(
                f"upload {self.id} is of a file of {length:,} bytes, {self._source.name} has "
                f"{self._source.size:,}: it is another file"
            )
        if self.sent:
            await asyncio.to_thread(self._source.seek, self.sent)
        return over

    async def _look(self) -> _Seen:
        path = f"/files/{session.quoted(self.id)}"
        found = await self._session.exchange(
            "HEAD", path, query=file_jobs.namespace_query(self._session)
        )
        length = found.headers.get("Upload-Length", "")
        return _Seen(
            int(found.headers["Upload-Offset"]),
            int(length) if length.isdigit() else None,
            found.headers.get("Upload-Complete") == "?1",
        )

    async def _read(self) -> _Piece:
        data = await asyncio.to_thread(self._source.read, PIECE_BYTES)
        size, end = self._source.size, self.sent + len(data)
        return _Piece(self.sent, data, len(data) < PIECE_BYTES if size is None else end >= size)

    async def _append(self, piece: _Piece, waiting: wait_notice.WaitNotice) -> None:
        """Send a piece, repeatedly if necessary, until the server has it.

        Raises errors for which another attempt is useless, and the last error after `PATIENCE_S`.
        """
        away_s = 0.0
        while True:
            try:
                await self._send(piece)
            except (kube_errors.Unavailable, kube_errors.Conflict) as error:
                away_s += _PAUSE_S
                if away_s > PATIENCE_S or error.status == _NO_ROOM:
                    raise
                waiting.say(f"uploading: trying for {PATIENCE_S:.0f} s: {error}")
                await asyncio.sleep(_PAUSE_S)
                if await self._catch_up(piece, error):
                    return
            else:
                self.sent = piece.start + len(piece.data)
                return

    async def _send(self, piece: _Piece) -> None:
        rest = piece.data[self.sent - piece.start :]
        headers = {
            "Content-Type": _TYPE,
            "Upload-Offset": str(self.sent),
            "Upload-Complete": "?1" if piece.last else "?0",
        }
        await self._session.exchange(
            "PATCH",
            f"/files/{session.quoted(self.id)}",
            query=file_jobs.namespace_query(self._session),
            body=rest,
            headers=headers,
            timeout_s=None,
        )

    async def _catch_up(self, piece: _Piece, error: kube_errors.ApiError) -> bool:
        """Read the server's offset after a failure; return True if the server has the piece after
        all.
        """
        try:
            offset, _, complete = await self._look()
        except kube_errors.Unavailable:
            return False
        end = piece.start + len(piece.data)
        if not piece.start <= offset <= end:
            raise errors.CommandError(
                f"the server has {offset:,} bytes of upload {self.id}, we have sent up to "
                f"{self.sent:,}: {error}. Start again without --resume"
            ) from error
        self.sent = offset
        return offset == end and (complete or not piece.last)
