"""The plan for one Job: pure decisions from the known facts.

Used by `reconciler`, which gathers `Facts` and carries out the `Plan`. The checks are made in this
order: is the object gone, has its run finished, has its JobConfig been copied, may the engine have
it. Once the engine has the Job, its view decides everything but changes of the spec.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from kilnwork.api import (
    input_assembly,
    job,
    job_config,
    job_config_options,
    job_from_config,
    job_validation,
    meta,
    reasons,
    resolved_job_settings,
    task,
)
from kilnwork.controllers.job import status
from kilnwork.controllers.task import plan as task_plan
from kilnwork.jobs import index_job_types, job_start_queue
from kilnwork.kit import clock

Reason = reasons.Reason
JobReason = reasons.JobReason
_P = job.Phase


class DependencyState(msgspec.Struct, frozen=True):
    """The state of one dependency of a Job."""

    dependency: job.Dependency
    finished: bool
    """Whether the dependency has finished."""
    problem: str = ""
    """Why waiting does not help; "" if it may help."""
    waits: str = ""
    """Why the dependency has not finished, as a clause for messages."""
    job: str = ""
    """Name of the Job that the dependency refers to; "" for a Task, and while there is no such
    Job."""


class Wake(msgspec.Struct, frozen=True):
    """An object in the Job's namespace for which the Job waits: a change of it may end the wait."""

    kind: str
    name: str


class Failure(msgspec.Struct, frozen=True):
    """The reason and message with which a Job must end as `Failed`."""

    reason: str
    message: str


class Provided(msgspec.Struct, frozen=True):
    """The inputs and items that a Job needed before its start; None if it needs none."""

    items: list[Any] | None = None
    inputs: dict[str, Any] | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All known facts about one Job."""

    job: job.Job | None
    view: index_job_types.IndexJobView | None
    """The engine's view of this object (by uid)."""
    strays: tuple[str, ...] = ()
    """Uids of Jobs of this name that the engine still has although their objects are gone."""
    config: job_config.JobConfig | None = None
    """The JobConfig that the Job names or that owns it."""
    dependencies: tuple[DependencyState, ...] = ()
    sources: Mapping[input_assembly.InputSource, task_plan.Found] = {}
    """State of each input, and of the source of `withResultOf`; empty after the start."""
    refused: str = ""
    """Why the engine does not accept the Job; "" if it has not refused the Job."""
    no_cluster: str = ""
    """Why the TaskCluster of the Job's indexes cannot be used; "" if it can."""
    known_hold: job_start_queue.Hold | msgspec.UnsetType | None = msgspec.UNSET
    """The hold that this process has set in the engine; UNSET: none yet."""
    now: float = 0.0
    """Wall clock, in seconds."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions to take for one Job; repeating them changes nothing."""

    release: tuple[str, ...] = ()
    patch: list[meta.JsonObject] | None = None
    """A JSON patch of the Job, after which it is reconciled again."""
    put: index_job_types.NewIndexJob | None = None
    provide: Provided | None = None
    hold: job_start_queue.Hold | msgspec.UnsetType | None = msgspec.UNSET
    """The hold to set in the engine; UNSET leaves it unchanged."""
    fail: Failure | None = None
    kill: str = ""
    """Why the Job must be killed; "" if it must not."""
    rerun: int | None = None
    """Number of the run to start. The other fields then say whether the run is killed, suspended
    and so on."""
    suspend: bool | None = None
    max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    status: job.JobStatus | None = None
    warnings: tuple[str, ...] = ()
    delete: bool = False
    wakes: frozenset[Wake] = frozenset()
    again_s: float | None = None
    """Seconds until the next pass, even without a change."""

    @property
    def is_change(self) -> bool:
        """Whether the plan changes a Job that the engine already has."""
        unset = msgspec.UNSET
        is_set = (self.hold, self.max_in_flight, self.priority) != (unset, unset, unset)
        asked = (self.provide, self.fail, self.rerun, self.suspend) != (None, None, None, None)
        return is_set or asked or bool(self.kill)


