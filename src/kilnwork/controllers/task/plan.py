"""The plan for one Task: pure decisions from the known facts.

Used by `reconciler`, which gathers `Facts` and carries out the `Plan`. The checks are made in this
order: is the object gone, has the run finished, must it be killed, is anything missing, may it be
submitted. Once the dispatcher has the task, its view decides everything but kills.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.api import attempts, input_assembly, reasons, task, task_cluster, task_validation
from kilnwork.controllers.task import own_container_choice, status
from kilnwork.dispatch import model
from kilnwork.kit import clock, ids

Reason = reasons.Reason

IMAGE_LOOK_S = 1.0
"""Seconds between checks for the first worker of a cluster: changes of Pods do not wake Tasks."""


class Ready(msgspec.Struct, frozen=True):
    """State of an input whose data exists."""

    value: Any


class Missing(msgspec.Struct, frozen=True):
    """State of an input whose data does not exist yet; `message` says what it waits for."""

    message: str


class Broken(msgspec.Struct, frozen=True):
    """State of an input whose data will never exist, because its task ended without a usable
    result.
    """

    message: str


Found = Ready | Missing | Broken


class Wake(msgspec.Struct, frozen=True):
    """An object in the task's namespace for which the task waits: a change of it may end the
    wait.
    """

    kind: str
    name: str


class Kill(msgspec.Struct, frozen=True):
    """An order to the dispatcher to kill a task."""

    task: ids.TaskId
    reason: str
    message: str = ""


class Output(msgspec.Struct, frozen=True):
    """The TaskObject with the result, which is created before the status names it.

    `obstacle`: why it cannot be created from the result; "" if it can.
    """

    name: str
    data: Any = None
    obstacle: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All known facts about one Task."""

    task: task.Task | None
    view: model.TaskView | None
    """The dispatcher's view of this object (by uid)."""
    strays: tuple[ids.TaskId, ...] = ()
    """Tasks of this name that the dispatcher still has although their objects are gone."""
    cluster: task_cluster.TaskCluster | None = None
    workers: own_container_choice.WorkerImage | None = None
    """Image of the workers of `cluster`; None before a worker has a container."""
    sources: Mapping[input_assembly.InputSource, Found] = {}
    """State of each input."""
    output_made: str | None = None
    """Name of the TaskObject with the result of this run: None before its creation was tried, "" if
    it cannot be created."""
    refused: bool = False
    """Whether the dispatcher does not accept `spec.run` because the previous run succeeded."""
    unfit: str = ""
    """Why the dispatcher can never accept this spec; "" if it can."""
    pending_since: float = 0.0
    """Since when the run waits for its start (wall clock, in seconds)."""
    now: float = 0.0
    """Wall clock, in seconds."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions to take for one Task; repeating them changes nothing."""

    kills: tuple[Kill, ...] = ()
    suspend: bool | None = None
    """Whether to suspend or resume the task in the dispatcher; None leaves it unchanged."""
    submit: model.Submission | None = None
    force: bool = False
    """Whether to run again even after a success."""
    resume: bool = False
    """Whether to keep the children of the previous run."""
    output: Output | None = None
    status: task.TaskStatus | None = None
    delete: bool = False
    wakes: frozenset[Wake] = frozenset()
    again_s: float | None = None
    """Seconds until the next pass, even without a change."""


def decide(facts: Facts) -> Plan:
    kills = tuple(_deleted(stray) for stray in facts.strays)
    seen = facts.task
    if seen is None:
        return Plan(kills=kills)
    if seen.metadata.deletion_timestamp is not None:
        return _plan_deletion(facts, seen, kills)
    run = _plan_run(facts, seen)
    return msgspec.structs.replace(run, kills=kills + run.kills)


def _deleted(task_id: ids.TaskId) -> Kill:
    return Kill(task_id, Reason.DELETED, "its Task object was deleted")


def result_of(source: task.Task, view: model.TaskView | None) -> Found:
    """Return the result of another Task in the form of an input."""
    name, wanted = source.metadata.name, source.spec.run
    if view is not None and view.run >= wanted and view.state.final:
        if view.state is task.State.SUCCESS:
            return decode_input(f"Task {name}", view.result)
        return Broken(f"Task {name} is {view.state}: {view.message or view.reason}")
    known = source.status
    if view is None and _is_finished(known, wanted):
        if known.state == task.State.SUCCESS:
            return input_from_status(f"Task {name}", known.result)
        return Broken(f"Task {name} is {known.state}: {known.message or known.reason}")
    return Missing(f"Task {name} has not succeeded yet")


