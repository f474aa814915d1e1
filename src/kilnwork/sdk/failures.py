"""Errors of task functions: packed in the worker where they are raised, raised again in the driver.

Used by the worker's slots (`pack_error`) and by futures (`unpack_error`, `failure`). The exception
itself is sent if it can be pickled and created again; its text, notes and traceback are always
sent, so that if a class is missing on one side, only the class is lost.
"""

import builtins
import traceback
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import attempts, reasons, task
from kilnwork.kit import ids
from kilnwork.sdk import errors, pickle_encoding

ErrorInfo = attempts.ErrorInfo

MAX_TRACEBACK = 16 * 1024
MAX_TEXT = 8 * 1024
MAX_NOTES = 4 * 1024
MAX_PICKLED = 30 * 1024
"""Maximum size of a pickled exception, in bytes.

All parts of an error together are below 64 KiB, so that an error is never a blob.
"""

_OURS = str(Path(__file__).resolve().parent.parent) + "/"
_RUNNERS = (_OURS, str(Path(traceback.__file__).parent / "asyncio") + "/")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ErrorInfo).decode


def pack_error(error: BaseException) -> attempts.Payload:
    """Return an exception as a payload of at most 64 KiB. Never raises because of `error`
    itself.
    """
    info = ErrorInfo(
        type=_type_name(type(error)),
        text=_cut(_text(error), MAX_TEXT),
        traceback=_cut(_traceback(error), MAX_TRACEBACK),
        pickled=_pickled(error),
        notes=_notes(error),
    )
    return attempts.Payload(attempts.ERROR, _encode(info))


def unpack_error(payload: attempts.Payload) -> BaseException:
    """Return the exception to raise: the original if this process can create it, else `TaskFailed`.

    Its `__cause__` is a `RemoteTraceback`; without a traceback, the error of the input that failed,
    or None.
    """
    return revived(_error_info(payload) or ErrorInfo("unknown", "the task failed", ""))


def revived(info: ErrorInfo) -> Exception:
    error = _unpickled(info) or _named(info)
    cause = revived(info.cause) if info.cause is not None else None
    if info.traceback:
        remote = errors.RemoteTraceback(info.traceback)
        remote.__cause__ = cause
        error.__cause__ = remote
    else:
        error.__cause__ = cause
    return error


def _named(info: ErrorInfo) -> Exception:
    """Return a replacement for an exception that cannot be created in this process.

    It is an instance of the SDK's error class of the same name, else of `TaskFailed`.
    """
    kind = _BY_NAME.get(info.type)
    if kind is not None:
        return kind(info.text)
    error = errors.TaskFailed(f"{info.type}: {info.text}" if info.text else info.type)
    error.type, error.text, error.traceback = info.type, info.text, info.traceback
    for text in info.notes:
        error.add_note(text)
    return error


def failure(
    task_id: ids.TaskId,
    *,
    state: task.State,
    reason: str,
    message: str,
    payload: attempts.Payload | None,
) -> BaseException:
    """Return the exception that `result()` raises for a task without a result.

    The arguments are the outcome of the task as the dispatcher reports it.
    """
    info = _error_info(payload)
    kind = errors.Cancelled if state is task.State.KILLED else _KINDS.get(reason)
    text = ids.task_text(task_id)
    has_own_message = kind in (None, errors.VariableMissing)
    if info is not None and has_own_message:
        error = revived(info)
        if isinstance(error, errors.TaskError) and error.task is None:
            error.task, error.reason = text, reason
        return error
    raised = (kind or errors.TaskFailed)(
        f"task {text}: {message or _sentence(reason)}", task=text, reason=reason
    )
    if info is not None:
        of_input = kind is errors.InputFailed and info.cause is not None
        raised.__cause__ = revived(info.cause if of_input and info.cause else info)
    return raised


def _error_info(payload: attempts.Payload | None) -> ErrorInfo | None:
    if payload is None or payload.media_type != attempts.ERROR:
        return None
    try:
        return _decode(payload.data)
    except msgspec.DecodeError:
        return ErrorInfo("unknown", "what the task raised cannot be read", "")


