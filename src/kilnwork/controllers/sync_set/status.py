"""The status of a SyncSet, and the decision when to write a changed status.

No I/O. Used by `plan` and `reconciler`. Conditions: `SnapshotPinned`, `DataReady`, `GangReady`,
`FlowRunning`, `Succeeded`; the last one is Unknown until the newest generation has finished.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import attempts, kinds, meta, reasons, sync_set, task
from kilnwork.controllers import status_result_field
from kilnwork.controllers.gangs import port
from kilnwork.jobs.flows import run_types as flow_model
from kilnwork.kit import clock

MINOR_HOLD_S = 1.0
"""Minimum seconds between writes of step and byte counts, which change with each task."""

WAITING_HOLD_S = 0.3
"""Seconds for which a wait is held back before it is written: a shorter wait needs no write."""

MAX_MESSAGE = 2_048

Reason = reasons.SetReason
_P = sync_set.Phase


class Explanation(NamedTuple):
    """A reason, and a message with the facts."""

    reason: str
    message: str


class StatusContent(msgspec.Struct, frozen=True):
    """The content of the next status. A field that is None keeps the value of the current status of
    the generation.
    """

    phase: sync_set.Phase
    why: Explanation
    snapshots: Mapping[str, sync_set.SnapshotStatus] | None = None
    pinned: bool | None = None
    """Whether all digests are known."""
    data: tuple[bool, Explanation] | None = None
    """Whether nodes have the data, and why not."""
    gang: port.GangState | None = None
    flow: flow_model.FlowRunView | None = None
    outputs: Mapping[str, sync_set.OutputStatus] | None = None


class Announcement(NamedTuple):
    """A kube event about a SyncSet. `type`: Normal or Warning."""

    type: str
    reason: str
    message: str


def admit(
    seen: sync_set.SyncSet, *, backend: sync_set.Backend | None, now: float
) -> sync_set.SyncSet:
    """Return the SyncSet with the status of a generation that was just admitted."""
    spec = seen.spec
    fresh = sync_set.SyncSetStatus(
        generation=spec.generation,
        run=spec.run,
        replay_of=spec.replay_of,
        admission_time=clock.rfc3339(now),
        backend_ref=None if backend is None else _backend_ref(seen, backend),
        generations=_history(seen),
    )
    begun = msgspec.structs.replace(seen, status=fresh)
    if spec.data.snapshots or spec.replay_of is not None:
        why = Explanation(Reason.PINNING, "sources are to be read")
    else:
        why = Explanation(Reason.NO_DATA, "")
    shown = StatusContent(_P.PENDING, why, pinned=False if why.reason == Reason.PINNING else None)
    return msgspec.structs.replace(begun, status=make(begun, shown, now=now))


def start_next_run(seen: sync_set.SyncSet, *, now: float) -> sync_set.SyncSetStatus:
    """Return the status of a generation whose next run was just started."""
    own = seen.spec.generation
    fresh = msgspec.structs.replace(
        seen.status,
        run=seen.spec.run,
        admission_time=clock.rfc3339(now),
        generations=tuple(one for one in seen.status.generations if one.generation != own),
    )
    why = Explanation(Reason.RETRYING, f"run {seen.spec.run}: what failed is to run again")
    shown = StatusContent(_P.PENDING, why, data=(False, why))
    return make(msgspec.structs.replace(seen, status=fresh), shown, now=now)


def refuse_run(seen: sync_set.SyncSet, why: str) -> sync_set.SyncSetStatus:
    """Return the status of a finished generation whose requested run is refused."""
    shown = seen.status
    message = f"run {seen.spec.run} is refused, {why}"
    if shown.message:
        message = f"{shown.message}; {message}"
    return msgspec.structs.replace(observed(seen), run=seen.spec.run, message=message[:MAX_MESSAGE])


def _backend_ref(seen: sync_set.SyncSet, backend: sync_set.Backend) -> sync_set.BackendRef:
    name, generation = seen.metadata.name, seen.spec.generation
    return sync_set.BackendRef(
        backend=str(backend),
        kind=kinds.TASK_CLUSTERS.kind,
        names=tuple(
            f"{name}-g{generation}-{group.name}" for group in seen.spec.resources.every_group
        ),
    )


def _history(seen: sync_set.SyncSet) -> tuple[sync_set.GenerationStatus, ...]:
    """Return the generations that can be replayed: the newest ones whose flow has started."""
    before, kept = seen.status, seen.status.generations
    if before.start_time and all(one.generation != before.generation for one in kept):
        kept = (_generation_status(before), *kept)
    return kept[: seen.spec.keep.generations]


def _generation_status(shown: sync_set.SyncSetStatus) -> sync_set.GenerationStatus:
    return sync_set.GenerationStatus(
        generation=shown.generation,
        phase=shown.phase,
        replay_of=shown.replay_of,
        finish_time=shown.finish_time,
        digests={name: one.digest for name, one in shown.snapshots.items()},
        outputs={name: one.digest for name, one in shown.outputs.items()},
    )


def make(seen: sync_set.SyncSet, shown: StatusContent, *, now: float) -> sync_set.SyncSetStatus:
    """Return the status of a SyncSet with this content."""
    before, flow = seen.status, shown.flow
    final = shown.phase.final
    finished = before.finish_time or clock.rfc3339(now) if final else None
    if final and flow is not None and flow.finished is not None:
        finished = clock.rfc3339(flow.finished)
    snapshots = before.snapshots if shown.snapshots is None else dict(shown.snapshots)
    wanted = msgspec.structs.replace(
        before,
        phase=str(shown.phase),
        reason=str(shown.why.reason),
        message=shown.why.message[:MAX_MESSAGE],
        start_time=before.start_time if flow is None else clock.rfc3339(flow.started),
        finish_time=finished,
        snapshots=snapshots,
        groups=_groups(seen, shown.gang),
        flow=before.flow if flow is None else _flow(flow),
        result=_result(flow.value) if flow is not None and shown.phase is _P.SUCCEEDED else None,
        outputs=before.outputs if shown.outputs is None else dict(shown.outputs),
        data_ready=_data_ready(snapshots),
        gang=before.gang if shown.gang is None else _gang_text(shown.gang),
        progress=before.progress if flow is None else _progress(flow),
        observed_generation=seen.metadata.generation,
        conditions=meta.merge_conditions(
            before.conditions, _conditions(seen, shown), now=clock.rfc3339(now)
        ),
    )
    if final and wanted.start_time:
        history = _history(msgspec.structs.replace(seen, status=wanted))
        wanted = msgspec.structs.replace(wanted, generations=history)
    return wanted


def observed(seen: sync_set.SyncSet) -> sync_set.SyncSetStatus:
    """Return the current status, with the object generation that was observed, and without
    generations beyond `keep.generations`.
    """
    current = seen.status.generations[: seen.spec.keep.generations]
    return msgspec.structs.replace(
        seen.status, observed_generation=seen.metadata.generation, generations=current
    )


def is_pinned(shown: sync_set.SyncSetStatus) -> bool:
    """Return whether the status says that all digests are known."""
    return any((c.type, c.status) == ("SnapshotPinned", "True") for c in shown.conditions)


def _groups(seen: sync_set.SyncSet, gang: port.GangState | None) -> dict[str, sync_set.GroupStatus]:
    if gang is None:
        return seen.status.groups
    name, generation = seen.metadata.name, seen.status.generation
    return {
        group: sync_set.GroupStatus(
            cluster=f"{name}-g{generation}-{group}",
            desired=found.desired,
            min=found.min,
            gated=found.gated,
            ready=found.ready,
        )
        for group, found in gang.groups.items()
    }


def _flow(flow: flow_model.FlowRunView) -> sync_set.FlowStatus:
    steps = {
        name: sync_set.StepStatus(
            state=str(step.state),
            total=step.total,
            succeeded=step.succeeded,
            failed=step.failed,
            running=step.running,
            reused=step.reused,
        )
        for name, step in flow.steps.items()
    }
    return sync_set.FlowStatus(steps=steps)


def _result(value: Any) -> task.Result | None:
    """Return the result of a flow in the form of a task's result."""
    data = msgspec.json.encode(value)
    return status_result_field.result_for_status(attempts.Payload("application/json", data))


