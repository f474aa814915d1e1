"""External executors, written by users: each attempt is one call of a coroutine function.

Used by `kilnwork.executor`, which documents the guarantees, and by the controller of TaskClaims.
"""

import asyncio
import hashlib
import math
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import attempts, json_limits, reasons, substitution, task
from kilnwork.channel import messages
from kilnwork.executors import attempt_base, service
from kilnwork.kit import clock, coroutines, errors, ids

BYTES = "application/octet-stream"
_E = attempts.Ending
_R = reasons.Reason
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTAINERS = (dict, list, tuple)
_REASON = re.compile("[A-Za-z][A-Za-z0-9]{0,62}")


class Failed(errors.KilnError):
    """The task has failed.

    `reason`: one word in CamelCase, none of `reasons.NO_FAILURES` (otherwise the constructor raises
    ValueError); `retry`: whether the task may be tried again within `spec.retry`.
    """

    def __init__(self, message: str, *, reason: str = _R.RAISED, retry: bool = True) -> None:
        if not _is_word(reason):
            text = "it must be one word in CamelCase of at most 63 letters and digits"
            raise ValueError(f"reason is {reason!r:.80}; {text}")
        if reason in reasons.NO_FAILURES:
            text = f"reason is {reason}, which says: {_R(reason).sentence} Choose another word"
            raise ValueError(text)
        if not isinstance(retry, bool):
            raise TypeError(f"retry is {retry!r:.80}; it must be True or False")
        self.reason, self.retry = reason, retry
        super().__init__(message)


class Lost(errors.KilnError):
    """The attempt ended through no fault of the task, which may run elsewhere.

    `proof`: whether it is certain that no process of the attempt is running any more.
    """

    def __init__(self, message: str, *, reason: str = _R.WORKER_LOST, proof: bool = False) -> None:
        self.reason, self.proof = reason, proof
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """A task that this process has claimed.

    `id`, `run` and `attempt` identify the attempt: use them in the names of objects that the
    function creates in other systems, so that each object is created only once. `payload`: the
    payload in the task's spec, with variables replaced; `inputs`: the task's inputs by name.
    """

    name: str
    namespace: str
    id: str
    run: int
    attempt: int
    payload: Any
    inputs: dict[str, Any]
    spec: task.TaskSpec
    _progress: Callable[[float | None, str], None] = field(repr=False)

    def progress(self, fraction: float | None, message: str = "") -> None:
        """Report the progress of the task: `fraction` from 0 to 1, None if unknown. Raises
        ValueError for other numbers.
        """
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"fraction is {fraction!r}; it must be from 0 to 1, or None")
        self._progress(fraction, message)


Run = Callable[[ClaimedTask], Awaitable[Any]]
Keep = Callable[[str, bytes, Path], Awaitable[None]]
"""Stores a blob: namespace, digest, file. Raises KilnError."""


