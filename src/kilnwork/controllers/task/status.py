"""The status of a Task, and the decision when to write a changed status.

No I/O. Used by `plan` and `reconciler`. The journal is the authority: a status is created from the
hub's view of the task, or from the reason why the hub does not have it yet.

Conditions: `Started` (an attempt of this run has started its command); `Finished` (the run has
finished); `Suspended` as for batch Jobs (no attempt starts; False after it was resumed); `Stopped`
(no process of the task runs any more) after a kill, and after a loss while that is uncertain;
`FieldsIgnored` if fields of the spec have no effect; `ImageIgnored` if its image has none.
"""

import msgspec

from kilnwork.api import attempts, kind_field_effects, kinds, meta, reasons, task
from kilnwork.controllers import status_result_field
from kilnwork.dispatch import model
from kilnwork.executors.pod import template
from kilnwork.kit import clock

WAITING_HOLD_S = 0.5
"""Seconds for which a task waits before its reason is written: most tasks start sooner and need
no write."""

RUNNING_HOLD_S = 0.05
"""Seconds for which a task runs before that is written, if its status does not name the run yet: a
shorter task needs only the write of its end."""

POD_SETTLE_S = 0.2
"""Seconds for which changes of a Pod are collected for one pass; nothing would be written
earlier."""

POD_START_HOLD_S = 0.7
"""Like `WAITING_HOLD_S`, while the Pod of an attempt starts. Counted after `POD_SETTLE_S`: most
Pods on a local node have started by then."""

POD_RUNNING_HOLD_S = 0.2
"""Like `RUNNING_HOLD_S`, if the attempt is a Pod. Counted after `POD_SETTLE_S` and the delay of the
executor, which observes the end of a Pod some hundred milliseconds late."""

MINOR_HOLD_S = 5.0
"""Seconds between writes of minor changes: counts of children."""

_PODS = task.executor_queue(template.EXECUTOR)
_WAITING = frozenset({task.State.PENDING, task.State.STAGING})
_CHATTY = frozenset(
    {reasons.Reason.NO_FREE_SLOT, reasons.Reason.STARTING, reasons.Reason.TAKEN_BACK}
)
"""Reasons whose message contains a queue position, which may become stale and is not updated."""


class Explanation(msgspec.Struct, frozen=True):
    """A reason, and a message with the facts."""

    reason: str
    message: str


class StatusHold(msgspec.Struct, frozen=True):
    """A change of the status that is held back before it is written.

    `sort`: the class of the change; `since`: when it was first held back (monotonic seconds).
    """

    sort: str
    since: float


class Announcement(msgspec.Struct, frozen=True):
    """A kube event about a task. `type`: Normal or Warning."""

    type: str
    reason: str
    message: str


def _earlier_loss(view: model.TaskView) -> str:
    """Return a sentence about the loss of an earlier attempt, for a running attempt; "" if none was
    lost.
    """
    running = view.state is task.State.RUNNING and view.loss
    return f"an attempt before was lost ({view.loss})" if running else ""


def without_view(
    seen: task.Task, state: task.State, why: Explanation, *, now: float
) -> task.TaskStatus:
    """Return the status of a Task whose run the dispatcher does not have: it waits, or has
    ended.
    """
    before = seen.status
    same_run = before.run == seen.spec.run
    wanted = task.TaskStatus(
        state=state,
        reason=str(why.reason),
        message=why.message,
        run=seen.spec.run,
        finish_time=clock.rfc3339(now) if state.final else None,
        observed_generation=seen.metadata.generation,
    )
    if state.final and same_run and before.state == state and before.finish_time:
        wanted = msgspec.structs.replace(wanted, finish_time=before.finish_time)
    return _with_conditions(seen, wanted, stopped=None, now=now)