def decide(facts: Facts) -> Plan:
    """Decide the actions to take now for a Job."""
    seen = facts.job
    if seen is None:
        return Plan(release=facts.strays)
    if seen.metadata.deletion_timestamp is not None:
        found = _plan_deletion(facts, seen)
    else:
        found = _plan_live(facts, seen)
    return msgspec.structs.replace(found, release=facts.strays)


def _plan_deletion(facts: Facts, seen: job.Job) -> Plan:
    """Plan for a deleted Job that only a finalizer keeps: kill its tasks, and continue to write the
    status.

    The Job is released when the object is gone.
    """
    view, text = facts.view, "its object was deleted"
    if view is None:
        why = status.Explanation(Reason.DELETED, text)
        return Plan() if _is_finished(seen) else _plan_end(facts, seen, _P.KILLED, why)
    ending = view.phase.final or view.phase is _P.KILLING
    shown = status.from_view(seen, view, now=facts.now)
    return Plan(kill="" if ending else text, status=shown)


def config_name(seen: job.Job) -> tuple[str, str]:
    """Return the name and uid of the JobConfig that a Job names or that owns it; both "" if there
    is none.
    """
    if seen.spec.config_name is not None:
        return seen.spec.config_name, ""
    owner = job_from_config.config_of(seen)
    return ("", "") if owner is None else (owner.name, owner.uid)


def cluster_name(seen: job.Job) -> str:
    """Return the TaskCluster on which the indexes of a Job run; "" if they need none."""
    template = None if seen.spec.template is None else seen.spec.template.effective_task
    return (
        template.cluster_name if template is not None and template.executor == task.WORKER else ""
    )


def needed_inputs(seen: job.Job) -> dict[str, tuple[input_assembly.InputSource, str | None]]:
    """Return the inputs of a Job's tasks by name, with the list of `withResultOf` under ""."""
    template = seen.spec.template
    if template is None or template.effective_task is None:
        return {}
    found = dict(input_assembly.sources(template.effective_task))
    if template.parallelism is not None and template.parallelism.with_result_of is not None:
        source = template.parallelism.with_result_of
        found[""] = (_source(source), source.path)
    return found


def all_dependencies(
    given: tuple[job.Dependency, ...], template: job.JobTemplate | None
) -> tuple[job.Dependency, ...]:
    """Return the dependencies of a Job: those in its spec, and the Job or JobConfig whose result is
    its list.
    """
    if template is None or template.parallelism is None:
        return given
    listed = template.parallelism.with_result_of
    if listed is None or listed.task is not None:
        return given
    source = _source(listed)
    return (*given, job.Dependency(kind=job.DependencyKind(source.kind), name=source.name))


def _source(given: job.ResultSource) -> input_assembly.InputSource:
    """Return the source of the list of items. A valid Job has exactly one of the names."""
    if given.task is not None:
        return input_assembly.InputSource(input_assembly.InputKind.TASK, given.task)
    if given.job is not None:
        return input_assembly.InputSource(input_assembly.InputKind.JOB, given.job)
    return input_assembly.InputSource(input_assembly.InputKind.JOB_CONFIG, given.job_config or "")


def _plan_live(facts: Facts, seen: job.Job) -> Plan:
    view, spec = facts.view, seen.spec
    if view is not None:
        return _plan_with_engine(facts, seen, view)
    if _is_finished(seen):
        return _plan_finished(facts, seen)
    kill_in = _seconds_until(spec.kill_timestamp, facts.now)
    if kill_in is not None and kill_in <= 0:
        why = status.Explanation(
            Reason.KILLED, f"killTimestamp {spec.kill_timestamp} came before its start"
        )
        return _plan_end(facts, seen, _P.KILLED, why)
    if facts.refused:
        return _plan_end(
            facts, seen, _P.ADMISSION_ERROR, status.Explanation(Reason.INVALID_SPEC, facts.refused)
        )
    if spec.config_name is not None:
        return _plan_expansion(facts, seen, kill_in)
    problems = list(job_validation.validate_job(seen))
    if problems:
        text = "; ".join(f"{field} {why}" for field, why in problems)
        return _plan_end(
            facts, seen, _P.ADMISSION_ERROR, status.Explanation(Reason.INVALID_SPEC, text)
        )
    return _plan_acceptance(facts, seen)