class ExternalAttempt(attempt_base.ProcessAttempt):
    """One attempt of an external executor: a call of the user's function, with its result, failure
    and log.
    """

    def __init__(
        self,
        run: messages.Run,
        link: attempt_base.Link,
        time: clock.Clock,
        *,
        call: Run,
        keep: Keep,
    ) -> None:
        super().__init__(run, link, time)
        self._call, self._keep = call, keep

    async def _carry_out(self) -> attempts.Outcome:
        self._started = at = self._clock.wall()
        self._link.report(lambda serial: messages.Started(serial, self.ref, at))
        try:
            # run it in a coroutine task of its own: if the function cancels that, it was not a kill
            value = await coroutines.run_in_own_task(str(self.ref), self._guarded(self._claimed()))
            if self._halt is not None:  # the function swallowed the cancellation
                return await self._halted(self._halt)
            result = await self._payload(value)
        except Failed as error:
            ended = self._ended(_E.FAILED, error.reason, _text(error))
            return msgspec.structs.replace(ended, may_retry=error.retry)
        except Lost as error:
            return self._ended(_E.LOST, error.reason, str(error), proof=error.proof)
        except (substitution.InvalidTemplate, json_limits.LimitExceeded) as error:
            return self._ended(_E.FAILED, _R.INVALID_SPEC, str(error))
        except (KeyboardInterrupt, GeneratorExit):  # the program is exiting
            raise
        except BaseException as error:  # a user's function may raise anything
            current = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and current and current.cancelling():
                raise
            if self._halt is not None:
                return await self._halted(self._halt)
            text = _text(error)
            if isinstance(error, asyncio.CancelledError):
                text = text or "the function was cancelled, and not because the task was killed"
            return self._ended(_E.FAILED, _R.RAISED, f"{type(error).__name__}: {text}")
        return self._ended(_E.SUCCEEDED, _R.SUCCEEDED, result=result)

    async def _guarded(self, claimed: ClaimedTask) -> Any:
        try:
            return await self._call(claimed)
        except SystemExit as error:  # asyncio would end the program, and all its attempts
            text = f"SystemExit: {_text(error)} (the function must not end the program)"
            raise Failed(text) from error

    def _claimed(self) -> ClaimedTask:
        run, ref = self._run, self.ref
        variables = self._variables()
        payload = None if run.spec.external is None else run.spec.external.payload
        if b"${" in msgspec.json.encode(payload):
            payload = substitution.substitute(payload, variables, field="spec.external.payload")
        return ClaimedTask(
            name=variables["task.name"],
            namespace=run.namespace,
            id=ids.task_text(ref.task),
            run=ref.run,
            attempt=ref.attempt,
            payload=payload,
            inputs={} if run.inputs is None else msgspec.json.decode(run.inputs),
            spec=run.spec,
            _progress=self._say,
        )

    def _say(self, fraction: float | None, message: str) -> None:
        known = None if fraction is None else float(fraction)
        text = _escaped(message)[: attempt_base.MAX_MESSAGE]
        self._link.send(messages.Progress(self.ref, known, text))

    def _ended(
        self, ending: attempts.Ending, reason: str, message: str = "", **more: Any
    ) -> attempts.Outcome:
        return super()._ended(ending, reason, _escaped(message), **more)

    async def _payload(self, value: Any) -> attempts.Payload | None:
        """Return a result as a payload: inline if it is small, else as a blob."""
        if value is None:
            return None
        data, media_type = self._encoded(value)
        if len(data) <= attempts.MAX_INLINE_BYTES:
            return attempts.Payload(media_type, data)
        with tempfile.NamedTemporaryFile() as file:

            def write() -> bytes:
                file.write(data)
                file.flush()
                return hashlib.sha256(data).digest()

            digest = await asyncio.to_thread(write)
            try:
                await self._keep(self._run.namespace, digest, Path(file.name))
            except errors.KilnError as error:
                text = f"the result cannot be kept: {error}"
                raise Lost(text, reason=_R.RESULT_LOST, proof=True) from error
        return attempts.Payload(media_type, b"", digest, len(data))

    def _encoded(self, value: Any) -> tuple[bytes, str]:
        wanted = self._run.spec.output_type
        try:
            if wanted == "json":
                data = msgspec.json.encode(value)
                if problem := _unlike_json(value):
                    raise ValueError(problem)
                return data, attempts.JSON
            return bytes(memoryview(value)), BYTES
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            message = f"spec.outputType is {wanted}, the result is not: {error}"
            raise Failed(message, reason=_R.INVALID_RESULT, retry=False) from error


def _unlike_json(value: Any) -> str:
    """Return a message about a part of `value` that JSON cannot represent exactly; "" if there is
    none.

    `value` has been encoded before, so it contains no cycles.
    """
    if not _is_odd(value):
        return ""
    left: list[tuple[str, Any]] = [("result", value)]
    while left:
        path, one = left.pop()
        if isinstance(one, set | frozenset):
            return f"{path} is a {type(one).__name__}, which has no order; give a list"
        if isinstance(one, float) and not math.isfinite(one):
            return f"{path} is {one}, which JSON does not have"
        if isinstance(one, dict):
            left += [(f"{path}.{key}", member) for key, member in one.items()]
        elif isinstance(one, list | tuple):
            left += [(f"{path}[{number}]", member) for number, member in enumerate(one)]
    return ""


def _is_odd(value: Any) -> bool:
    """Return whether a value has a part that JSON cannot represent exactly.

    Builds no paths, since results may be large.
    """
    level = [value]
    while level:
        types = set(map(type, level))
        if any(issubclass(one, set | frozenset) for one in types):
            return True
        if float in types and not all(math.isfinite(x) for x in level if type(x) is float):
            return True
        level = [
            member
            for one in level
            if isinstance(one, _CONTAINERS)
            for member in (one.values() if isinstance(one, dict) else one)
        ]
    return False


def _is_word(reason: object) -> bool:
    return isinstance(reason, str) and _REASON.fullmatch(reason) is not None


def _escaped(text: str) -> str:
    """Escape characters that would move the cursor, colour a terminal or change the text's
    direction.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except (Exception, SystemExit) as another:  # noqa: BLE001 (it is the user's)
        return f"its text cannot be had: __str__ raises {type(another).__name__}"


def queue(name: str) -> str:
    """Return the name of the queue of tasks for the executor `name`."""
    return task.executor_queue(task.EXTERNAL + name)


class ExternalService(service.ExecutorService):
    """The process of an external executor, which calls the user's function `call` for each
    attempt.
    """

    def __init__(
        self,
        call: Run,
        settings: service.ExecutorSettings,
        manager: service.Manager,
        *,
        time: clock.Clock,
        entropy: ids.Entropy,
        on_failure: Callable[[str], None],
    ) -> None:
        super().__init__(settings, manager, time=time, entropy=entropy, on_failure=on_failure)
        self._call, self._time = call, time

    def make(self, run: messages.Run) -> ExternalAttempt:
        return ExternalAttempt(run, self.link, self._time, call=self._call, keep=self.keep)