def from_view(
    seen: task.Task,
    view: model.TaskView,
    *,
    why: Explanation,
    output_object: str,
    image: meta.Condition | None = None,
    now: float,
) -> task.TaskStatus:
    """Return the status of a Task, derived from the hub's view of its run, with the reason and the
    message of `why`.

    `image`: the condition `ImageIgnored`; None if the task does not have it.
    """
    wanted = task.TaskStatus(
        state=view.state,
        reason=str(why.reason),
        message=why.message or _earlier_loss(view),
        run=view.run,
        attempts=view.attempts,
        losses=view.losses,
        pod_name=view.worker or _own_pod(view),
        node_name=view.node or "",
        exit_code=view.exit_code,
        result=status_result_field.result_for_status(view.result),
        output_object=output_object,
        start_time=None if view.started is None else clock.rfc3339(view.started),
        finish_time=None if view.finished is None else clock.rfc3339(view.finished),
        children=view.children if view.children.total else None,
        observed_generation=seen.metadata.generation,
    )
    return _with_conditions(seen, wanted, stopped=view.stopped, image=image, now=now)


def is_pod(view: model.TaskView | None) -> bool:
    """Return whether each attempt of a task is a Pod of its own."""
    return view is not None and view.cluster == _PODS


def _own_pod(view: model.TaskView) -> str:
    """Return the name of the newest attempt's Pod if executor `pod` runs it."""
    if not is_pod(view) or not view.attempt:
        return ""
    ref = attempts.AttemptRef(view.task, view.run, view.attempt)
    return template.pod_name(view.name, ref)


def _with_conditions(
    seen: task.Task,
    wanted: task.TaskStatus,
    *,
    stopped: bool | None,
    image: meta.Condition | None = None,
    now: float,
) -> task.TaskStatus:
    state = task.State(wanted.state)
    started = wanted.start_time is not None
    new = [
        _condition(seen, "Started", "True" if started else "False", _started(wanted, started)),
        _condition(
            seen,
            "Finished",
            "True" if state.final else "False",
            Explanation(wanted.reason, wanted.message),
        ),
    ]
    if state.final and (state is task.State.KILLED or stopped is False):
        proved = stopped is not False
        why = Explanation(wanted.reason, "") if proved else _unconfirmed()
        new.append(_condition(seen, "Stopped", "True" if proved else "Unknown", why))
    suspended = None if state.final else _suspended(seen, wanted)
    generation = seen.metadata.generation
    ignored = kind_field_effects.ignored(kinds.TASKS.kind, seen.spec, generation=generation)
    new += [condition for condition in (suspended, ignored, image) if condition is not None]
    known = {c.type for c in new}
    before = tuple(c for c in seen.status.conditions if c.type in known)
    if seen.status.run != wanted.run:
        before = ()
    merged = meta.merge_conditions(before, tuple(new), now=clock.rfc3339(now))
    return msgspec.structs.replace(wanted, conditions=merged)


def _started(wanted: task.TaskStatus, started: bool) -> Explanation:  # noqa: FBT001 - reads as a word
    return (
        Explanation(reasons.Reason.STARTED, "")
        if started
        else Explanation(wanted.reason, wanted.message)
    )


def _suspended(seen: task.Task, wanted: task.TaskStatus) -> meta.Condition | None:
    """Return the condition `Suspended`, or None if this run was never suspended."""
    if seen.spec.suspend:
        why = Explanation(reasons.Reason.SUSPENDED, "spec.suspend is true: no attempt starts")
        if wanted.start_time is not None:
            why = Explanation(reasons.Reason.SUSPENDED, f"{why.message}; one that runs goes on")
        return _condition(seen, "Suspended", "True", why)
    if seen.status.run == wanted.run and any(c.type == "Suspended" for c in seen.status.conditions):
        return _condition(seen, "Suspended", "False", Explanation(wanted.reason, "it was resumed"))
    return None


def _unconfirmed() -> Explanation:
    return Explanation(reasons.Reason.UNCONFIRMED, reasons.Reason.UNCONFIRMED.sentence)


def _condition(seen: task.Task, kind: str, value: str, why: Explanation) -> meta.Condition:
    return meta.Condition(
        type=kind,
        status=value,
        reason=str(why.reason),
        message=why.message,
        observed_generation=seen.metadata.generation,
    )