def is_forced(seen: task.Task) -> bool:
    """Return whether the Task allows its current run although the previous run succeeded."""
    return seen.metadata.annotations.get(task.FORCE_ANNOTATION) == str(seen.spec.run)


def _plan_deletion(facts: Facts, seen: task.Task, kills: tuple[Kill, ...]) -> Plan:
    """Plan for a deleted Task that only a finalizer keeps: kill the task, and continue to write the
    status.
    """
    view = facts.view
    if view is None:
        return Plan(kills=kills)
    if view.state.final:
        return _plan_report(facts, seen, view, kills=kills)
    return _plan_report(facts, seen, view, kills=(*kills, _deleted(view.task)))


def _plan_run(facts: Facts, seen: task.Task) -> Plan:
    view, spec = facts.view, seen.spec
    if view is not None and view.run >= spec.run:
        return _plan_with_dispatcher(facts, seen, view)
    if _is_finished(seen.status, spec.run):
        return _plan_deletion_after_ttl(facts, seen, seen.status.finish_time)
    if view is not None and facts.refused:
        return _plan_with_dispatcher(facts, seen, view)
    if view is not None and not view.state.final:
        return _plan_replacement(facts, seen, view)
    return _plan_before_dispatcher(facts, seen)


def _plan_replacement(facts: Facts, seen: task.Task, view: model.TaskView) -> Plan:
    """Plan for a new run while the previous run is unfinished: kill the previous run first."""
    if view.state is task.State.KILLING:
        return _plan_report(facts, seen, view)
    kill = Kill(view.task, Reason.REPLACED, f"run {seen.spec.run} takes its place")
    return _plan_report(facts, seen, view, kills=(kill,))


def _is_finished(known: task.TaskStatus, run: int) -> bool:
    return known.run == run and bool(known.state) and task.State(known.state).final


def _plan_with_dispatcher(facts: Facts, seen: task.Task, view: model.TaskView) -> Plan:
    if view.state.final:
        return _plan_finished(facts, seen, view)
    kill_in = _kill_in(seen.spec, facts.now)
    if kill_in is not None and kill_in <= 0:
        message = f"killTimestamp {seen.spec.kill_timestamp} has come"
        kill = Kill(view.task, Reason.KILLED, message)
        heard = view.state is task.State.KILLING
        return _plan_report(facts, seen, view, kills=() if heard else (kill,))
    reported = _plan_report(facts, seen, view, again_s=kill_in)
    if view.suspended == seen.spec.suspend or view.state is task.State.KILLING:
        return reported
    return msgspec.structs.replace(reported, suspend=seen.spec.suspend)


def _plan_report(
    facts: Facts,
    seen: task.Task,
    view: model.TaskView,
    *,
    kills: tuple[Kill, ...] = (),
    again_s: float | None = None,
) -> Plan:
    why = _explain_view(view, facts.cluster)
    wakes = frozenset[Wake]()
    if view.reason == Reason.NO_WORKER:
        wakes = frozenset({Wake("TaskCluster", view.cluster)})
    shown = status.from_view(
        seen,
        view,
        why=why,
        output_object=facts.output_made or "",
        image=own_container_choice.ignored_condition(seen, facts.cluster, facts.workers),
        now=facts.now,
    )
    return Plan(kills=kills, status=shown, wakes=wakes, again_s=again_s)


def _plan_finished(facts: Facts, seen: task.Task, view: model.TaskView) -> Plan:
    reported = _plan_report(facts, seen, view)
    output = _output(facts, seen, view)
    finished = None if view.finished is None else clock.rfc3339(view.finished)
    rest = _plan_deletion_after_ttl(facts, seen, finished)
    return msgspec.structs.replace(
        reported, output=output, delete=rest.delete, again_s=rest.again_s
    )


def _output(facts: Facts, seen: task.Task, view: model.TaskView) -> Output | None:
    name = seen.spec.output_object
    if name is None or facts.output_made is not None or view.state is not task.State.SUCCESS:
        return None
    found = decode_input(f"Task {seen.metadata.name}", view.result)
    if isinstance(found, Ready):
        return Output(name, found.value)
    return Output(name, obstacle=found.message)


def _plan_deletion_after_ttl(facts: Facts, seen: task.Task, finish_time: str | None) -> Plan:
    """Plan for a finished run: delete the Task when its time to live has expired."""
    ttl = seen.spec.ttl_seconds_after_finished
    if ttl is None or finish_time is None:
        return Plan()
    left = clock.parse_rfc3339(finish_time) + ttl - facts.now
    return Plan(delete=True) if left <= 0 else Plan(again_s=left)


