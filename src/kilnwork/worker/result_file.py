"""The result that a command wrote to its output file.

Used by `attempt` after exit code 0, and by `sidecar_result` when the containers of a Pod have
ended. The task controls that file, so it may be anything: a pipe, a device, a link to gigabytes of
zeros. At most one byte more than allowed is read.
"""

import codecs
import errno
import mmap
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.worker import errors

JSON, BYTES = "application/json", "application/octet-stream"

MAX_BYTES = 1 << 30
"""Maximum bytes of the result of a Pod, which becomes a blob if it is too large for the journal."""

_PIECE_BYTES = 1 << 20

_NOT_REGULAR = "KILN_OUTPUT is not a regular file any more"

_CLASSES = bytes.maketrans(b"123456789E", b"000000000e")
_SUSPECTS = (b"0" * 200, b"0e000", b"0e+000")
"""Texts that reveal a number that may be out of range (floats end at 1.8e308, integers at 4,300
digits).

`_CLASSES` replaces all digits of a JSON file by 0; if the file then contains none of these texts,
all its numbers are in range. This search takes 5 ns per byte, and one for `_SUSPECT` up to 90 ns.
"""

_SUSPECT = re.compile(rb"[\[,:\s](-?(?:[0-9]{200}|[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]{3})[0-9.eE+-]*)")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def read(path: Path, *, output_type: str, follow_links: bool = True) -> attempts.Payload | None:
    """Return the result in the output file, or None if no file was written. Raises `BadResult`.

    `follow_links`: False where the command's file system is not that of this process.
    """
    try:
        content = _content(path, 0 if follow_links else os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(error) from error
    if len(content) > attempts.MAX_INLINE_BYTES:
        raise errors.BadResult(
            reasons.Reason.RESULT_TOO_LARGE,
            f"the result is larger than {attempts.MAX_INLINE_BYTES // 1024} KiB: write large data "
            "to a file or object store and return its address",
        )
    if output_type == "bytes":
        return attempts.Payload(media_type=BYTES, data=content)
    _check_json(content)
    return attempts.Payload(media_type=JSON, data=content)


def _content(path: Path, flags: int) -> bytes:
    # O_NONBLOCK: without it, opening a FIFO would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        # Check the descriptor: the path may lead to another file by now.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _invalid(_NOT_REGULAR)
        return file.read(attempts.MAX_INLINE_BYTES + 1) or b""


def _check_json(content: bytes) -> None:
    if not content.strip():
        raise _invalid("the result file is empty; remove it, or write JSON such as null")
    try:
        msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(error) from error


def _not_json(error: Exception) -> errors.BadResult:
    return _invalid(
        f"the result is not JSON ({error}); write JSON to KILN_OUTPUT, or set outputType: bytes"
    )


def _unreadable(error: OSError) -> errors.BadResult:
    # ENXIO: the file is a socket.
    if error.errno in (errno.EISDIR, errno.ENXIO):
        return _invalid(_NOT_REGULAR)
    if error.errno == errno.ELOOP:
        return _invalid("KILN_OUTPUT is a symbolic link, which is no result: copy the file there")
    return _invalid(f"the result file cannot be read: {error.strerror}")


def _invalid(message: str) -> errors.BadResult:
    return errors.BadResult(reasons.Reason.INVALID_RESULT, message)


class OutputFile:
    """The result file of a Pod, of any size.

    Raises `BadResult` if the file is not regular, not valid or too large. Links are not followed:
    they would be resolved in the sidecar's file system rather than in that of the container that
    made them.
    """

    def __init__(self, path: Path, *, output_type: str) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise _unreadable(error) from error
        self.media_type = BYTES if output_type == "bytes" else JSON
        seen = os.fstat(self._file)
        # The size is read once: what is appended later is not read.
        self.size = seen.st_size
        try:
            self._check(seen.st_mode)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    @property
    def descriptor_path(self) -> Path:
        """Return a path by which this process can open the same file again."""
        # Not by name: its path may lead to another file by now.
        return Path(f"/proc/self/fd/{self._file}")

    def payload(self) -> attempts.Payload | None:
        """Return the whole result, or None if it is too large for the journal."""
        if self.size > attempts.MAX_INLINE_BYTES:
            return None
        return attempts.Payload(self.media_type, os.pread(self._file, self.size, 0))

    def pieces(self) -> Iterator[bytes]:
        """Yield the content of the file, 1 MiB at a time."""
        at = 0
        while at < self.size and (piece := os.pread(self._file, _PIECE_BYTES, at)):
            at += len(piece)
            yield piece

    def _check(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            raise _invalid(_NOT_REGULAR)
        if self.size > MAX_BYTES:
            raise errors.BadResult(
                reasons.Reason.RESULT_TOO_LARGE,
                f"the result has {self.size} bytes, and may have {MAX_BYTES}: write larger data to "
                "an object store and return its address",
            )
        if self.media_type == BYTES:
            return
        if self.size <= attempts.MAX_INLINE_BYTES:
            _check_json(os.pread(self._file, self.size, 0))
        else:
            self._check_large_json()

    def _check_large_json(self) -> None:
        """Check the file by the rules of `_check_json`, without decoding the whole value at
        once.
        """
        try:
            decoder = codecs.getincrementaldecoder("utf-8")()
            for piece in self.pieces():
                decoder.decode(piece)
            decoder.decode(b"", final=True)
            # The containers have ended, so the file does not shrink; that would raise SIGBUS.
            with mmap.mmap(self._file, self.size, access=mmap.ACCESS_READ) as mapped:
                view = memoryview(mapped)
                try:
                    msgspec.json.decode(view, type=msgspec.Raw)
                    number = _number_out_of_range(view) if self._has_suspects() else None
                    if number is not None:  # `Raw` does not check numbers
                        msgspec.json.decode(number)
                finally:
                    # Closing a map that is still exported raises BufferError.
                    view.release()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _not_json(error) from error

    def _has_suspects(self) -> bool:
        """Return whether the file may contain a number that is out of range."""
        rest = b""
        for piece in self.pieces():
            seen = rest + piece.translate(_CLASSES)
            if any(suspect in seen for suspect in _SUSPECTS):
                return True
            rest = seen[-len(_SUSPECTS[0]) :]
        return False


def _number_out_of_range(json: memoryview) -> bytes | memoryview | None:
    """Return the first number of valid JSON that cannot be decoded, or None."""
    strings = _STRING.finditer(json)
    string = next(strings, None)
    for suspect in _SUSPECT.finditer(json):
        number, at = suspect[1], suspect.start(1)
        if _is_in_range(number):
            continue
        while string is not None and string.end() <= at:
            string = next(strings, None)
        if string is None or string.start() > at:  # not within a string
            return number
    return json if json[0] in b"-0123456789" else None


def _is_in_range(number: bytes) -> bool:
    try:
        msgspec.json.decode(number)
    except msgspec.MsgspecError:
        return False
    return True
