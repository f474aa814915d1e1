"""The execution of inline tasks: the queue, the stack of running tasks, retries, timeouts,
cancellation.

Used by `testing.inline_sessions`. The rules are those of the dispatcher and the slots
(docs/reference), for one task at a time, and no attempt is ever lost.
"""

import contextlib
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.api import env_sources as api_variables
from kilnwork.api import task as api_task
from kilnwork.data import local_blobs as blob_store
from kilnwork.kit import backoff, ids
from kilnwork.sdk import (
    call_environment,
    context,
    errors,
    failures,
    function_runner,
    futures,
    serialization,
    task,
)
from kilnwork.testing import agenda
from kilnwork.testing import clock as clocks
from kilnwork.testing import task_record as records

Reason = reasons.Reason
State = api_task.State
Record = records.Record

STACKED = 20
"""Maximum number of tasks that run on top of each other in one thread; after that, a task starts in
a new thread.
"""

_MORE = object()


class Runs:
    """The tasks of one inline session, and their execution."""

    def __init__(self, clock: clocks.VirtualClock, blobs: blob_store.Blobs) -> None:
        self.known: dict[ids.TaskId, Record] = {}
        self._agenda = agenda.Agenda(clock)
        self._clock = clock
        self._blobs = blobs
        self._stack: list[Record] = []
        self._keyed: dict[str, Record] = {}
        self._thread = 0
        self._ended: deque[Record] = deque()
        self._passing_on = False

    @property
    def innermost(self) -> Record | None:
        return self._stack[-1] if self._stack else None

    def runs_here(self) -> bool:
        """Return whether a task of the session runs in this thread."""
        return self._thread == threading.get_ident()

    # asking

    def admit(self, record: Record, needs: Iterable[ids.TaskId]) -> Record:
        """Queue a new task, unless it was submitted already: under its key, or by an earlier
        attempt of its parent.

        Return the record of the new or of the earlier task. Raises KeyTaken.
        """
        known = self._asked_before(record)
        if known is not None:
            return known
        self.known[record.task] = record
        record.needs = tuple(self.known[each] for each in needs)
        record.missing = sum(not each.final for each in record.needs)
        for each in record.needs:
            if not each.final:
                each.dependents.append(record)
        timeouts = record.spec.timeouts
        self._limit(record, timeouts.pending_seconds, Reason.PENDING_TIMED_OUT)
        self._limit(record, timeouts.total_seconds, Reason.TOTAL_TIMED_OUT)
        self._queue_if_complete(record)
        return record

    def _asked_before(self, record: Record) -> Record | None:
        parent, key = record.parent, record.key
        if parent is None:
            if key is None:
                return None
            holder = self._keyed.setdefault(key, record)
            if not _same(holder, record):
                raise errors.KeyTaken(
                    f"key {key!r} already names a call of {holder.function} or with other "
                    "arguments: choose another key"
                )
            return None if holder is record else holder
        number = parent.ordinals[record.function] = parent.ordinals.get(record.function, 0) + 1
        child = f"={key}" if key is not None else f"{record.function}#{number}"
        parent.asked.add(child)
        known = parent.children.get(child)
        if known is not None and _same(known, record):
            return known
        if known is not None:
            self.kill(known, Reason.REPLACED)
            parent.reason = Reason.NON_DETERMINISTIC_RETRY
        parent.children[child] = record
        return None

    def _queue_if_complete(self, record: Record) -> None:
        if record.missing or record.final:
            return
        call = record.spec.call
        failed = next((each for each in record.needs if each.state is not State.SUCCESS), None)
        if failed is not None and not (call is not None and call.accept_failures):
            cause = _info(failed)
            info = attempts.ErrorInfo("kilnwork.InputFailed", "", "", cause=cause)
            self._settle(
                record,
                State.FAILED,
                Reason.INPUT_FAILED,
                f"{failed.function} failed: {cause.type}: {cause.text}",
                attempts.Payload(attempts.ERROR, msgspec.msgpack.encode(info)),
            )
            return
        self._agenda.queue(record)

    # time

    def sleep(self, seconds: float) -> None:
        """Advance the time while a task sleeps, at most to the task's timeout."""
        until = self._agenda.now + max(0.0, seconds)
        record = self.innermost
        if record is not None and record.deadline is not None:
            until = min(until, record.deadline)
        self._agenda.go_on_until(until)
        self.check()

    def check(self) -> None:
        """Raise Cancelled in the running task if it must stop."""
        record = self.innermost
        if record is None:
            return
        if record.deadline is not None and self._agenda.now >= record.deadline:
            record.timed_out = True
        if record.timed_out or record.killing:
            if record.context is not None:
                record.context.stop()
            raise errors.Cancelled(
                "the task is to stop: " + ("it ran too long" if record.timed_out else "cancelled"),
                task=record.id,
            )

    def until(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Run tasks and advance the time until `done()` returns True; return False after
        `timeout_s`.

        Raises RuntimeError if it would wait for ever.
        """
        limit = None if timeout_s is None else self._agenda.now + timeout_s
        while not done():
            self.check()
            if self.step():
                continue
            record = self.innermost
            deadline = record.deadline if record is not None else None
            ends = [
                each for each in (limit, deadline, self._agenda.next_time()) if each is not None
            ]
            if not ends:
                waiting = [each for each in self.known.values() if not each.final]
                raise RuntimeError(
                    f"this would wait for ever: nothing is ready to run, and {waiting} wait for "
                    "each other"
                )
            self._agenda.go_on_until(min(ends))
            if limit is not None and self._agenda.now >= limit and not done():
                return False
        self.check()
        return True

    def _limit(self, record: Record, seconds: float | None, reason: Reason) -> None:
        if seconds is None:
            return

        def over() -> None:
            if record.final or (reason == Reason.PENDING_TIMED_OUT and record.attempts):
                return
            message = f"it was not over after {seconds:g} s"
            if record in self._stack:
                record.timed_out, record.expired = True, reason
                return
            self._settle(record, State.FAILED, reason, message)

        self._agenda.at(seconds, over)

    # running

    def step(self) -> bool:
        """Run the first task in the queue, or run a generator up to its next value.

        Return False if the queue is empty.
        """
        record = self._agenda.take()
        if record is None:
            return False
        if len(self._stack) % STACKED == STACKED - 1 or _loop_runs():
            clocks.in_new_thread(functools.partial(self._run, record))
        else:
            self._run(record)
        return True

    def _run(self, record: Record) -> None:
        if record.steps is None:
            self._begin(record)
        before, self._thread = self._thread, threading.get_ident()
        self._stack.append(record)
        assert record.context is not None  # noqa: S101 - `_begin` has made it
        context.begin(record.context)
        error: BaseException | None = None
        value: Any = None
        try:
            value = self._work(record)
            if value is not _MORE:
                value = self._packed(record, value)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # noqa: BLE001 - of the task: it becomes its outcome
            error = raised
        finally:
            context.end()
            self._stack.pop()
            self._thread = before
        self._after(record, value, error)

    def _begin(self, record: Record) -> None:
        record.attempts += 1
        record.state, record.reason = State.RUNNING, Reason.STARTED
        record.ordinals, record.asked, record.yielded = {}, set(), []
        record.timed_out, record.expired = False, ""
        seconds = record.spec.timeouts.running_seconds
        record.deadline = None if seconds is None else self._agenda.now + seconds

        def report(fraction: float | None, message: str) -> None:
            record.progress = fraction, message

        record.context = context.Context(
            record.task, run=1, attempt=record.attempts, name=record.name or "", report=report
        )

    def _work(self, record: Record) -> Any:
        with call_environment.applied(api_variables.with_values(record.spec.env, {})):
            return self._worked(record)

    def _worked(self, record: Record) -> Any:
        function = task.function_of(record.held)
        if record.steps is None:
            args, kwargs = serialization.unpack_arguments(
                record.arguments, self._blobs, self._resolve
            )
            if record.spec.call is None or not record.spec.call.stream:
                return function_runner.call(function, args, kwargs, new_loop=self._new_loop)
            record.steps = function_runner.iterate(function, args, kwargs, new_loop=self._new_loop)
        try:
            value = next(record.steps)
        except StopIteration:
            return serialization.pack_stream(record.yielded, self._blobs)
        payload = serialization.pack_value(value, self._blobs)
        for future in record.futures.values():
            future.yielded(len(record.yielded), payload)
        record.yielded.append(payload)
        return _MORE

    def _packed(self, record: Record, value: Any) -> Any:
        """Return the result of a task as a payload, or the future itself if the task returned
        another task's future.
        """
        call = record.spec.call
        if record.steps is not None:
            return value
        if isinstance(value, futures.CallFuture):
            return value
        if isinstance(value, futures.Future):
            value = value.result()
        function_runner.check_returns(value, call.returns if call is not None else 1)
        return serialization.pack_value(value, self._blobs)

    def _resolve(self, task_id: ids.TaskId, index: int | None) -> Any:
        record = self.known[task_id]
        if record.state is not State.SUCCESS or record.payload is None:
            return failures.failure(
                task_id,
                state=record.state,
                reason=record.reason,
                message=record.message,
                payload=record.payload,
            )
        value = serialization.unpack_value(record.payload, self._blobs)
        return value if index is None else value[index]

    def _new_loop(self) -> clocks.VirtualLoop:
        return clocks.VirtualLoop(self._clock.monotonic, self.sleep)

    # ending

    def _after(self, record: Record, value: Any, error: BaseException | None) -> None:
        if value is _MORE and error is None and not record.killing and not record.timed_out:
            self._agenda.queue(record)
            return
        self._close(record)
        if record.killing:
            self._settle(record, State.KILLED, record.killing, "it was cancelled")
        elif record.expired:
            self._settle(record, State.FAILED, record.expired, "its time was over")
        elif record.timed_out:
            limit = record.spec.timeouts.running_seconds or 0
            self._failed(record, Reason.TIMED_OUT, f"it ran longer than timeout={limit:g}", None)
        elif error is not None:
            self._raised(record, error)
        elif isinstance(value, futures.CallFuture):
            self._delegate(record, self.known[value.task])
        else:
            self._succeeded(record, value)

    def _close(self, record: Record) -> None:
        steps, record.steps = record.steps, None
        close = getattr(steps, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):  # the task has expired, whatever it raises
                close()

    def _raised(self, record: Record, error: BaseException) -> None:
        payload = failures.pack_error(error)
        reason = Reason.RAISED
        if isinstance(error, errors.NotPicklable) and error.path.startswith("result"):
            reason = Reason.RESULT_NOT_PICKLED
        if task.may_retry(record.held, error):
            self._failed(record, reason, f"{type(error).__name__}: {error}", payload)
        else:
            self._settle(record, State.FAILED, reason, f"{type(error).__name__}: {error}", payload)

    def _failed(
        self, record: Record, reason: Reason, message: str, payload: attempts.Payload | None
    ) -> None:
        retry = record.spec.retry
        if record.attempts >= retry.max_attempts:
            self._settle(record, State.FAILED, reason, message, payload)
            return
        record.state, record.reason, record.message = State.PENDING, Reason.RETRY_BACKOFF, message
        delay = backoff.Backoff(
            base_s=retry.delay_seconds, max_s=retry.max_delay_seconds, factor=retry.factor
        )
        self._agenda.at(delay.delay_s(record.attempts), lambda: self._agenda.queue(record))

    def _succeeded(self, record: Record, payload: attempts.Payload) -> None:
        for child, each in record.children.items():
            if child not in record.asked:
                self.kill(each, Reason.REPLACED)
        self._settle(record, State.SUCCESS, Reason.SUCCEEDED, "", payload)

    def _delegate(self, record: Record, target: Record) -> None:
        record.reason = Reason.DELEGATED
        record.target = target
        if target.final:
            self._take_over(record, target)
        else:
            target.delegators.append(record)

    def _take_over(self, record: Record, target: Record) -> None:
        self._settle(record, target.state, target.reason, target.message, target.payload)

    def kill(self, record: Record, reason: Reason, *, recursive: bool = True) -> None:
        """Cancel a task: at once if it does not run, otherwise when it next calls the session."""
        if recursive:
            for child in list(record.children.values()):
                self.kill(child, Reason.PARENT_KILLED)
        if record.final:
            return
        if record in self._stack:
            record.killing = reason
            return
        self._close(record)
        self._settle(record, State.KILLED, reason, "it was cancelled")

    def _settle(
        self,
        record: Record,
        state: State,
        reason: str,
        message: str,
        payload: attempts.Payload | None = None,
    ) -> None:
        if record.final:
            return
        record.state, record.reason, record.message = state, reason, message
        record.payload = payload
        for number, future in record.futures.items():
            future.settle(record.result(number))
        record.futures.clear()
        self._ended.append(record)
        if not self._passing_on:
            self._pass_on()

    def _pass_on(self) -> None:
        """Notify the tasks that wait for finished tasks.

        The loop is needed because the notified tasks may finish in turn.
        """
        self._passing_on = True
        try:
            while self._ended:
                record = self._ended.popleft()
                for each in record.delegators:
                    self._take_over(each, record)
                for each in record.dependents:
                    each.missing -= 1
                    self._queue_if_complete(each)
        finally:
            self._passing_on = False

    def abandon(self, error: Exception) -> None:
        """End all unfinished tasks at the end of the session: their futures fail with `error`."""
        for record in self.known.values():
            self._close(record)
            for future in record.futures.values():
                future.settle(futures.ERROR, error)
            record.futures.clear()


def _same(known: Record, record: Record) -> bool:
    """Return whether two records are of the same call, as far as that is known: pickles are not
    compared.
    """
    if known.function != record.function:
        return False
    ours, theirs = known.arguments, record.arguments
    if ours.media_type != attempts.JSON or theirs.media_type != attempts.JSON:
        return True
    if ours.digest is not None or theirs.digest is not None:
        return ours.digest == theirs.digest
    return bool(msgspec.json.decode(ours.data) == msgspec.json.decode(theirs.data))


def _info(failed: Record) -> attempts.ErrorInfo:
    """Return the error of a failed task; in a chain of failed inputs, the error of the first."""
    if failed.payload is None or failed.payload.media_type != attempts.ERROR:
        return failed.error_info()
    info = msgspec.msgpack.decode(failed.payload.data, type=attempts.ErrorInfo)
    if failed.reason == Reason.INPUT_FAILED and info.cause is not None:
        return info.cause
    return info


def _loop_runs() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