def _plan_expansion(facts: Facts, seen: job.Job, kill_in: float | None) -> Plan:
    """Plan to copy the template of the JobConfig into the Job."""
    config = facts.config
    if config is None or config.metadata.deletion_timestamp is not None:
        message = (
            f"JobConfig {seen.spec.config_name} does not exist in namespace "
            f"{seen.metadata.namespace}"
        )
        why = status.Explanation(JobReason.WAITING_FOR_JOB_CONFIG, message)
        wakes = frozenset({Wake("JobConfig", seen.spec.config_name or "")})
        return _plan_wait(facts, seen, why, wakes=wakes, again_s=kill_in)
    problems = list(job_validation.validate_job_config(config))
    if problems:
        text = "; ".join(f"{field} {why}" for field, why in problems)
        message = f"JobConfig {config.metadata.name} cannot be used: {text}"
        return _plan_end(
            facts, seen, _P.ADMISSION_ERROR, status.Explanation(Reason.INVALID_SPEC, message)
        )
    try:
        expanded = job_from_config.expand(config, seen)
    except job_config_options.InvalidOptions as error:
        return _plan_end(
            facts, seen, _P.ADMISSION_ERROR, status.Explanation(Reason.INVALID_SPEC, str(error))
        )
    return Plan(patch=expanded.patch, warnings=expanded.warnings)


def _plan_acceptance(facts: Facts, seen: job.Job) -> Plan:
    """Plan to pass the Job to the engine, with the hold that delays its start."""
    provided, held = Provided(), None
    failure: Failure | None = None
    try:
        provided, missing, broken = _collect_inputs(facts, seen)
        held, failure = _hold_or_failure(facts, missing, broken)
    except input_assembly.InputError as error:
        failure = Failure(error.reason, str(error))
    if failure is not None:  # the next pass fails the Job, which must not start before
        held = job_start_queue.Hold(reason=failure.reason, message=failure.message)
    return Plan(put=_new_job(facts, seen, provided, held))


def _new_job(
    facts: Facts, seen: job.Job, provided: Provided, held: job_start_queue.Hold | None
) -> index_job_types.NewIndexJob:
    group = None if facts.config is None else group_of(facts.config)
    start_after = seen.spec.start_policy.start_after
    return index_job_types.NewIndexJob(
        uid=seen.metadata.uid,
        namespace=seen.metadata.namespace,
        name=seen.metadata.name,
        spec=seen.spec,
        created=clock.parse_rfc3339(seen.metadata.creation_timestamp or clock.rfc3339(facts.now)),
        variables=job_from_config.variables(seen),
        inputs=provided.inputs,
        group=group,
        tick=job_from_config.tick_of(seen) if group is not None else None,
        start_after=None if start_after is None else clock.parse_rfc3339(start_after),
        hold=held,
    )


def group_of(config: job_config.JobConfig) -> job_start_queue.ConcurrencyGroup:
    """Return the concurrency group of a JobConfig, as the engine of jobs takes it."""
    concurrency = config.spec.concurrency
    return job_start_queue.ConcurrencyGroup(
        config=config.metadata.uid,
        name=config.metadata.name,
        policy=concurrency.policy,
        max_concurrency=concurrency.max_concurrency or 1,
        max_queued=concurrency.max_queued,
    )