def _data_ready(snapshots: Mapping[str, sync_set.SnapshotStatus]) -> str:
    if not snapshots:
        return ""
    ready = min(one.nodes_ready for one in snapshots.values())
    return f"{ready}/{max(one.nodes_wanted for one in snapshots.values())}"


def _gang_text(gang: port.GangState) -> str:
    ready = sum(group.ready for group in gang.groups.values())
    return f"{ready}/{sum(group.desired for group in gang.groups.values())}"


def _progress(flow: flow_model.FlowRunView) -> str:
    done = sum(step.succeeded for step in flow.steps.values())
    return f"{done}/{sum(step.total for step in flow.steps.values())}"


# Conditions


_NO_WORKERS = Explanation(Reason.WAITING_FOR_WORKERS, "workers are not made yet")
_NOT_OF_WORKERS = frozenset({Reason.NO_DATA, Reason.PINNED})
"""Reasons that are unrelated to waiting for workers."""


def _conditions(seen: sync_set.SyncSet, shown: StatusContent) -> tuple[meta.Condition, ...]:
    found: list[meta.Condition] = []

    def say(kind: str, value: bool | None, why: Explanation) -> None:  # noqa: FBT001 - the value
        found.append(
            meta.Condition(
                type=kind,
                status="Unknown" if value is None else str(value),
                reason=str(why.reason) or str(shown.phase),
                message=why.message[:MAX_MESSAGE],
                observed_generation=seen.metadata.generation,
            )
        )

    known = {c.type for c in seen.status.conditions}
    has_data = bool(seen.spec.data.snapshots) or seen.status.replay_of is not None
    no_data = Explanation(Reason.NO_DATA, "it has no snapshots")
    pinning = shown.why if shown.phase is _P.PENDING else Explanation(Reason.PINNING, "")
    if not has_data:
        say("SnapshotPinned", True, no_data)
        say("DataReady", True, no_data)
    else:
        if shown.pinned is not None or "SnapshotPinned" not in known:
            why = Explanation(Reason.PINNED, _digests(shown)) if shown.pinned else pinning
            say("SnapshotPinned", bool(shown.pinned), why)
        if shown.data is not None:
            say("DataReady", *shown.data)
        elif "DataReady" not in known:
            say("DataReady", False, pinning)
    if shown.gang is not None:
        say("GangReady", shown.gang.ready, Explanation(shown.gang.reason, shown.gang.message))
    elif shown.flow is None and not shown.phase.final:
        silent = shown.why.reason in _NOT_OF_WORKERS
        say("GangReady", False, _NO_WORKERS if silent else shown.why)
    elif "GangReady" not in known:
        say("GangReady", False, shown.why)
    running = shown.flow is not None and not shown.flow.phase.final and not shown.phase.final
    say("FlowRunning", running, shown.why)
    say("Succeeded", shown.phase is _P.SUCCEEDED if shown.phase.final else None, shown.why)
    return tuple(found)