def _plan_before_dispatcher(facts: Facts, seen: task.Task) -> Plan:
    spec = seen.spec
    kill_in = _kill_in(spec, facts.now)
    if kill_in is not None and kill_in <= 0:
        message = f"killTimestamp {spec.kill_timestamp} came before it was started"
        return _plan_end(facts, seen, task.State.KILLED, status.Explanation(Reason.KILLED, message))
    if spec.suspend:
        why = status.Explanation(Reason.SUSPENDED, "spec.suspend is true")
        return _plan_wait(facts, seen, why, again_s=kill_in)
    late = _too_late(facts, spec)
    if late is not None:
        return _plan_end(facts, seen, task.State.FAILED, late)
    problems = task_validation.validate_task(seen)  # a real API server checks only our schema
    if problems:
        text = "; ".join(f"{field} {why}" for field, why in problems)
        return _plan_end(
            facts, seen, task.State.FAILED, status.Explanation(Reason.INVALID_SPEC, text)
        )
    again_s = _soonest(kill_in, _deadline_in(facts, spec))
    if spec.executor == task.WORKER and _is_gone(facts.cluster):
        wakes = frozenset({Wake("TaskCluster", spec.cluster_name)})
        return _plan_wait(facts, seen, _no_cluster(facts, seen), wakes=wakes, again_s=again_s)
    if (
        facts.cluster is not None
        and own_container_choice.needs_pod(spec, facts.cluster, facts.workers) is None
    ):
        wakes = frozenset({Wake("TaskCluster", spec.cluster_name)})
        again_s = _soonest(again_s, IMAGE_LOOK_S)
        return _plan_wait(facts, seen, _no_workers(spec), wakes=wakes, again_s=again_s)
    return _plan_with_inputs(facts, seen, again_s=again_s)


def _plan_with_inputs(facts: Facts, seen: task.Task, *, again_s: float | None) -> Plan:
    broken = [f for f in facts.sources.values() if isinstance(f, Broken)]
    if broken:
        why = status.Explanation(Reason.INPUT_FAILED, broken[0].message)
        return _plan_end(facts, seen, task.State.FAILED, why)
    missing = {s: f for s, f in facts.sources.items() if isinstance(f, Missing)}
    if missing:
        wakes = frozenset(Wake(s.kind, s.name) for s in missing)
        return _plan_wait(facts, seen, _no_input(missing), wakes=wakes, again_s=again_s)
    if facts.unfit:
        why = status.Explanation(Reason.INVALID_SPEC, facts.unfit)
        return _plan_end(facts, seen, task.State.FAILED, why)
    values = {s: f.value for s, f in facts.sources.items() if isinstance(f, Ready)}
    try:
        document = input_assembly.assemble(seen.spec, values)
    except input_assembly.InputError as error:
        why = status.Explanation(error.reason, str(error))
        return _plan_end(facts, seen, task.State.FAILED, why)
    return Plan(
        submit=_submission(facts, seen, document),
        force=is_forced(seen),
        resume=seen.metadata.annotations.get(task.RESUME_ANNOTATION) == str(seen.spec.run),
        again_s=again_s,
    )


def _submission(facts: Facts, seen: task.Task, document: bytes | None) -> model.Submission:
    return model.Submission(
        task=ids.task_id(seen.metadata.uid),
        namespace=seen.metadata.namespace,
        name=seen.metadata.name,
        spec=_spec_for_dispatcher(facts, seen.spec),
        inputs=document,
        declared=True,
        pending_since=facts.pending_since,
    )


def _spec_for_dispatcher(facts: Facts, spec: task.TaskSpec) -> task.TaskSpec:
    """Return the spec to pass to the dispatcher; the Task object is left unchanged."""
    cluster = facts.cluster
    if cluster is not None and own_container_choice.needs_pod(spec, cluster, facts.workers):
        return own_container_choice.with_pod(spec, cluster)
    return spec


def _no_workers(spec: task.TaskSpec) -> status.Explanation:
    message = (
        f"no worker of TaskCluster {spec.cluster_name} has started: whether image {spec.image} "
        "needs a Pod of its own depends on where they run"
    )
    return status.Explanation(Reason.NO_WORKER, message)


