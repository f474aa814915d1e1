"""The execution of one call: find the function, decode its arguments, call it, return its outcome.

Used by `slot_session` and `pod_call`, in the main thread. Whatever user code does (raise, exit,
return values that cannot be pickled) becomes a `CallEnd`. `run` raises only if an interrupt arrives
just before it returns.
"""

import contextlib
import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import CoroutineType
from typing import Any, Protocol

from kilnwork.api import attempts, calls, reasons, task
from kilnwork.api import env_sources as api_variables
from kilnwork.channel import messages
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import (
    call_environment,
    code_activation,
    context,
    errors,
    function_runner,
    futures,
    serialization,
)
from kilnwork.sdk import task as task_functions
from kilnwork.worker import interrupts, slot_call_table, usage

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
LOST, STOPPED = attempts.Ending.LOST, attempts.Ending.STOPPED

MAX_MESSAGE = 1024

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, dict, tuple})
"""Types whose values are results as they are: no coroutine, future or generator."""

_NOT_HERE = (
    "The workers of this cluster do not have it. Send it along: "
    "kiln.connect(…, working_dir='.') sends a directory, modules=['…'] what is imported by name"
)

_DONE = str(reasons.Reason.SUCCEEDED)


class Owner(Protocol):
    """Port of the session that runs the call, with the methods that `call_execution` uses."""

    blobs: Any
    shares_files: bool

    def loaded(self) -> None:
        """Handle that a function was imported: its libraries may have started threads."""
        ...

    def needed(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        """Wait for a task whose result was not sent along with the call, and return its future."""
        ...

    def progress(self, ref: attempts.AttemptRef, fraction: float | None, message: str) -> None:
        """Send the progress of a call."""
        ...

    def yielded(self, ref: attempts.AttemptRef, index: int, payload: attempts.Payload) -> None: ...


class _Refused(Exception):
    """The call cannot be run, or its result cannot be accepted.

    `reason`: the reason to report.
    """

    def __init__(self, reason: reasons.Reason, error: BaseException) -> None:
        super().__init__(str(error))
        self.reason = reason
        self.error = error


class Template:
    """The function and options that all calls of one template share.

    The function is loaded when the first of these calls runs. `held`: the object that was imported
    or read from the blob. `function`: its function to call. `convert`: for jobs, turns option
    values into arguments.
    """

    __slots__ = ("call", "convert", "env", "function", "held")

    def __init__(self, spec: task.TaskSpec) -> None:
        if spec.call is None:
            raise ValueError("a template without a call was sent to a slot")
        self.call = spec.call
        self.env = spec.env
        self.held: Any = None
        self.function: Callable[..., Any] | None = None
        self.convert: Callable[[dict[str, Any]], dict[str, Any]] | None = None


class Execution:
    """Executor of calls, one at a time; see the module."""

    def __init__(
        self,
        owner: Owner,
        *,
        clock: clocks.Clock,
        ask: Callable[[slot_call_table.StackLevel], messages.Response] | None = None,
        min_measured_s: float = usage.SHORT_S,
    ) -> None:
        """Create the executor.

        `ask`: fetches the values of a call's variables; None where calls have no variables of their
        own. `min_measured_s`: see `usage.Meter`.
        """
        self._owner = owner
        self._ask = ask
        self._monotonic = clock.monotonic
        self._meter = usage.Meter(min_s=min_measured_s)
        self._loaded: dict[tuple[str, str | None], Any] = {}
        self.guard: interrupts.Interrupts

    def run(self, level: slot_call_table.StackLevel, template: Template) -> calls.CallEnd:
        """Run a call and return its outcome.

        May raise Cancelled; `failed` then returns the outcome to report. A call that was asked to
        stop counts as stopped even if its function caught Cancelled and returned.
        """
        ref, guard = level.ref, self.guard
        level.inner = inner = context.Context(
            ref.task,
            run=ref.run,
            attempt=ref.attempt,
            name=level.run.name,
            report=functools.partial(self._owner.progress, ref),
        )
        context.begin(inner)
        try:
            if (
                template.call.environment == code_activation.slot.environment is None
                and not template.env
            ):
                end = self._called(level, template)
            else:
                with self._surroundings(level, template):
                    end = self._called(level, template)
            return self.failed(level, guard.cancelled(), template) if level.stop else end
        except BaseException as error:  # noqa: BLE001  anything a user's function raises
            # First: a second interrupt must not come while the outcome is made.
            guard.user = False
            return self.failed(level, error, template)
        finally:
            context.end()

    @contextlib.contextmanager
    def _surroundings(
        self, level: slot_call_table.StackLevel, template: Template
    ) -> Iterator[None]:
        """Provide the environment variables and files of a call within the block.

        Variables come first, since imports may read them.
        """
        with contextlib.ExitStack() as stack:
            if template.env:
                values = self._values(level, template.env)
                stack.enter_context(call_environment.applied(values))
            if (
                template.call.environment is not None
                or code_activation.slot.environment is not None
            ):
                stack.enter_context(self._entered(template.call))
            yield

    def _values(
        self, level: slot_call_table.StackLevel, env: Sequence[task.EnvVar]
    ) -> dict[str, str]:
        if self._ask is None or api_variables.are_literal(env):
            return api_variables.with_values(env, {})
        response = self._ask(level)
        if response.status != api_variables.FOUND:
            error = errors.VariableMissing(api_variables.refusal(response.body))
            raise _Refused(reasons.Reason.VARIABLE_MISSING, error)
        return api_variables.with_values(env, api_variables.decode(response.body))

    def _entered(self, call: task.Call) -> code_activation.Entered:
        try:
            return code_activation.enter(call.environment, self._owner.blobs)
        except (data_errors.DataError, OSError) as error:
            raise _Refused(reasons.Reason.VALUE_MISSING, error) from error

    def _called(self, level: slot_call_table.StackLevel, template: Template) -> calls.CallEnd:
        guard = self.guard
        function = template.function or self._load(template)
        args, kwargs = self._arguments(level.run)
        # Before `guard.user` is set: only user code may be interrupted.
        if template.convert is not None:
            kwargs = template.convert(kwargs)
        self._meter.begin(level)
        level.began = self._monotonic()
        payload: attempts.Payload | None
        delegate = None
        if template.call.stream:
            try:
                payload = self._stream(level, function_runner.iterate(function, args, kwargs))
            finally:
                level.seconds = self._monotonic() - level.began
        else:
            # Cancelled may be raised from here on, even before the `try`; `run` handles that.
            guard.user = True
            try:
                value = function(*args, **kwargs)
            finally:
                guard.user = False
                level.seconds = self._monotonic() - level.began
            if type(value) in _PLAIN and template.call.returns == 1:
                payload = serialization.pack_value(value, self._owner.blobs)
            else:
                payload, delegate = self._finish(level, template, value)
        return calls.CallEnd(
            level.ref, SUCCEEDED, _DONE, "", payload, level.started, level.seconds, True, delegate,
            self._meter.end(level),
        )  # fmt: skip

    def failed(
        self, level: slot_call_table.StackLevel, error: BaseException, template: Template | None
    ) -> calls.CallEnd:
        """Return the outcome to report for a call that ended with an exception."""
        ending, reason, message = FAILED, str(reasons.Reason.RAISED), ""
        payload = None
        may_retry = True
        if level.stop:
            ending, reason = STOPPED, level.stop
        elif level.raised:
            ending, reason = LOST, str(reasons.Reason.TAKEN_BACK)
        elif isinstance(error, data_errors.BlobNotWritten):  # not the function's fault
            ending, reason, message = LOST, str(reasons.Reason.RESULT_LOST), _sentence(error)
        else:
            if isinstance(error, _Refused):
                reason, error = str(error.reason), error.error
            elif template is not None:
                may_retry = task_functions.may_retry(template.held, error)
            advised = bool(getattr(error, "__notes__", ()))
            missing = isinstance(error, ModuleNotFoundError) and not advised
            if missing and not self._owner.shares_files:
                error.add_note(_NOT_HERE)
            payload = serialization.pack_error(error)
            message = _sentence(error)
        return calls.CallEnd(
            level.ref, ending, reason, message, payload, level.started, level.seconds, may_retry,
            None, self._meter.end(level),
        )  # fmt: skip

    def _load(self, template: Template) -> Callable[..., Any]:
        call = template.call
        known = call.code or call.function, call.environment
        held = self._loaded.get(known)
        if held is None:
            try:
                held = self._find(call)
            except data_errors.DataError as error:
                raise _Refused(reasons.Reason.VALUE_MISSING, error) from error
            # BaseException, because a module may call sys.exit while it is imported.
            except BaseException as error:
                raise _Refused(reasons.Reason.FUNCTION_NOT_FOUND, error) from error
            self._loaded[known] = held
            self._owner.loaded()
        template.held = held
        template.convert = task_functions.conversion_of(held)
        function: Callable[..., Any] = task_functions.function_of(held)
        template.function = function
        return function

    def _find(self, call: task.Call) -> Any:
        if call.code is not None:
            digest = local_blobs.parse(call.code)
            return task_functions.load(self._owner.blobs.get(digest), call.code)
        module, _, name = call.function.partition(":")
        found: Any = importlib.import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
        return found

    def _arguments(self, run: calls.CallRun) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def resolve(needed: ids.TaskId, index: int | None) -> Any:
            return self._resolved(run, needed, index)

        try:
            return serialization.unpack_arguments(run.arguments, self._owner.blobs, resolve)
        except data_errors.DataError as error:
            raise _Refused(reasons.Reason.VALUE_MISSING, error) from error
        # Cancelled may be raised while a missing value is awaited; the arguments are not to blame.
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
            return serialization.failure(
                needed,
                state=value.state,
                reason=value.reason,
                message=value.message,
                payload=value.payload,
            )
        if value.payload is None:
            return None
        whole = serialization.unpack_value(value.payload, self._owner.blobs)
        return whole if index is None else whole[index]

    # returned values that are not of a `_PLAIN` type

    def _finish(
        self, level: slot_call_table.StackLevel, template: Template, value: Any
    ) -> tuple[attempts.Payload | None, ids.TaskId | None]:
        if isinstance(value, CoroutineType):
            self.guard.user = True
            try:
                value = function_runner.call(_itself, (value,), {})
            finally:
                self.guard.user = False
                level.seconds = self._monotonic() - level.began
        if isinstance(value, futures.CallFuture):
            return None, value.task
        if isinstance(value, futures.Future):
            value = value.result()
        function_runner.check_returns(value, template.call.returns)
        return self._packed(value), None

    def _packed(self, value: Any) -> attempts.Payload:
        try:
            return serialization.pack_value(value, self._owner.blobs)
        except errors.NotPicklable as error:
            raise _Refused(reasons.Reason.RESULT_NOT_PICKLED, error) from error

    def _stream(self, level: slot_call_table.StackLevel, values: Iterator[Any]) -> attempts.Payload:
        """Send the values of a generator one by one; return the payload that represents all of
        them.
        """
        payloads: list[attempts.Payload] = []
        for index in itertools.count():
            self.guard.user = True
            try:
                value = next(values)
            except StopIteration:
                break
            finally:
                self.guard.user = False
            payload = self._packed(value)
            payloads.append(payload)
            self._owner.yielded(level.ref, index, payload)
        return serialization.pack_stream(payloads, self._owner.blobs)


def _itself(value: Any) -> Any:
    return value


def _sentence(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  a __str__ of user code
        text = ""
    return (f"{name}: {text}" if text else name)[:MAX_MESSAGE]


USER_CODE_CALLERS = (
    Execution._called,
    Execution._finish,
    Execution._stream,
    function_runner.call,
    function_runner.iterate,
    function_runner._driven,
    function_runner._next,
)
"""The functions that call user code; see `interrupts`."""