def _digests(shown: StatusContent) -> str:
    return ", ".join(f"{name} {one.digest}" for name, one in (shown.snapshots or {}).items())


# Writing


def wait_s(
    current: sync_set.SyncSetStatus,
    wanted: sync_set.SyncSetStatus,
    *,
    written: float | None,
    differs_since: float,
    now: float,
) -> float | None:
    """Return in how many seconds the status `wanted` may be written: 0 for now, None if it equals
    the current one.

    `written`: when this object was last written; `differs_since`: since when there is a difference;
    both in monotonic seconds.
    """
    if current == wanted:
        return None
    if _decisive_fields(current) != _decisive_fields(wanted) or written is None:
        return 0.0
    if _class(current) != _class(wanted):
        return max(0.0, differs_since + WAITING_HOLD_S - now)
    return max(0.0, written + MINOR_HOLD_S - now)


def _decisive_fields(shown: sync_set.SyncSetStatus) -> tuple[object, ...]:
    """Return the fields of a status on which other decisions depend, such as digests, which are
    used only after they are written.
    """
    final = shown.phase if shown.phase and _P(shown.phase).final else ""
    return (
        shown.generation,
        final,
        is_pinned(shown),
        tuple((name, one.digest) for name, one in shown.snapshots.items()),
        shown.start_time,
        len(shown.generations),
    )


def _class(shown: sync_set.SyncSetStatus) -> tuple[object, ...]:
    return (
        shown.phase,
        shown.reason,
        shown.observed_generation,
        tuple((c.type, c.status, c.reason) for c in shown.conditions),
    )


def announcement(
    current: sync_set.SyncSetStatus, wanted: sync_set.SyncSetStatus
) -> Announcement | None:
    """Return the kube event for the change from the status `current` to `wanted`; None if the
    change gets none.

    Waits get one only when they are long (`wait_events`).
    """
    if (current.generation, current.phase) == (wanted.generation, wanted.phase):
        return None
    phase = _P(wanted.phase)
    if phase in (_P.FAILED, _P.ADMISSION_ERROR):
        return Announcement("Warning", wanted.reason, wanted.message)
    if phase.final or phase in (_P.RUNNING, _P.SUSPENDED, _P.KILLING):
        return Announcement("Normal", wanted.reason, wanted.message)
    return None
