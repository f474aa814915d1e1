"""Tasks that depend on other tasks: they take their results, or have delegated to them. No I/O.

Used by `machine`, `call_reports`, `submissions` and `journal.restore`. No task is started or
finished in the middle of another decision: ends are collected in memory and passed on by `settle`,
so that a chain of a million failing dependents is a loop rather than a recursion.
"""

import contextlib
from collections.abc import Iterable, Mapping

import msgspec

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, memory, records, task_ends, task_starts, waits
from kilnwork.kit import ids

_S = api_task.State
_R = reasons.Reason

MAX_VALUES_BYTES = 256 * 1024
"""Maximum total bytes of the results that are sent along with a call; the slot fetches the
others.
"""

_decode_error = msgspec.msgpack.Decoder(attempts.ErrorInfo).decode
_encode = msgspec.msgpack.Encoder().encode


def attach(
    mem: memory.Memory, task: records.Task, values: Mapping[ids.TaskId, calls.Value]
) -> None:
    """Make a call depend on the tasks in `task.needs`, whose results it takes.

    The ends of tasks that are not in memory are in `values`.
    """
    mem.pins.pin(task.needs)
    for name in dict.fromkeys(task.needs):
        needed = mem.tasks.get(name)
        # A call that needs itself, or a task of another namespace, gets the same as for an unknown
        # id.
        if needed is None or needed is task or needed.namespace != task.namespace:
            # A row that is being deleted can still be read now, but not after a restart.
            known = None if mem.pins.is_retiring(name) else values.get(name)
            _take(task, known or _missing(name))
        elif needed.state.final:
            _take(task, value(needed))
        else:
            task.unmet += 1
            _depend(needed, task)


def _depend(needed: records.Task, task: records.Task) -> None:
    if needed.dependents is None:
        needed.dependents = [task]
    else:
        needed.dependents.append(task)


def value(task: records.Task) -> calls.Value:
    """Return the outcome of a task in a final state, with its result or error."""
    return calls.Value(task.id, task.state, task.reason, task.message, task.result)


def outcome(mem: memory.Memory, task: records.Task, name: ids.TaskId) -> calls.Value | None:
    """Return the outcome of the task to which `task` has just delegated, or None.

    Returns None if that task is not in memory, is not final, or is in another namespace.
    That task may be forgotten before `settle` looks for it.
    """
    target = mem.tasks.get(name)
    if target is None or not target.state.final or target.namespace != task.namespace:
        return None
    return value(target)


def _missing(task: ids.TaskId) -> calls.Value:
    message = "there is no such task in this namespace, or it was forgotten"
    return calls.Value(task, _S.PENDING, "", message)


def _take(task: records.Task, needed: calls.Value) -> None:
    """Keep the result of a needed task for the attempts of `task`, unless it is too large to be
    sent.

    The first input that failed decides the end of `task`.
    """
    # A task that is not known counts as failed; its state here is Pending.
    if needed.state is not _S.SUCCESS and task.failed_input is None:
        task.failed_input = needed
    if task.values is None:
        task.values = {}
    size = 0 if needed.payload is None else len(needed.payload.data)
    if task.values_bytes + size <= MAX_VALUES_BYTES:
        task.values[needed.task] = needed
        task.values_bytes += size


def failed_input(task: records.Task) -> calls.Value | None:
    """Return the failed input that keeps a call from running, or None if the call accepts failed
    inputs.
    """
    if task.failed_input is None or task.template is None or task.template.accept_failures:
        return None
    return task.failed_input


def fail(mem: memory.Memory, task: records.Task, needed: calls.Value, now: inputs.Moment) -> None:
    """Fail a task that cannot run because an input failed.

    The error of the input becomes the cause of the task's own error.
    """
    how = "is not known" if needed.state is _S.PENDING else f"ended {needed.state.value}"
    message = f"input {ids.task_text(needed.task)} {how}"
    detail = f"{needed.reason}: {needed.message}".strip(": ")
    if needed.reason == _R.INPUT_FAILED:
        detail = needed.reason
    if detail:
        message = f"{message} ({detail})"
    info = attempts.ErrorInfo("kilnwork.InputFailed", message, "", cause=_cause(needed))
    task.result = attempts.Payload(attempts.ERROR, _encode(info))
    task_ends.finish(mem, task, now, state=_S.FAILED, reason=_R.INPUT_FAILED, message=message)


def _cause(needed: calls.Value) -> attempts.ErrorInfo | None:
    """Return the error of a failed input; for an input without one, an error made from its end.

    In a chain of inputs that failed because of one another, only the first error is kept.
    """
    payload = needed.payload
    if payload is not None and payload.media_type == attempts.ERROR and payload.digest is None:
        # User code wrote it, so it may be anything, and nested to any depth.
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            info = _decode_error(payload.data)
            return info.cause if needed.reason == _R.INPUT_FAILED and info.cause else info
    if needed.state is _S.PENDING:
        return None
    kind = "kilnwork.Cancelled"
    if needed.state is not _S.KILLED:
        kind = _KINDS.get(needed.reason, "kilnwork.TaskFailed")
    return attempts.ErrorInfo(kind, needed.message or needed.reason, "")


