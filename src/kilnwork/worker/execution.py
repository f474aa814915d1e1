"""Running one call: find the function, read its arguments, call it, say how that ended.

Used by `slot_session`, in the main thread. Whatever user code does, raise, exit, return nonsense,
becomes a `CallEnd`; nothing gets out of `run` but an interrupt that came a moment late.
"""

import importlib
import itertools
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType
from typing import Any, Protocol

import msgspec

from kilnwork.api import attempts, calls, reasons, task
from kilnwork.data import errors as data_errors
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import errors, futures, pickling
from kilnwork.worker import holdings, interrupts

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
LOST, STOPPED = attempts.Ending.LOST, attempts.Ending.STOPPED

MAX_MESSAGE = 1024

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple})
"""A result of one of these types is just that."""

_DONE = str(reasons.Reason.SUCCEEDED)
_encode = msgspec.msgpack.Encoder().encode


class Owner(Protocol):
    """What a call needs of the session that runs it."""

    blobs: Any

    def needed(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        """A task whose result was not sent along; waits for it."""
        ...

    def yielded(self, ref: attempts.AttemptRef, index: int, payload: attempts.Payload) -> None:
        """A generator has yielded."""
        ...


class _Refused(Exception):
    """The call cannot be run, or its result not be taken. `reason` says what it is."""

    def __init__(self, reason: reasons.Reason, error: BaseException) -> None:
        super().__init__(str(error))
        self.reason = reason
        self.error = error


class Template:
    """What the calls of one template share; loaded when the first of them runs."""

    __slots__ = ("call", "function", "given", "plain")

    def __init__(self, spec: task.TaskSpec) -> None:
        if spec.call is None:
            raise ValueError("a template without a call was sent to a slot")
        self.call = spec.call
        self.given: Any = None
        self.function: Callable[..., Any] | None = None
        self.plain = spec.call.returns == 1 and not spec.call.stream


class Execution:
    """See the module."""

    def __init__(self, owner: Owner, *, clock: clocks.Clock) -> None:
        self._owner = owner
        self._monotonic = clock.monotonic
        self._wall = clock.wall
        self._loaded: dict[str, Any] = {}
        self.guard: interrupts.Interrupts

    def run(self, level: holdings.Level, template: Template) -> calls.CallEnd:
        """Run it to its end. May raise Cancelled, in which case `failed` says what became of it."""
        run, guard, blobs = level.run, self.guard, self._owner.blobs
        try:
            function = template.function or self._load(template)
            args, kwargs = self._arguments(run)
            level.began = began = self._monotonic()
            guard.user = True
            try:
                value = function(*args, **kwargs)
            finally:
                guard.user = False
            payload: attempts.Payload | None
            delegate = None
            if type(value) in _PLAIN and template.plain:
                payload = pickling.pack_value(value, blobs)
            else:
                payload, delegate = self._finish(level, template, value)
            seconds = self._monotonic() - began
            return calls.CallEnd(
                run.ref, SUCCEEDED, _DONE, "", payload, level.started, seconds, True, delegate
            )
        except BaseException as error:  # noqa: BLE001  anything a user's function raises
            guard.user = False
            return self.failed(level, error, template)

    def failed(
        self, level: holdings.Level, error: BaseException, template: Template | None
    ) -> calls.CallEnd:
        """What is said of an attempt that ended by an exception."""
        ending, reason, message = FAILED, str(reasons.Reason.RAISED), ""
        payload = None
        may_retry = True
        if level.stop:
            ending, reason = STOPPED, level.stop
        elif level.raised:
            ending, reason = LOST, str(reasons.Reason.TAKEN_BACK)
        else:
            if isinstance(error, _Refused):
                reason, error = str(error.reason), error.error
            elif template is not None:
                may_retry = _may_retry(template.given, error)
            payload = pickling.pack_error(error)
            message = _sentence(error)
        seconds = self._monotonic() - level.began if level.began else 0.0
        return calls.CallEnd(
            level.ref, ending, reason, message, payload, level.started, seconds, may_retry
        )

    def _load(self, template: Template) -> Callable[..., Any]:
        call = template.call
        known = call.code or call.function
        given = self._loaded.get(known)
        if given is None:
            try:
                given = self._find(call)
            except data_errors.DataError as error:
                raise _Refused(reasons.Reason.VALUE_MISSING, error) from error
            except BaseException as error:
                raise _Refused(reasons.Reason.FUNCTION_NOT_FOUND, error) from error
            self._loaded[known] = given
        template.given = given
        template.function = function = _function_of(given)
        return function

    def _find(self, call: task.Call) -> Any:
        if call.code is not None:
            digest = bytes.fromhex(call.code.removeprefix("sha256:"))
            return pickling.load_function(self._owner.blobs.get(digest))
        module, _, name = call.function.partition(":")
        found: Any = importlib.import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
        return found

    def _arguments(self, run: calls.CallRun) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def resolve(needed: ids.TaskId, index: int | None) -> Any:
            return self._resolved(run, needed, index)

        try:
            return pickling.unpack_arguments(run.arguments, self._owner.blobs, resolve)
        except data_errors.DataError as error:
            raise _Refused(reasons.Reason.VALUE_MISSING, error) from error
        except errors.Cancelled:
            raise
        except BaseException as error:
            raise _Refused(reasons.Reason.ARGUMENTS_NOT_LOADED, error) from error

    def _resolved(self, run: calls.CallRun, needed: ids.TaskId, index: int | None) -> Any:
        value = next((value for value in run.values if value.task == needed), None)
        if value is None:
            found = self._owner.needed(needed)
            return found.exception() if found.failed() else found.part(index).result()
        if value.state is not task.State.SUCCESS:
            return pickling.failure(
                needed,
                state=value.state,
                reason=value.reason,
                message=value.message,
                payload=value.payload,
            )
        if value.payload is None:
            return None
        whole = pickling.unpack_value(value.payload, self._owner.blobs)
        return whole if index is None else whole[index]

    # what user code returned, when it is not just a value

    def _finish(
        self, level: holdings.Level, template: Template, value: Any
    ) -> tuple[attempts.Payload | None, ids.TaskId | None]:
        call = template.call
        if isinstance(value, CoroutineType):
            value = self._in_loop(value)
        if call.stream:
            return self._stream(level, value), None
        if isinstance(value, futures.CallFuture):
            return None, value.task
        if isinstance(value, futures.Future):
            value = value.result()
        if call.returns > 1:
            _check_returns(value, call.returns)
        return self._packed(value), None

    def _packed(self, value: Any) -> attempts.Payload:
        try:
            return pickling.pack_value(value, self._owner.blobs)
        except errors.NotPicklable as error:
            raise _Refused(reasons.Reason.RESULT_NOT_PICKLED, error) from error

    def _in_loop(self, coroutine: Any) -> Any:
        """Run a coroutine in an event loop of its own."""
        loops = importlib.import_module("asyncio")
        self.guard.user = True
        try:
            return loops.run(coroutine)
        finally:
            self.guard.user = False

    def _stream(self, level: holdings.Level, value: Any) -> attempts.Payload:
        """All that a generator yields, told one by one, and then once more together."""
        payloads: list[attempts.Payload] = []
        if isinstance(value, AsyncGeneratorType):
            self._in_loop(self._drain(level, value, payloads))
        else:
            values = iter(value)
            for index in itertools.count():
                self.guard.user = True
                try:
                    each = next(values)
                except StopIteration:
                    break
                finally:
                    self.guard.user = False
                self._yield(level, index, each, payloads)
        data = _encode(payloads)
        if len(data) <= attempts.MAX_INLINE_BYTES:
            return attempts.Payload(attempts.STREAM, data, blobs=_blobs(payloads))
        digest, size = self._owner.blobs.put([data])
        return attempts.Payload(attempts.STREAM, b"", digest, size, _blobs(payloads))

    async def _drain(
        self,
        level: holdings.Level,
        value: AsyncGeneratorType[Any, None],
        payloads: list[attempts.Payload],
    ) -> None:
        async for each in value:
            self._yield(level, len(payloads), each, payloads)

    def _yield(
        self, level: holdings.Level, index: int, value: Any, payloads: list[attempts.Payload]
    ) -> None:
        payload = self._packed(value)
        payloads.append(payload)
        self._owner.yielded(level.ref, index, payload)


def _blobs(payloads: list[attempts.Payload]) -> tuple[bytes, ...]:
    """Every blob that the values refer to, or are."""
    found = [digest for payload in payloads for digest in payload.blobs]
    found += [payload.digest for payload in payloads if payload.digest is not None]
    return tuple(dict.fromkeys(found))


def _check_returns(value: Any, count: int) -> None:
    if not isinstance(value, tuple | list):
        raise TypeError(f"it returned {type(value).__name__}, not the {count} results that it has")
    if len(value) != count:
        raise ValueError(f"it returned {len(value)} results, not the {count} that it has")


def _sentence(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  anybody's __str__
        text = ""
    return (f"{name}: {text}" if text else name)[:MAX_MESSAGE]


def _function_of(given: Any) -> Callable[..., Any]:
    return given  # type: ignore[no-any-return]


def _may_retry(given: Any, error: BaseException) -> bool:
    return True


DOORS = (Execution.run, Execution._in_loop, Execution._stream, Execution._drain)
"""Where user code is called: see `interrupts`."""
