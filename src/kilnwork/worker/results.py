"""Reading what a command wrote as its result.

Used by `attempt` after exit 0. The file belongs to the task, so it may be anything: a pipe, a
device, a link to a disk's worth of zeros; at most one byte more than allowed is read.
"""

import os
import stat
from pathlib import Path

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.worker import errors

JSON, BYTES = "application/json", "application/octet-stream"


def read(path: Path, *, output_type: str) -> attempts.Payload | None:
    """The result, None if no file was written. Raises `BadResult`."""
    try:
        content = _content(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _invalid(f"the result file cannot be read: {error.strerror}") from error
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


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _invalid("KILN_OUTPUT is not a regular file any more")
        return file.read(attempts.MAX_INLINE_BYTES + 1) or b""


def _check_json(content: bytes) -> None:
    if not content.strip():
        raise _invalid("the result file is empty; remove it, or write JSON such as null")
    try:
        msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(
            f"the result is not JSON ({error}); write JSON to KILN_OUTPUT, or set outputType: bytes"
        ) from error


def _invalid(message: str) -> errors.BadResult:
    return errors.BadResult(reasons.Reason.INVALID_RESULT, message)