def settle(current: task.TaskStatus, wanted: task.TaskStatus) -> task.TaskStatus:
    """Return the status `wanted` without changes that are not worth a write: messages with another
    position in the queue.
    """
    if _visible_fields(current) != _visible_fields(wanted) or wanted.reason not in _CHATTY:
        return wanted
    return msgspec.structs.replace(wanted, message=current.message, conditions=current.conditions)


def hold(
    current: task.TaskStatus,
    wanted: task.TaskStatus,
    *,
    held: StatusHold | None,
    now: float,
    is_pod: bool = False,
) -> tuple[StatusHold | None, float | None]:
    """Decide when to write the status `wanted`: return the hold to remember, and the seconds to
    wait.

    0 means now, None that there is nothing to write. `now`: monotonic seconds. Reasons for waiting
    are written after `WAITING_HOLD_S` (design: each waiting object shows its reason within a
    second), Running after `RUNNING_HOLD_S` (after `WAITING_HOLD_S` if a reason for waiting was
    written), ends immediately. `is_pod`: whether the attempt is a Pod, which takes longer.
    """
    if current == wanted:
        return None, None
    sort, delay_s = _classify(current, wanted, is_pod=is_pod)
    if held is None or held.sort != sort:
        held = StatusHold(sort, now)
    return held, max(0.0, held.since + delay_s - now)


def _classify(
    current: task.TaskStatus, wanted: task.TaskStatus, *, is_pod: bool
) -> tuple[str, float]:
    if _visible_fields(current) == _visible_fields(wanted):
        return "minor", MINOR_HOLD_S
    state = task.State(wanted.state)
    if state.final:
        return "final", 0.0
    if is_pod and wanted.reason == reasons.Reason.STARTING:
        return f"starting/{wanted.run}", POD_START_HOLD_S
    if state in _WAITING:
        return f"waiting/{wanted.run}", WAITING_HOLD_S
    if is_pod:
        return f"running/{wanted.run}", POD_RUNNING_HOLD_S
    reported = current.run == wanted.run and current.state != ""
    return f"running/{wanted.run}", WAITING_HOLD_S if reported else RUNNING_HOLD_S


def _visible_fields(status: task.TaskStatus) -> tuple[object, ...]:
    """Return the fields of a status in which a change matters to a waiting client."""
    message = "" if status.reason in _CHATTY else status.message
    conditions = frozenset((c.type, c.status) for c in status.conditions)
    return (
        status.run,
        status.state,
        status.reason,
        message,
        status.attempts,
        status.pod_name,
        status.output_object,
        status.observed_generation,
        conditions,
    )


def announcement(
    current: task.TaskStatus, wanted: task.TaskStatus, *, loss: str = ""
) -> Announcement | None:
    """Return the kube event for the change from the status `current` to `wanted`; None if the
    change gets none.

    `loss`: why the newest lost attempt was lost.
    """
    if (current.run, current.state, current.reason, current.attempts) == (
        wanted.run,
        wanted.state,
        wanted.reason,
        wanted.attempts,
    ):
        return None
    if wanted.state == task.State.FAILED or wanted.reason == reasons.Reason.RETRY_BACKOFF:
        return Announcement("Warning", wanted.reason, wanted.message)
    if wanted.state == task.State.KILLED:
        return Announcement(
            "Normal", wanted.reason, wanted.message or reasons.Reason.KILLED.sentence
        )
    if current.run == wanted.run and wanted.losses > current.losses:
        return Announcement("Warning", "AttemptLost", _describe_loss(current, loss))
    return None


def _describe_loss(before: task.TaskStatus, why: str) -> str:
    """Return a message why the newest attempt was lost.

    There is no delay after the first loss, so that possibly no status between the attempts names
    it.
    """
    where = f" in Pod {before.pod_name} (node {before.node_name})" if before.pod_name else ""
    cause = f" ({why})" if why else ""
    return f"attempt {before.attempts or 1}{where} was lost{cause}: the task runs again"