_KINDS = {
    _R.TIMED_OUT.value: "kilnwork.TaskTimedOut",
    _R.PENDING_TIMED_OUT.value: "kilnwork.TaskTimedOut",
    _R.TOTAL_TIMED_OUT.value: "kilnwork.TaskTimedOut",
    _R.LOST_TOO_OFTEN.value: "kilnwork.TaskLost",
    _R.INPUT_FAILED.value: "kilnwork.InputFailed",
}
"""Error classes of the SDK, by the reason of a task that has no error of its own."""


def settle(mem: memory.Memory, now: inputs.Moment) -> None:
    """Pass the collected ends of tasks on to all tasks that depend on them, transitively."""
    while mem.ended or mem.delegating:
        # Swapped before the loop: each end may add to either.
        delegating, mem.delegating = mem.delegating, {}
        for task, known in delegating.items():
            _link(mem, task, known, now)
        ended, mem.ended = mem.ended, []
        for needed in ended:
            dependents, needed.dependents = needed.dependents or (), None
            outcome = value(needed)
            for task in dependents:
                _pass_on(mem, task, outcome, now)


def _link(
    mem: memory.Memory, task: records.Task, known: calls.Value | None, now: inputs.Moment
) -> None:
    """Let a task that has returned a future follow the future's task, or take its outcome at
    once.
    """
    name = task.delegate
    # It may have been killed since, in the same batch.
    if name is None or task.state.final:
        return
    target = mem.tasks.get(name)
    # Not even its existence may show: the task counts as unknown.
    if target is not None and target.namespace != task.namespace:
        target = known = None
    if target is None:
        _adopt(mem, task, known or _missing(name), now)
    elif waits.find_cycle(mem, task, (name,)) is not None:
        message = "it returned a future that depends on its own outcome"
        task_ends.finish(mem, task, now, state=_S.FAILED, reason=_R.INPUT_FAILED, message=message)
    elif target.state.final:
        _adopt(mem, task, value(target), now)
    else:
        _depend(target, task)
        waits.follow(mem, task, name)


def _pass_on(
    mem: memory.Memory,
    task: records.Task,
    outcome: calls.Value,
    now: inputs.Moment,
) -> None:
    if task.state.final:
        return
    # Before `unmet`: a task that has delegated takes no inputs any more.
    if task.delegate == outcome.task:
        _adopt(mem, task, outcome, now)
        return
    task.unmet -= 1
    _take(task, outcome)
    if task.unmet == 0:
        _start(mem, task, now)


def _start(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Queue a task whose inputs have all ended, or fail it because of one of them."""
    needed = failed_input(task)
    if needed is not None:
        fail(mem, task, needed, now)
    else:
        mem.mark(task)
        task_starts.enqueue(mem, task)


def _adopt(
    mem: memory.Memory,
    task: records.Task,
    outcome: calls.Value,
    now: inputs.Moment,
) -> None:
    """Finish the task in the same way as the task to which it delegated."""
    state, reason, message = outcome.state, outcome.reason, outcome.message
    task.result = outcome.payload
    if state is _S.PENDING:
        state, reason = _S.FAILED, _R.INPUT_FAILED
        message = f"it returned the future of {ids.task_text(outcome.task)}: {message}"
    elif state is _S.KILLED:
        # The state table has no other way to Killed.
        mem.move(task, _S.KILLING)
        task.stopped = reason != _R.UNCONFIRMED
    task_ends.finish(mem, task, now, state=state, reason=reason, message=message)


def missing(mem: memory.Memory) -> set[ids.TaskId]:
    """Return the tasks on which tasks in memory depend and that are not in memory after a start.

    These tasks are final.
    """
    names = set[ids.TaskId]()
    for task in mem.tasks.values():
        names.update(task.needs)
        if task.delegate is not None:
            names.add(task.delegate)
    return names.difference(mem.tasks)


def restore(mem: memory.Memory, values: Mapping[ids.TaskId, calls.Value]) -> None:
    """Restore all dependencies after a start, when all tasks are in memory."""
    for task in list(mem.tasks.values()):
        if task.needs:
            attach(mem, task, values)
        # The first `settle` links it, after all tasks are in memory.
        if task.delegate is not None and not task.held:
            mem.delegating[task] = values.get(task.delegate)


def ready(mem: memory.Memory, tasks: Iterable[records.Task], now: inputs.Moment) -> None:
    """Queue or fail those of the new calls whose inputs have all ended; the other calls wait."""
    for task in tasks:
        if task.unmet:
            task_starts.enqueue(mem, task)
        else:
            _start(mem, task, now)