_BY_NAME = {
    f"kilnwork.{kind.__name__}": kind
    for kind in errors.PUBLIC
    if issubclass(kind, errors.TaskError) and kind is not errors.TaskFailed
}
_KINDS: dict[str, type[errors.TaskError]] = {
    reasons.Reason.TIMED_OUT: errors.TaskTimedOut,
    reasons.Reason.PENDING_TIMED_OUT: errors.TaskTimedOut,
    reasons.Reason.TOTAL_TIMED_OUT: errors.TaskTimedOut,
    reasons.Reason.LOST_TOO_OFTEN: errors.TaskLost,
    reasons.Reason.INPUT_FAILED: errors.InputFailed,
    reasons.Reason.KEY_TAKEN: errors.KeyTaken,
    reasons.Reason.VARIABLE_MISSING: errors.VariableMissing,
}


def _sentence(reason: str) -> str:
    try:
        return reasons.Reason(reason).sentence
    except ValueError:
        return reason


# packing


def _type_name(kind: type) -> str:
    if kind.__module__ == builtins.__name__:
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # noqa: BLE001 - any user's __str__
        return f"<its text cannot be made: {type(problem).__name__}>"


def _traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, with causes and contexts, but without frames of
    kilnwork.
    """
    try:
        whole = traceback.TracebackException.from_exception(error, compact=True)
        pending, seen = [whole], set()
        while pending:
            part = pending.pop()
            if id(part) not in seen:
                seen.add(id(part))
                part.stack = _trimmed(part.stack)
                pending += [p for p in (part.__cause__, part.__context__) if p is not None]
                pending += part.exceptions or ()
        return "".join(whole.format())
    except Exception as problem:  # noqa: BLE001 - any user's __repr__, __str__, source files
        return f"<its traceback cannot be made: {type(problem).__name__}>"


def _trimmed(stack: traceback.StackSummary) -> traceback.StackSummary:
    """Return the stack without the frames that lead from the slot to the user's first frame."""
    if not stack or not stack[0].filename.startswith(_OURS):
        return stack
    first = next(
        (at for at, frame in enumerate(stack) if not frame.filename.startswith(_RUNNERS)),
        len(stack) - 1,
    )
    return traceback.StackSummary.from_list(stack[first:])


def _notes(error: BaseException) -> tuple[str, ...]:
    kept: list[str] = []
    room = MAX_NOTES
    for text in getattr(error, "__notes__", ()):
        if not isinstance(text, str) or room <= 0:
            continue
        kept.append(_cut(text, room))
        room -= len(text)
    return tuple(kept)


def _cut(text: str, limit: int) -> str:
    """Return the text, shortened in the middle to at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    half = (limit - 64) // 2
    left = len(data) - 2 * half
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head}\n… {left} bytes left out …\n{tail}"


def _pickled(error: BaseException) -> bytes | None:
    """Return the pickled exception, or None if another process could not create or raise it."""
    if not _raisable(error):
        return None
    for candidate in (error, _Bare(error)):
        try:
            data = b"".join(pickle_encoding.dump(candidate, named=list).parts)
            if len(data) <= MAX_PICKLED and type(pickle_encoding.load(data)) is type(error):
                return data
        except Exception:  # noqa: BLE001, S112 - any user's __reduce__ and __init__
            continue
    return None


_ENDINGS = (StopIteration, StopAsyncIteration)


def _raisable(error: Any) -> bool:
    """Return whether another process can raise the exception like an ordinary error.

    False if raising it would end a process, a generator or a coroutine.
    """
    return isinstance(error, Exception) and not isinstance(error, _ENDINGS)


class _Bare:
    """A wrapper that pickles an exception so that unpickling does not call its `__init__`.

    `BaseException.__reduce__` calls the class with `args`, which fails for every class whose
    `__init__` takes other arguments than it passes on.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self.error), self.error.args, dict(vars(self.error)))


def _remake(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _unpickled(info: ErrorInfo) -> Exception | None:
    if info.pickled is None:
        return None
    try:
        error = pickle_encoding.load(info.pickled)
    except Exception:  # noqa: BLE001 - a class of the worker that is not here
        return None
    return error if _raisable(error) else None
