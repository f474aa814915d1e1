"""Downloads of results and errors of a file job, to a file or to standard output.

Used by `result`, `results`, `upload`, `redrive` and `file_job_progress`. After a broken connection
the download continues where it stopped, with Range and If-Range (RFC 9110 §13.1.5, §14). A file
gets its name only once it is complete.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from kilnwork.cli import errors, file_jobs, session, wait_notice
from kilnwork.kit import http_types, progress_meter
from kilnwork.kube import errors as kube_errors

STDOUT = "-"
PATIENCE_S = 60.0
_PAUSE_S = 0.5


def check_target(target: str | None, *, source: str | None = None) -> None:
    """Raise `errors.InvalidInput` if the result cannot be written to the file `target`.

    Call it before the job runs, not hours later. `source`: an input file, which the result must not
    replace.
    """
    if target is None or target == STDOUT:
        return
    path = Path(target)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise errors.InvalidInput(f"-o {target}: {error.strerror}") from error
    if source is not None and path.is_file() and _same(path, Path(source)):
        raise errors.InvalidInput(f"-o {target}: this is the file to upload; name another one")
    if target.endswith("/") and not path.is_dir():
        raise errors.InvalidInput(f"-o {target}: there is no such directory; name a file")
    if path.exists() and not path.is_file() and not path.is_dir():
        return  # a device or a pipe
    directory = path.resolve().parent
    if path.is_dir() or not directory.is_dir() or not os.access(directory, os.W_OK):
        raise errors.InvalidInput(f"-o {target}: {_find_problem(path, directory)}")


def _same(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


def _find_problem(path: Path, directory: Path) -> str:
    """Return the reason why no file can be written at the path."""
    if path.is_dir():
        return "it is a directory: name a file in it"
    if not directory.exists():
        return f"there is no directory {directory}: make it first"
    return f"{directory} cannot be written to"


async def fetch(
    s: session.Session,
    job: str,
    target: str,
    *,
    what: str = "results",
    part: int | None = None,
    partial: bool = False,
) -> int:
    """Download the results or the errors of a file job and return the number of bytes.

    `what`: `results` or `errors`. Raises a KubeError, or a CommandError if the file cannot be
    written.
    """
    query = file_jobs.namespace_query(s)
    if part is not None:
        query["part"] = str(part)
    if partial:
        query["partial"] = "true"
    if target == STDOUT:
        return await _Download(s, file_jobs.path(job, what), query, sys.stdout.buffer).run()
    try:
        with open_atomically(Path(target)) as file:
            return await _Download(s, file_jobs.path(job, what), query, file).run(text=target)
    except OSError as error:
        raise errors.CommandError(f"{target}: {error.strerror or error}") from error


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file for writing that gets its name only once it is complete.

    A device or pipe is written directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    real = path.resolve()  # a symbolic link is kept
    made = real.with_name(f"{real.name}.part")
    try:
        with made.open("wb") as file:
            yield file
        made.replace(real)
    finally:
        made.unlink(missing_ok=True)


class _Download:
    def __init__(
        self, s: session.Session, path: str, query: Mapping[str, str], into: IO[bytes]
    ) -> None:
        self._session = s
        self._path = path
        self._query = query
        self._into = into
        self._got = 0
        self._etag = ""
        self._meter = progress_meter.Meter(None, file_jobs.size_text)

    async def run(self, *, text: str = "") -> int:
        if not text:  # the output itself shows progress
            return await self._all(None, text)
        text = f"writing {text}"
        async with wait_notice.waiting(text, every_s=5.0) as waiting:
            return await self._all(waiting, text)

    async def _all(self, waiting: wait_notice.WaitNotice | None, text: str) -> int:
        away_s = 0.0
        while True:
            before = self._got
            try:
                await self._rest(waiting, text)
            except kube_errors.Unavailable:
                away_s = 0.0 if self._got > before else away_s + _PAUSE_S
                if away_s > PATIENCE_S or (self._got and not self._etag):
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return self._got

    async def _rest(self, waiting: wait_notice.WaitNotice | None, text: str) -> None:
        headers = {}
        if self._got:
            headers = {"Range": f"bytes={self._got}-", "If-Range": self._etag}
        stream = self._session.stream(
            self._path, query=self._query, headers=headers, head=self._begin
        )
        async with contextlib.aclosing(stream) as pieces:
            async for piece in pieces:
                self._into.write(piece)
                self._got += len(piece)
                if waiting is not None:
                    self._meter.at(self._got, now_s=self._session.clock.monotonic())
                    waiting.say(f"{text}  {self._meter.text()}")
        self._into.flush()
        if self._meter.total is not None and self._got < self._meter.total:
            raise kube_errors.Unavailable(0, "CutShort", f"{self._path} was cut short")

    def _begin(self, reply: http_types.ClientResponse) -> None:
        if self._got and reply.status != 206:
            raise errors.CommandError(
                f"{self._path} has changed while it was read: start again to read the new content"
            )
        self._etag = reply.headers.get("ETag", "")
        length = reply.headers.get("Content-Length", "")
        if length.isdigit():
            self._meter.total = self._got + int(length)