def _collect_inputs(
    facts: Facts, seen: job.Job
) -> tuple[Provided, list[tuple[input_assembly.InputSource, str]], list[str]]:
    """Return the available inputs and items, the missing sources, and the problems that do not
    resolve by waiting.

    Raises InputError.
    """
    wanted = needed_inputs(seen)
    found = {source: facts.sources[source] for source, _ in wanted.values()}
    broken = [one.message for one in found.values() if isinstance(one, task_plan.Broken)]
    missing = [
        (source, one.message) for source, one in found.items() if isinstance(one, task_plan.Missing)
    ]
    if broken or missing or not wanted:
        return Provided(), missing, broken
    values = {s: one.value for s, one in found.items() if isinstance(one, task_plan.Ready)}
    named = {
        name: input_assembly.pick(name, values[s], path)
        for name, (s, path) in wanted.items()
        if name
    }
    input_assembly.encode(named)
    if "" not in wanted:
        return Provided(inputs=named), [], []
    source, path = wanted[""]
    items = input_assembly.pick("withResultOf", values[source], path)
    if not isinstance(items, list):
        return Provided(), [], [f"the result of {source} is no list"]
    return Provided(items, named or None), [], []


def _hold_or_failure(
    facts: Facts, missing: list[tuple[input_assembly.InputSource, str]], broken: list[str]
) -> tuple[job_start_queue.Hold | None, Failure | None]:
    """Return the hold for missing dependencies, inputs and TaskClusters, which the engine does not
    know, or why the Job cannot start; (None, None) if nothing is missing.
    """
    for state in facts.dependencies:
        if state.problem:
            return None, Failure(JobReason.DEPENDENCY_FAILED, state.problem)
    if broken:
        return None, Failure(Reason.INPUT_FAILED, broken[0])
    waits = [state.waits for state in facts.dependencies if not state.finished]
    if waits:
        more = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
        return job_start_queue.Hold(
            reason=JobReason.WAITING_FOR_DEPENDENCY, message=waits[0] + more
        ), None
    if missing:
        objects = [
            text for source, text in missing if source.kind is input_assembly.InputKind.OBJECT
        ]
        reason = Reason.WAITING_FOR_OBJECT if objects else Reason.WAITING_FOR_TASK
        text = (objects or [text for _, text in missing])[0]
        return job_start_queue.Hold(reason=reason, message=text), None
    if facts.no_cluster:
        return job_start_queue.Hold(
            reason=Reason.WAITING_FOR_CLUSTER, message=facts.no_cluster
        ), None
    return None, None


def _plan_with_engine(facts: Facts, seen: job.Job, view: index_job_types.IndexJobView) -> Plan:
    spec = seen.spec
    shown = status.from_view(seen, view, now=facts.now)
    if view.phase.final:
        if spec.run > view.run:  # also if it was refused: the concurrency may allow it now
            return _plan_next_run(facts, seen, view, shown)
        rest = _plan_finished(facts, msgspec.structs.replace(seen, status=shown))
        return msgspec.structs.replace(rest, status=shown)
    kill_in = _seconds_until(spec.kill_timestamp, facts.now)
    due = kill_in is not None and kill_in <= 0
    if due or view.phase is _P.KILLING:
        why = f"killTimestamp {spec.kill_timestamp} has come"
        return Plan(kill=why if view.phase is not _P.KILLING else "", status=shown)
    found = Plan(status=shown, again_s=kill_in, **_differences(seen, view))
    if view.started is not None:
        return found
    return _plan_before_start(facts, seen, view, found)


def _plan_next_run(
    facts: Facts, seen: job.Job, view: index_job_types.IndexJobView, shown: job.JobStatus
) -> Plan:
    """Plan for a Job whose `spec.run` was raised: start that run with the current spec; a suspended
    or killed run starts no tasks.
    """
    spec = seen.spec
    kill_in = _seconds_until(spec.kill_timestamp, facts.now)
    due = kill_in is not None and kill_in <= 0
    return Plan(
        rerun=spec.run,
        kill=f"killTimestamp {spec.kill_timestamp} came before its start" if due else "",
        status=shown,
        **_differences(seen, view),
    )


def _differences(seen: job.Job, view: index_job_types.IndexJobView) -> dict[str, Any]:
    """Return the mutable fields that differ between the spec and the engine, with the values of the
    spec.
    """
    spec = seen.spec
    changed: dict[str, Any] = {}
    if spec.suspend != view.suspended:
        changed["suspend"] = spec.suspend
    parallelism = None if spec.template is None else spec.template.parallelism
    wanted = None if parallelism is None else parallelism.max_in_flight
    if wanted != view.max_in_flight:
        changed["max_in_flight"] = wanted
    if spec.priority != view.priority:
        changed["priority"] = spec.priority
    return changed