def _plan_wait(
    facts: Facts,
    seen: task.Task,
    why: status.Explanation,
    *,
    wakes: frozenset[Wake] = frozenset(),
    again_s: float | None = None,
) -> Plan:
    shown = status.without_view(seen, task.State.PENDING, why, now=facts.now)
    return Plan(status=shown, wakes=wakes, again_s=again_s)


def _plan_end(facts: Facts, seen: task.Task, state: task.State, why: status.Explanation) -> Plan:
    return Plan(status=status.without_view(seen, state, why, now=facts.now))


def _is_gone(cluster: task_cluster.TaskCluster | None) -> bool:
    return cluster is None or cluster.metadata.deletion_timestamp is not None


def _no_cluster(facts: Facts, seen: task.Task) -> status.Explanation:
    name, namespace = seen.spec.cluster_name, seen.metadata.namespace
    what = "does not exist" if facts.cluster is None else "is being deleted"
    message = f"TaskCluster {name} {what} in namespace {namespace}"
    return status.Explanation(Reason.WAITING_FOR_CLUSTER, message)


def _no_input(missing: Mapping[input_assembly.InputSource, Missing]) -> status.Explanation:
    objects = [f for s, f in missing.items() if s.kind is input_assembly.InputKind.OBJECT]
    reason = Reason.WAITING_FOR_OBJECT if objects else Reason.WAITING_FOR_TASK
    first, rest = (objects or list(missing.values()))[0], len(missing) - 1
    return status.Explanation(reason, first.message + (f" (and {rest} more)" if rest else ""))


def _explain_view(
    view: model.TaskView, cluster: task_cluster.TaskCluster | None
) -> status.Explanation:
    """Return the reason and message of the view, or those of the TaskCluster if it has no
    worker.
    """
    if view.reason != Reason.NO_WORKER or cluster is None:
        return status.Explanation(view.reason, view.message)
    available = next((c for c in cluster.status.conditions if c.type == "Available"), None)
    if available is None or available.status == "True":
        return status.Explanation(view.reason, view.message)
    account = available.reason == reasons.ClusterReason.SERVICE_ACCOUNT_MISSING
    reason = Reason.WAITING_FOR_SERVICE_ACCOUNT if account else Reason.NO_WORKER
    return status.Explanation(reason, f"TaskCluster {view.cluster}: {available.message}")


def _kill_in(spec: task.TaskSpec, now: float) -> float | None:
    """Return the seconds until `killTimestamp`, or None without one. An invalid time kills
    immediately."""
    if spec.kill_timestamp is None:
        return None
    try:
        return clock.parse_rfc3339(spec.kill_timestamp) - now
    except ValueError:
        return 0.0


def _too_late(facts: Facts, spec: task.TaskSpec) -> status.Explanation | None:
    waited = facts.now - facts.pending_since
    limits = spec.timeouts
    if limits.total_seconds is not None and waited >= limits.total_seconds:
        message = f"it did not end within {limits.total_seconds:g} s"
        return status.Explanation(Reason.TOTAL_TIMED_OUT, message)
    if limits.pending_seconds is not None and waited >= limits.pending_seconds:
        message = f"it did not start within {limits.pending_seconds:g} s"
        return status.Explanation(Reason.PENDING_TIMED_OUT, message)
    return None


def _deadline_in(facts: Facts, spec: task.TaskSpec) -> float | None:
    limits = (spec.timeouts.pending_seconds, spec.timeouts.total_seconds)
    ends = [facts.pending_since + limit for limit in limits if limit is not None]
    return max(0.0, min(ends) - facts.now) if ends else None


def _soonest(*delays: float | None) -> float | None:
    return min((d for d in delays if d is not None), default=None)


def decode_input(what: str, payload: attempts.Payload | None) -> Found:
    """Return the result of the task `what` in the form of an input."""
    if payload is None:
        return Ready(None)
    if payload.media_type != "application/json":
        return Broken(f"the result of {what} is {payload.media_type}, not JSON")
    if payload.digest is not None:
        return Broken(
            f"the result of {what} is {payload.size} bytes, too large for an input or a "
            "TaskObject: return its address"
        )
    try:
        return Ready(msgspec.json.decode(payload.data))
    except RecursionError:
        return Broken(f"the result of {what} has lists and objects too deep in each other")


def input_from_status(what: str, result: task.Result | None) -> Found:
    """Return the result in the status of a task in the form of an input, for use after the journal
    has forgotten the task.
    """
    if result is None:
        return Ready(None)
    if result.value is msgspec.UNSET:
        return Broken(f"the result of {what} is no longer kept")
    return Ready(result.value)
