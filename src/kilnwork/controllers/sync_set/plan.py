"""The plan for one SyncSet: pure decisions from the known facts.

Used by `reconciler`, which gathers `Facts` and carries out the `Plan`. The checks are made in this
order: is the object gone, is its newest generation admitted, has it finished, does its flow run;
otherwise pin the data, create the objects, start the workers next to the data, start the flow. A
digest is written to the status before it is used: decisions here are based on the written status.
"""

from collections.abc import Mapping

import msgspec

from kilnwork.api import reasons, sync_set, sync_set_validation
from kilnwork.controllers.data_pond import model
from kilnwork.controllers.gangs import data_portions, port
from kilnwork.controllers.sync_set import (
    flow_pond_interfaces,
    output_snapshots,
    requirements,
    snapshot_digests,
    status,
    times,
    wait_events,
)
from kilnwork.jobs.flows import run_types as flow_model
from kilnwork.kit import clock

Reason = reasons.SetReason
_P = sync_set.Phase

LOOK_S = 1.0
"""Seconds between checks of state that has no notifications."""

REFUSED_LOOK_S = 5.0
"""Seconds between retries after a refusal."""

FETCH_LOOK_S = 5.0
"""Seconds between checks of nodes that fetch: a lost agent sends nothing."""


class DataLease(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots and nodes of a lease that a generation needs. `portions`: portions of the data
    by group and node, for groups with divided data.
    """

    nodes: frozenset[str]
    snapshots: tuple[model.WantedSnapshot, ...]
    outputs: bool = False
    """Whether tasks of the generation write output files there."""
    portions: data_portions.Places = {}


class Kill(msgspec.Struct, frozen=True):
    """An order to the engine to kill the flow."""

    generation: int
    reason: str
    message: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All known facts about one SyncSet."""

    seen: sync_set.SyncSet | None
    known: tuple[int, ...] = ()
    """Generations whose flows the engine has."""
    flow: flow_model.FlowRunView | None = None
    """The flow of the newest admitted generation."""
    stored_own: flow_model.NewFlowRun | None = None
    """The definition with which that flow was started."""
    stored: flow_model.NewFlowRun | None = None
    """Definition of the repeated generation, for a replay."""
    backend: sync_set.Backend | None = None
    """The backend that starts the groups; None while unknown."""
    pond: flow_pond_interfaces.Pond | None = None
    pins: Mapping[str, model.Pin] = {}
    """Pins by name of the snapshot."""
    planned: requirements.ShardCache = msgspec.field(default_factory=requirements.ShardCache)
    """Shards of the pins, as far as known."""
    readiness: Mapping[str, model.Readiness] = {}
    """Progress of the nodes with the data of the generation, by node."""
    pins_of_outputs: Mapping[str, model.Pin] = {}
    """Pins of the outputs of a successful flow, by name of the output."""
    unknown_output: str = ""
    """An output with a task whose node is unknown; "" if there is none."""
    kept: Mapping[str, model.Readiness] = {}
    """Progress of the nodes that should hold the outputs, by node."""
    held: data_portions.Places = {}
    """The portions of `leased` that nodes hold."""
    leased: data_portions.Places = {}
    """Portions of the data that this manager has ordered nodes to hold."""
    near: Mapping[str, Mapping[str, int]] = {}
    """Bytes that each node holds of the data near which a group should run, by group and node."""
    gang: port.GangState | None = None
    """State of the gang; None before it was requested in this pass."""
    left: bool = False
    """Whether groups of other or finished generations still exist."""
    obstacle: str = ""
    """Why an object of the set could not be created; "" if all exist."""
    refused_s: float = 0.0
    """Number of seconds for which an object has been refused."""
    refused: str = ""
    """Why the engine does not accept the flow; "" if it does."""
    fetching_since: float | None = None
    """Since when nodes fetch the data on the order of this manager (wall clock, in seconds); None
    while it has given no order."""
    now: float = 0.0
    """Wall clock, in seconds."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions to take for one SyncSet; repeating them changes nothing."""

    forget: tuple[int, ...] = ()
    """Generations whose flows are not needed any more."""
    kill: Kill | None = None
    suspend: bool | None = None
    release_groups: bool = False
    """Whether to delete all groups."""
    release_lease: bool = False
    """Whether to release all leases except those of kept outputs."""
    objects: bool = False
    """Whether to create the objects of the spec."""
    gang: port.GangSpec | None = None
    """The gang to request before deciding again."""
    lease: DataLease | None = None
    """The data that nodes should hold."""
    outputs: DataLease | None = None
    """The part of the outputs that nodes should hold."""
    serve: data_portions.Places = {}
    """Portions whose tasks run on the workers of a node, by TaskCluster and node."""
    reshard: Mapping[str, int] = {}
    """Number of shards into which the flow should divide snapshots."""
    start: flow_model.NewFlowRun | None = None
    retry: int | None = None
    """The run in which failed parts of the flow run again."""
    status: sync_set.SyncSetStatus | None = None
    delete: bool = False
    again_s: float | None = None
    """Seconds until the next pass, even without a change."""


def decide(facts: Facts) -> Plan:
    """Decide the actions to take now for a SyncSet."""
    seen = facts.seen
    if seen is None or seen.metadata.deletion_timestamp is not None:
        return Plan(forget=facts.known, release_lease=True)
    if seen.status.generation < seen.spec.generation:
        return _plan_admission(facts, seen)
    if _P(seen.status.phase or _P.PENDING).final:
        return _plan_finished(facts, seen)
    if facts.flow is not None and facts.flow.run >= seen.status.run:
        return _plan_running(facts, seen, facts.flow)
    return _plan_before_flow(msgspec.structs.replace(facts, flow=None), seen)


# A new generation


def _plan_admission(facts: Facts, seen: sync_set.SyncSet) -> Plan:
    """Plan the admission of a new generation, after the previous one has ended."""
    if facts.flow is not None and not facts.flow.phase.final:
        text = f"generation {seen.spec.generation} is asked for"
        kill = Kill(seen.status.generation, str(Reason.SUPERSEDED), text)
        shown = status.StatusContent(
            _P.KILLING, status.Explanation(Reason.SUPERSEDED, text), flow=facts.flow
        )
        return Plan(kill=kill, status=status.make(seen, shown, now=facts.now))
    if facts.flow is not None and not _P(seen.status.phase or _P.PENDING).final:
        return _plan_finish(
            facts, seen, facts.flow
        )  # the end of a generation is written before the next one begins
    if facts.left:
        return Plan(release_groups=True, release_lease=True, again_s=LOOK_S)
    begun = status.admit(seen, backend=facts.backend, now=facts.now)
    if problems := _problems(facts, seen):
        text = "; ".join(f"{field} {why}" for field, why in problems)
        return _plan_end(
            facts, begun, _P.ADMISSION_ERROR, status.Explanation(Reason.INVALID_SPEC, text)
        )
    kill_in = times.seconds_until(seen.spec.kill_timestamp, facts.now)
    if kill_in is not None and kill_in <= 0:
        why = status.Explanation(
            Reason.KILLED, f"killTimestamp {seen.spec.kill_timestamp} has come"
        )
        return _plan_end(facts, begun, _P.KILLED, why)
    if seen.spec.suspend:
        why = status.Explanation(Reason.SUSPENDED, "spec.suspend is true: nothing is made of it")
        return _plan_wait(facts, seen, _P.SUSPENDED, why, again_s=kill_in)
    if facts.backend is None:
        why = status.Explanation(Reason.WAITING_FOR_ROOM, "the nodes are not known yet")
        return _plan_wait(facts, seen, _P.PENDING, why, again_s=LOOK_S)
    return Plan(status=begun.status, again_s=0.0)


def _problems(facts: Facts, seen: sync_set.SyncSet) -> list[sync_set_validation.Problem]:
    found = sync_set_validation.validate_sync_set(seen)
    if facts.backend is None:
        return found
    more = sync_set_validation.backend_problems(seen.spec, facts.backend)
    return [*found, *(one for one in more if one not in found)]


# Before the flow


def _plan_before_flow(facts: Facts, seen: sync_set.SyncSet) -> Plan:
    """Plan for a generation whose flow does not run yet: pin the data, create what the flow needs,
    and start it.

    A flow that has run before continues with its data and spec.
    """
    if (end := times.requested_end(seen, facts.now)) is not None:
        return _plan_end(facts, seen, _P.KILLED if end.reason == Reason.KILLED else _P.FAILED, end)
    again_s = times.seconds_to_next_end(seen, facts.now)
    if seen.spec.suspend:
        why = status.Explanation(
            Reason.SUSPENDED, "spec.suspend is true: workers released their room"
        )
        paused = _plan_wait(facts, seen, _P.SUSPENDED, why, again_s=again_s)
        return msgspec.structs.replace(paused, release_groups=True, release_lease=True)
    if facts.refused:
        why = status.Explanation(Reason.INVALID_SPEC, facts.refused)
        return _plan_end(facts, seen, _P.FAILED, why)
    if facts.stored_own is not None:
        return _plan_placement(facts, seen, _program(facts, seen), again_s=again_s)
    try:
        pinned = snapshot_digests.resolve_pins(
            seen, facts.pins, stored=facts.stored, pond=facts.pond, planned=facts.planned
        )
    except snapshot_digests.CannotPin as error:
        return _plan_end(facts, seen, _P.FAILED, status.Explanation(error.reason, str(error)))
    if pinned.program is None or pinned.is_new(seen.status):
        late_s = times.seconds_to_data_timeout(
            seen, times.time_of(seen.status.admission_time), now=facts.now
        )
        if late_s is not None and late_s <= 0 and pinned.program is None:
            return _plan_end(
                facts, seen, _P.FAILED, times.timeout_explanation(seen, "pinning", pinned.why)
            )
        shown = status.StatusContent(
            _P.PENDING,
            pinned.why,
            snapshots=pinned.snapshots,
            pinned=pinned.program is not None,
        )
        soon = 0.0 if pinned.program is not None else LOOK_S
        again_s = times.shortest(again_s, late_s, soon)
        return Plan(status=status.make(seen, shown, now=facts.now), again_s=again_s)
    return _plan_placement(facts, seen, pinned.program, again_s=again_s)


def _plan_placement(
    facts: Facts, seen: sync_set.SyncSet, program: requirements.Program, *, again_s: float | None
) -> Plan:
    """Plan to create the objects and to request the gang, once the data of the flow is known."""
    if program.needs_pond and (facts.pond is None or not facts.pond.nodes):
        why = _no_pond(seen) if facts.pond is None else snapshot_digests.explain_no_agent(seen)
        return _plan_wait(facts, seen, _P.PLACING, why, again_s=times.shortest(again_s, LOOK_S))
    if facts.obstacle:
        return _plan_refusal(facts, seen, facts.obstacle, again_s=again_s)
    spec = _gang_spec(facts, seen, program)
    if facts.gang is None:
        return Plan(objects=True, gang=spec)
    gathered = _Gathered(program=program, spec=spec, gang=facts.gang)
    return _plan_gathering(facts, seen, gathered, again_s=again_s)


class _Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The flow to run with its data, the gang that it needs, and the observed gang."""

    program: requirements.Program
    spec: port.GangSpec
    gang: port.GangState


def _plan_gathering(
    facts: Facts, seen: sync_set.SyncSet, gathered: _Gathered, *, again_s: float | None
) -> Plan:
    """Plan to wait for workers and data, and to start the flow when all are ready."""
    program, gang = gathered.program, gathered.gang
    if gang.reason is Reason.OBJECT_REFUSED and not gang.ready:
        return _plan_refusal(facts, seen, gang.message, again_s=again_s)
    if gang.timed_out or gang.broken:
        reason = Reason.GANG_TIMED_OUT if gang.timed_out else Reason.WORKER_ENDED
        return _plan_end(
            facts, seen, _P.FAILED, status.Explanation(reason, gang.broken or gang.message)
        )
    data = _data_progress(facts, seen, program, spec=gathered.spec, gang=gang)
    if data.failed is not None:
        return _plan_end(facts, seen, _P.FAILED, data.failed)
    late_s = times.seconds_to_data_timeout(seen, facts.fetching_since, now=facts.now)
    if late_s is not None and late_s <= 0 and not data.ready and data.lease is not None:
        return _plan_end(
            facts, seen, _P.FAILED, times.timeout_explanation(seen, "fetching", data.why)
        )
    if gang.ready and data.ready:
        ready = Plan(lease=data.lease, serve=_portions_to_serve(facts, gathered.spec))
        if facts.stored_own is not None:
            return msgspec.structs.replace(ready, retry=seen.status.run)
        return msgspec.structs.replace(
            ready,
            start=_new_run(facts, seen, program, spec=gathered.spec),
        )
    phase = _P.PLACING if data.ready or (not gang.ready and not data.lease) else _P.FETCHING
    if not gang.ready and gang.reason is not Reason.WAITING_FOR_DATA:
        phase = _P.PLACING
    why = data.why if phase is _P.FETCHING else status.Explanation(gang.reason, gang.message)
    shown = status.StatusContent(
        phase, why, gang=gang, data=(data.ready, data.why), snapshots=data.snapshots
    )
    silent_s = None if data.ready or data.lease is None else FETCH_LOOK_S
    looks = (again_s, gang.again_s, late_s, silent_s)
    return Plan(
        lease=data.lease,
        status=status.make(seen, shown, now=facts.now),
        again_s=times.shortest(*looks),
    )


def _plan_refusal(
    facts: Facts, seen: sync_set.SyncSet, message: str, *, again_s: float | None
) -> Plan:
    """Plan for a SyncSet of which an object cannot be created: retry for a while, then fail."""
    left_s = wait_events.REFUSED_S - facts.refused_s
    if left_s <= 0:
        text = f"{message} (tried for {wait_events.REFUSED_S:g} s)"
        return _plan_end(facts, seen, _P.FAILED, status.Explanation(Reason.OBJECT_REFUSED, text))
    why = status.Explanation(Reason.OBJECT_REFUSED, message)
    return _plan_wait(
        facts, seen, _P.PLACING, why, again_s=times.shortest(again_s, left_s, REFUSED_LOOK_S)
    )


def _gang_spec(
    facts: Facts, seen: sync_set.SyncSet, program: requirements.Program
) -> port.GangSpec:
    generation, gang = seen.status.generation, seen.spec.resources.gang
    data = None
    if program.needs_pond:
        pond = facts.pond or flow_pond_interfaces.Pond(path="")
        data = port.DataPlaces(
            lead=requirements.data_leads(seen, program.snapshots),
            nodes=pond.nodes,
            ready=frozenset(name for name, one in facts.readiness.items() if one.ready),
            held=facts.held,
            wanted=facts.leased,
            near=facts.near,
            path=pond.path,
            outputs=pond.outputs if program.outputs else "",
            writable=requirements.is_writable(seen, facts.backend),
        )
    return port.GangSpec(
        namespace=seen.metadata.namespace,
        name=seen.metadata.name,
        uid=seen.metadata.uid,
        generation=generation,
        groups=requirements.groups(seen, generation, program, backend=facts.backend),
        wait_s=gang.wait_seconds,
        requeue=gang.on_timeout is sync_set.OnTimeout.REQUEUE,
        data=data,
        priority=seen.spec.priority,
        running_since=None if facts.flow is None else facts.flow.started,
    )


def _portions_to_serve(facts: Facts, spec: port.GangSpec) -> data_portions.Places:
    return {g.cluster: facts.held.get(g.name, {}) for g in spec.groups if g.portions}


def _new_run(
    facts: Facts, seen: sync_set.SyncSet, program: requirements.Program, *, spec: port.GangSpec
) -> flow_model.NewFlowRun:
    return flow_model.NewFlowRun(
        uid=seen.metadata.uid,
        generation=seen.status.generation,
        namespace=seen.metadata.namespace,
        set_name=seen.metadata.name,
        flow=program.flow,
        snapshots=dict(program.snapshots),
        clusters={group.name: group.cluster for group in spec.groups},
        run=seen.status.run,
        by_shard=requirements.sharded_snapshots(seen, program.snapshots, backend=facts.backend),
        portions={group.name: group.portions for group in spec.groups if group.portions},
        priority=seen.spec.priority,
        outputs=program.outputs,
    )


# Data on nodes


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of nodes with the data of the generation."""

    ready: bool
    why: status.Explanation
    lease: DataLease | None = None
    failed: status.Explanation | None = None
    snapshots: Mapping[str, sync_set.SnapshotStatus] | None = None


def _data_progress(
    facts: Facts,
    seen: sync_set.SyncSet,
    program: requirements.Program,
    *,
    spec: port.GangSpec,
    gang: port.GangState,
) -> _Data:
    if spec.data is None:
        return _Data(ready=True, why=status.Explanation(Reason.NO_DATA, "it has no snapshots"))
    if facts.pond is None:
        return _Data(ready=False, why=_no_pond(seen))
    nodes = gang.nodes
    if not nodes and facts.backend is sync_set.Backend.LOCAL:
        nodes = facts.pond.nodes  # on one machine, the data need not wait for the workers
    lease = _lease(facts, seen, program, spec=spec, gang=gang, nodes=nodes) if nodes else None
    found = {name: facts.readiness.get(name, model.Readiness()) for name in sorted(nodes)}
    ready_nodes = sum(one.ready for one in found.values())
    snapshots = {
        name: msgspec.structs.replace(
            one,
            nodes_ready=ready_nodes,
            nodes_wanted=len(nodes),
            shards=len(program.snapshots[name].shards or ())
            if name in program.snapshots
            else one.shards,
        )
        for name, one in seen.status.snapshots.items()
    }
    failed = None
    for name, one in found.items():
        if one.lasting:
            reason = snapshot_digests.reason_of(one.reason, Reason.FETCH_FAILED)
            failed = status.Explanation(reason, f"node {name}: {_message_of(name, one)}")
    counts = {group.name: group.portions for group in spec.groups}
    nowhere = data_portions.missing_portions(counts, facts.held)
    ready = bool(nodes) and ready_nodes == len(nodes) and not nowhere
    why = status.Explanation(Reason.DATA_READY, "") if ready else _explain_fetching(found, nowhere)
    return _Data(ready=ready, why=why, lease=lease, failed=failed, snapshots=snapshots)


def _no_pond(seen: sync_set.SyncSet) -> status.Explanation:
    name, namespace = seen.spec.data.pond.name, seen.metadata.namespace
    text = f"DataPond {name} does not exist in namespace {namespace}"
    return status.Explanation(Reason.WAITING_FOR_POND, text)


def _lease(
    facts: Facts,
    seen: sync_set.SyncSet,
    program: requirements.Program,
    *,
    spec: port.GangSpec,
    gang: port.GangState,
    nodes: frozenset[str],
) -> DataLease:
    """Return the lease for the data that each node should hold: the portions of its workers, and
    the portions that it held before.
    """
    kept = {
        group: {node: has for node, has in by_node.items() if node in nodes}
        for group, by_node in facts.held.items()
    }
    portions = data_portions.merge(gang.portions, kept)
    counts = {group.name: group.portions for group in spec.groups if group.portions}
    snapshots = requirements.wanted_snapshots(
        seen, program, counts=counts, portions=portions, backend=facts.backend
    )
    return DataLease(
        nodes=nodes, snapshots=snapshots, portions=portions, outputs=bool(program.outputs)
    )


def _explain_fetching(
    found: Mapping[str, model.Readiness], nowhere: Mapping[str, list[int]]
) -> status.Explanation:
    incomplete = [(name, one) for name, one in found.items() if not one.ready]
    if not incomplete and found and nowhere:
        lost = (
            f"portions {data_portions.format_portions(portions)} of group {name}"
            for name, portions in nowhere.items()
        )
        return status.Explanation(Reason.FETCHING, f"no node holds {', '.join(lost)} yet")
    if not incomplete:
        return status.Explanation(
            Reason.WAITING_FOR_WORKERS, "the nodes of the workers are not known yet"
        )
    texts = [
        f"node {name} has {one.bytes_done:,} of {one.bytes_total:,} bytes"
        + (f": {_message_of(name, one)}" if one.message and one.reason != "Fetching" else "")
        for name, one in incomplete[:5]
    ]
    more = f", and {len(incomplete) - 5} more nodes" if len(incomplete) > 5 else ""
    return status.Explanation(Reason.FETCHING, ", ".join(texts) + more)


def _message_of(node: str, of: model.Readiness) -> str:
    """Return a node's message without the name of the node, with which the message of the status
    begins already.
    """
    return of.message.removeprefix(f"node {node}: ")


# The flow


def _plan_running(facts: Facts, seen: sync_set.SyncSet, flow: flow_model.FlowRunView) -> Plan:
    if flow.phase.final:
        return _plan_finish(facts, seen, flow)
    program = _program(facts, seen)
    spec = _gang_spec(facts, seen, program)
    end = times.requested_end(seen, facts.now)
    if end is None and facts.gang is None:
        return Plan(gang=spec)
    data = None
    if facts.gang is not None:
        data = _data_progress(facts, seen, program, spec=spec, gang=facts.gang)
        end = end or _explain_broken(facts.gang, data)
    if end is not None or data is None:
        end = end or status.Explanation(Reason.KILLED, "")
        kill = Kill(seen.status.generation, str(end.reason), end.message)
        shown = status.StatusContent(_P.KILLING, end, gang=facts.gang, flow=flow)
        return Plan(kill=kill, status=status.make(seen, shown, now=facts.now))
    decided = _plan_continuation(
        facts, seen, flow, data=data, serve=_portions_to_serve(facts, spec)
    )
    shards = requirements.changed_shard_counts(seen, program.snapshots, backend=facts.backend)
    return msgspec.structs.replace(decided, reshard=shards)


def _explain_broken(gang: port.GangState, data: _Data) -> status.Explanation | None:
    """Return why the flow cannot continue, or None if it can. A late node that cannot fetch the
    data is not a reason.
    """
    if gang.broken:
        return status.Explanation(Reason.WORKER_ENDED, gang.broken)
    failed = data.failed
    return failed if failed is not None and failed.reason == Reason.DATA_CORRUPT else None


def _program(facts: Facts, seen: sync_set.SyncSet) -> requirements.Program:
    stored = facts.stored_own
    if stored is None:
        return requirements.Program(flow=seen.spec.flow, snapshots={})
    return requirements.Program(
        flow=stored.flow, snapshots=stored.snapshots, outputs=stored.outputs
    )


def _plan_continuation(
    facts: Facts,
    seen: sync_set.SyncSet,
    flow: flow_model.FlowRunView,
    *,
    data: _Data,
    serve: data_portions.Places,
) -> Plan:
    """Plan for a running flow: keep the gang complete. A node that fetches its data late does not
    delay other nodes.
    """
    phase, why = _P.RUNNING, status.Explanation(Reason.FLOW_RUNNING, flow.message)
    if seen.spec.suspend:
        phase = _P.SUSPENDED
        why = status.Explanation(Reason.SUSPENDED, "spec.suspend is true: what runs goes on")
    shown = status.StatusContent(
        phase,
        why,
        gang=facts.gang,
        flow=flow,
        data=(data.ready, data.why),
        snapshots=data.snapshots,
    )
    gang_s = None if facts.gang is None else facts.gang.again_s
    return Plan(
        suspend=_suspend(seen, flow),
        lease=data.lease,
        serve=serve,
        status=status.make(seen, shown, now=facts.now),
        again_s=times.shortest(times.seconds_to_next_end(seen, facts.now), gang_s),
    )


def _suspend(seen: sync_set.SyncSet, flow: flow_model.FlowRunView) -> bool | None:
    return seen.spec.suspend if seen.spec.suspend != flow.suspended else None


_FAILURES = frozenset(
    {Reason.DEADLINE_EXCEEDED, Reason.WORKER_ENDED, Reason.DATA_CORRUPT, Reason.DATA_TIMED_OUT}
)
"""Reasons for killing a flow that make the SyncSet `Failed` instead of `Killed`."""


def _outcome(flow: flow_model.FlowRunView) -> tuple[sync_set.Phase, status.Explanation]:
    if flow.phase is flow_model.FlowPhase.SUCCEEDED:
        return _P.SUCCEEDED, status.Explanation(Reason.FLOW_SUCCEEDED, flow.message)
    if flow.phase is flow_model.FlowPhase.KILLED and flow.reason not in _FAILURES:
        return _P.KILLED, status.Explanation(flow.reason or Reason.KILLED, flow.message)
    return _P.FAILED, status.Explanation(flow.reason or Reason.FLOW_FAILED, flow.message)


# The end


def _plan_finish(facts: Facts, seen: sync_set.SyncSet, flow: flow_model.FlowRunView) -> Plan:
    """Plan for a flow that has just finished: store its outputs before its end is written to the
    status.
    """
    phase, why = _outcome(flow)
    pins = facts.pins_of_outputs
    if phase is not _P.SUCCEEDED or not (pins or facts.unknown_output):
        return _plan_end(facts, seen, phase, why)
    failed = times.requested_end(seen, facts.now) or output_snapshots.failure(pins)
    if facts.unknown_output:
        failed = status.Explanation(Reason.OUTPUT_FAILED, facts.unknown_output)
    if failed is not None:
        killed = failed.reason == Reason.KILLED
        return _plan_end(facts, seen, _P.KILLED if killed else _P.FAILED, failed)
    waits_for = output_snapshots.describe_missing(pins)
    lease = None
    if not waits_for:
        lease = DataLease(
            nodes=output_snapshots.nodes(pins), snapshots=output_snapshots.wanted_snapshots(pins)
        )
        incomplete = [one.message for _, one in sorted(facts.kept.items()) if not one.ready]
        if facts.kept and not incomplete:
            shown = status.StatusContent(
                phase, why, flow=flow, outputs=output_snapshots.output_statuses(pins)
            )
            made = status.make(seen, shown, now=facts.now)
            return Plan(outputs=lease, status=made, again_s=0.0)
        waits_for = ", ".join(incomplete) or "nodes are ordered to hold them"
    keeps = status.Explanation(Reason.KEEPING_OUTPUTS, waits_for)
    late_s = times.seconds_to_data_timeout(seen, flow.finished, now=facts.now)
    if late_s is not None and late_s <= 0:
        return _plan_end(
            facts, seen, _P.FAILED, times.timeout_explanation(seen, "keeping outputs", keeps)
        )
    shown = status.StatusContent(_P.RUNNING, keeps, flow=flow)
    return Plan(
        release_groups=True,
        outputs=lease,
        status=status.make(seen, shown, now=facts.now),
        again_s=times.shortest(late_s, LOOK_S, times.seconds_to_next_end(seen, facts.now)),
    )


def _plan_finished(facts: Facts, seen: sync_set.SyncSet) -> Plan:
    """Plan for a finished generation: release all resources; delete the SyncSet when its time to
    live has expired.
    """
    if seen.spec.run > seen.status.run:
        return _plan_next_run(facts, seen)
    kept = {one.generation for one in seen.status.generations} | {seen.status.generation}
    forget = tuple(one for one in facts.known if one not in kept)
    ttl = seen.spec.keep.ttl_seconds
    left_s = None
    if ttl is not None and seen.status.finish_time:
        left_s = clock.parse_rfc3339(seen.status.finish_time) + ttl - facts.now
    return Plan(
        forget=forget,
        release_groups=facts.left,
        release_lease=True,
        status=status.observed(seen),
        delete=left_s is not None and left_s <= 0,
        again_s=times.shortest(left_s, LOOK_S if facts.left else None),
    )


def _plan_next_run(facts: Facts, seen: sync_set.SyncSet) -> Plan:
    """Plan to start the next run of a finished generation, when nothing of the previous run is
    left.
    """
    if (why := _rerun_obstacle(facts, seen)) is not None:
        return Plan(release_lease=True, status=status.refuse_run(seen, why), again_s=0.0)
    if facts.left:
        return Plan(release_groups=True, release_lease=True, again_s=LOOK_S)
    return Plan(release_lease=True, status=status.start_next_run(seen, now=facts.now), again_s=0.0)


def _rerun_obstacle(facts: Facts, seen: sync_set.SyncSet) -> str | None:
    """Return why a finished generation cannot run again, or None if it can."""
    remedy = f"`kiln replay {seen.metadata.name}` runs all of it again"
    if _P(seen.status.phase) not in (_P.FAILED, _P.KILLED):
        return f"it is {seen.status.phase}: {remedy}"
    if facts.flow is None:
        return None
    if facts.flow.phase is flow_model.FlowPhase.SUCCEEDED:
        return f"its flow has succeeded: {remedy}"
    for output in () if facts.stored_own is None else facts.stored_own.outputs:
        step = facts.flow.steps.get(output.step)
        if step is not None and step.succeeded:
            return (
                f"the files of output {output.name} that tasks of step {output.step} wrote went "
                f"with the run before: {remedy}"
            )
    return None


def _plan_end(
    facts: Facts, seen: sync_set.SyncSet, phase: sync_set.Phase, why: status.Explanation
) -> Plan:
    shown = status.StatusContent(phase, why, flow=facts.flow)
    return Plan(status=status.make(seen, shown, now=facts.now), again_s=0.0)


def _plan_wait(
    facts: Facts,
    seen: sync_set.SyncSet,
    phase: sync_set.Phase,
    why: status.Explanation,
    *,
    again_s: float | None,
) -> Plan:
    shown = status.StatusContent(phase, why)
    return Plan(status=status.make(seen, shown, now=facts.now), again_s=again_s)