def _plan_before_start(
    facts: Facts, seen: job.Job, view: index_job_types.IndexJobView, found: Plan
) -> Plan:
    """Plan for a Job that waits in the engine: pass on inputs that have become available."""
    try:
        provided, missing, broken = _collect_inputs(facts, seen)
    except input_assembly.InputError as error:
        return msgspec.structs.replace(found, fail=Failure(error.reason, str(error)))
    held, failure = _hold_or_failure(facts, missing, broken)
    wakes = frozenset(
        {Wake(s.dependency.kind, s.dependency.name) for s in facts.dependencies if not s.finished}
        | {Wake("Job", s.job) for s in facts.dependencies if s.job and not s.finished}
        | {Wake(source.kind, source.name) for source, _ in missing}
        | ({Wake("TaskCluster", cluster_name(seen))} if facts.no_cluster else set())
    )
    if failure is not None:
        return msgspec.structs.replace(found, fail=failure)
    changed: dict[str, Any] = {}
    if held != facts.known_hold:
        changed["hold"] = held
    if held is None and provided != Provided() and view.counts.total == 0:
        changed["provide"] = provided
    return msgspec.structs.replace(found, wakes=wakes, **changed)


def _plan_finished(facts: Facts, seen: job.Job) -> Plan:
    """Plan for a finished run: delete the object when its time to live has expired."""
    finished = seen.status.finish_time
    if finished is None:
        return Plan()
    ttl = resolved_job_settings.seconds_to_live(
        seen.spec, succeeded=seen.status.phase == _P.SUCCEEDED
    )
    left = clock.parse_rfc3339(finished) + ttl - facts.now
    return Plan(delete=True) if left <= 0 else Plan(again_s=left)


def _is_finished(seen: job.Job) -> bool:
    known = seen.status
    return known.run == seen.spec.run and job.is_final(known.phase)


def _plan_wait(
    facts: Facts,
    seen: job.Job,
    why: status.Explanation,
    *,
    wakes: frozenset[Wake] = frozenset(),
    again_s: float | None = None,
) -> Plan:
    shown = status.without_view(seen, _P.QUEUED, why, now=facts.now)
    return Plan(status=shown, wakes=wakes, again_s=again_s)


def _plan_end(
    facts: Facts,
    seen: job.Job,
    phase: Literal[job.Phase.KILLED, job.Phase.ADMISSION_ERROR],
    why: status.Explanation,
) -> Plan:
    return Plan(status=status.without_view(seen, phase, why, now=facts.now))


def _seconds_until(time: str | None, now: float) -> float | None:
    """Return the seconds until a time, or None if there is no time.

    An invalid time counts as reached; condition `Valid` reports it.
    """
    if time is None:
        return None
    try:
        return clock.parse_rfc3339(time) - now
    except ValueError:
        return 0.0


def judge_dependency(wanted: job.Dependency, why: str, succeeded: bool) -> DependencyState:  # noqa: FBT001
    """Return the state of a dependency that has ended, which decides whether the Job may start."""
    if succeeded or wanted.outcome is job.DependencyOutcome.FINISHED:
        return DependencyState(wanted, finished=True)
    return DependencyState(wanted, finished=True, problem=why)


def find_cycle(name: str, waits_for: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """Return the cycle of Jobs that wait for each other, from `name` to itself; empty if there is
    none.

    `waits_for`: returns the Jobs that a Job waits for.
    """
    before: dict[str, str] = {}
    left = [name]
    while left:
        one = left.pop()
        for other in waits_for(one):
            if other == name:
                ring = [name, one]
                while ring[-1] != name:
                    ring.append(before[ring[-1]])
                return tuple(reversed(ring))
            if other not in before:
                before[other] = one
                left.append(other)
    return ()
