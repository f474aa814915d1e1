"""The decisions about a SyncSet: data before digest, digest before gang, gang before flow."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, reasons, sync_set
from kilnwork.controllers.data_pond import model as pond_model
from kilnwork.controllers.gangs import port
from kilnwork.controllers.sync_set import flow_pond_interfaces, plan, requirements
from kilnwork.data.pond import manifest
from kilnwork.jobs.flows import run_types
from kilnwork.kit import clock

NOW = 1_800_000_000.0
DIGEST = f"sha256:{'1' * 64}"
Reason = reasons.SetReason
Phase = sync_set.Phase

MANIFEST = manifest.Manifest(
    [manifest.File(path=f"{i}.csv", size=10, mode=0o644, digest=f"sha256:{i * 64}") for i in "123"]
)
PIN = pond_model.Pin(state="Pinned", digest=MANIFEST.digest, manifest=MANIFEST, bytes=30)
POND = flow_pond_interfaces.Pond(path="/pond/runs/default/risk-g1", nodes=frozenset({"a", "b"}))
READY = pond_model.Readiness(ready=True, bytes_done=30, bytes_total=30)


def declared(
    *,
    data: dict[str, Any] | bool = True,
    status: sync_set.SyncSetStatus | None = None,
    **spec: Any,
) -> sync_set.SyncSet:
    snapshots = [
        {"name": "trades", "from": {"inline": {"a": "1"}}, "shard": {"by": "files"}},
    ]
    body = {
        "resources": {"groups": [{"name": "worker", "replicas": 2}]},
        "flow": {"do": [{"x": {"command": ["true"]}}]},
        "data": data if isinstance(data, dict) else {"snapshots": snapshots} if data else {},
        "backend": "local",
        **spec,
    }
    return sync_set.SyncSet(
        metadata=meta.ObjectMeta(name="risk", namespace="default", uid="u", generation=1),
        spec=msgspec.convert(body, sync_set.SyncSetSpec),
        status=status or sync_set.SyncSetStatus(),
    )


def facts(seen: sync_set.SyncSet | None, **more: Any) -> plan.Facts:
    given = {"backend": sync_set.Backend.LOCAL, "pond": POND, "now": NOW, **more}
    return plan.Facts(seen=seen, **given)


def with_status(seen: sync_set.SyncSet, decided: plan.Plan) -> sync_set.SyncSet:
    """Return the object after its status was written."""
    assert decided.status is not None
    return msgspec.structs.replace(seen, status=decided.status)


def admitted(**spec: Any) -> sync_set.SyncSet:
    seen = declared(**spec)
    return with_status(seen, plan.decide(facts(seen)))


def pinned(**spec: Any) -> sync_set.SyncSet:
    seen = admitted(**spec)
    return with_status(seen, plan.decide(facts(seen, pins={"trades": PIN})))


def gang(*, ready: bool = True, nodes: str = "a", **more: Any) -> port.GangState:
    group = port.GroupState(desired=2, min=2, ready=2 if ready else 0)
    return port.GangState(groups={"worker": group}, ready=ready, nodes=frozenset(nodes), **more)


def view(
    phase: run_types.FlowPhase = run_types.FlowPhase.RUNNING, **more: Any
) -> run_types.FlowRunView:
    given: dict[str, Any] = {
        "uid": "u",
        "namespace": "default",
        "set_name": "risk",
        "generation": 1,
        "version": 1,
        "phase": phase,
        "reason": "",
        "message": "",
        "suspended": False,
        "started": NOW,
        "finished": NOW + 1 if phase.final else None,
        "steps": {},
    }
    return run_types.FlowRunView(**given | more)


def test_admission_is_written_before_anything_is_created() -> None:
    decided = plan.decide(facts(declared()))
    assert decided.status is not None
    assert (decided.status.generation, decided.status.phase) == (1, "Pending")
    assert decided.status.admission_time == clock.rfc3339(NOW)
    assert (decided.gang, decided.lease, decided.start) == (None, None, None)


def test_digest_is_written_before_the_gang_is_requested() -> None:
    seen = admitted()
    decided = plan.decide(facts(seen, pins={"trades": PIN}))
    assert decided.gang is None
    assert decided.again_s == 0.0
    written = with_status(seen, decided)
    assert written.status.snapshots["trades"].digest == MANIFEST.digest
    assert written.status.snapshots["trades"].shards == 3
    assert plan.decide(facts(written, pins={"trades": PIN})).gang is not None


def test_shards_are_planned_once_until_the_digest_or_the_number_changes() -> None:
    known = requirements.ShardCache()

    def asked(count: int, of: manifest.Manifest = MANIFEST) -> list[Any]:
        shard = sync_set.Shard(by="range", count=count)
        return known.shards(declared(), shard, of, name="trades")

    first = asked(2)
    assert asked(2) is first
    assert len(asked(3)) == 3
    other = manifest.Manifest(MANIFEST.files[:1])
    assert {one["digest"] for one in asked(3, other)} == {other.digest}
    assert asked(2) == first


def test_written_digest_is_never_replaced() -> None:
    """A pin with another digest fails the generation: no step reads mixed data."""
    other = msgspec.structs.replace(PIN, digest=DIGEST)
    decided = plan.decide(facts(pinned(), pins={"trades": other}))
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Failed", Reason.SOURCE_CHANGED)


@pytest.mark.parametrize("ready_gang", [True, False])
@pytest.mark.parametrize("ready_data", [True, False])
def test_flow_starts_exactly_when_gang_and_data_are_ready(
    ready_gang: bool,  # noqa: FBT001 - pytest
    ready_data: bool,  # noqa: FBT001 - pytest
) -> None:
    readiness = {"a": READY} if ready_data else {}
    known = facts(pinned(), pins={"trades": PIN}, gang=gang(ready=ready_gang), readiness=readiness)
    decided = plan.decide(known)
    assert (decided.start is not None) == (ready_gang and ready_data)
    assert decided.lease is not None
    assert decided.lease.nodes == {"a"}


def test_every_node_of_the_gang_needs_the_data() -> None:
    known = facts(pinned(), pins={"trades": PIN}, gang=gang(nodes="ab"), readiness={"a": READY})
    decided = plan.decide(known)
    assert decided.start is None
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Fetching", Reason.FETCHING)
    assert "node b has 0 of 0 bytes" in decided.status.message
    assert decided.status.data_ready == "1/2"


def test_started_flow_has_the_pinned_digests_and_shards() -> None:
    known = facts(pinned(), pins={"trades": PIN}, gang=gang(), readiness={"a": READY})
    start = plan.decide(known).start
    assert start is not None
    assert start.snapshots["trades"].digest == MANIFEST.digest
    assert [s["index"] for s in start.snapshots["trades"].shards or ()] == [0, 1, 2]
    assert start.clusters == {"worker": "risk-g1-worker"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pond": None}, Reason.WAITING_FOR_POND),
        ({"pond": flow_pond_interfaces.Pond(path="/x")}, Reason.WAITING_FOR_POND),
        ({"pins": {}}, Reason.PINNING),
    ],
)
def test_status_shows_the_reason_for_waiting(changes: dict[str, Any], reason: str) -> None:
    decided = plan.decide(facts(admitted(), **changes))
    assert decided.status is not None
    assert decided.status.reason == reason
    [condition] = [c for c in decided.status.conditions if c.type == "SnapshotPinned"]
    assert (condition.status, condition.reason) == ("False", reason)


def test_pinning_times_out() -> None:
    seen = admitted()
    decided = plan.decide(facts(seen, pins={}, now=NOW + 901))
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Failed", Reason.DATA_TIMED_OUT)


def test_fetching_times_out() -> None:
    known = facts(
        pinned(), pins={"trades": PIN}, gang=gang(), fetching_since=NOW + 5000, now=NOW + 5901
    )
    decided = plan.decide(known)
    assert decided.status is not None
    assert decided.status.reason == Reason.DATA_TIMED_OUT
    assert "fetching took longer than data.pond.timeoutSeconds, 900" in decided.status.message


def test_waiting_for_room_does_not_count_as_fetching() -> None:
    known = facts(pinned(), pins={"trades": PIN}, gang=gang(), now=NOW + 5000)
    decided = plan.decide(known)
    assert decided.status is not None
    assert decided.status.phase == "Fetching"


def test_corrupt_data_fails_the_generation() -> None:
    broken = pond_model.Readiness(reason="DataCorrupt", message="b.csv", lasting=True)
    known = facts(pinned(), pins={"trades": PIN}, gang=gang(), readiness={"a": broken})
    decided = plan.decide(known)
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Failed", Reason.DATA_CORRUPT)
    assert decided.status.message == "node a: b.csv"


@pytest.mark.parametrize(
    ("reason", "lasting", "killed"),
    [
        ("DataCorrupt", True, [Reason.DATA_CORRUPT]),
        ("DataCorrupt", False, []),  # it is being fetched again
        ("SourceChanged", True, []),  # a node that came late cannot have it, others go on
    ],
)
def test_corrupt_data_ends_a_running_flow(reason: str, *, lasting: bool, killed: list[str]) -> None:
    text = "node b: blob sha256:1 came damaged"  # as the ledger says it
    bad = pond_model.Readiness(reason=reason, message=text, lasting=lasting)
    seen, both = pinned(), gang(nodes="ab")
    ready = {"a": READY, "b": READY}
    begun = plan.decide(facts(seen, pins={"trades": PIN}, gang=both, readiness=ready)).start
    found = {"a": READY, "b": bad}
    known = facts(seen, flow=view(), stored_own=begun, gang=both, readiness=found)
    decided = plan.decide(known)
    kills = [] if decided.kill is None else [decided.kill]
    assert [kill.reason for kill in kills] == killed
    assert all(kill.message == text for kill in kills)


def test_failed_pin_fails_the_generation() -> None:
    failed = pond_model.Pin(state="Failed", reason="SourceMissing", message="no such file")
    decided = plan.decide(facts(admitted(), pins={"trades": failed}))
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Failed", Reason.PIN_FAILED)
    assert decided.status.message == "snapshot trades: no such file"


def test_large_data_leads_and_small_data_follows() -> None:
    seen = pinned()
    asked = plan.decide(facts(seen, pins={"trades": PIN})).gang
    assert asked is not None
    assert asked.data is not None
    assert not asked.data.lead
    large = msgspec.structs.replace(PIN, bytes=1 << 30)
    asked = plan.decide(facts(seen, pins={"trades": large})).gang
    assert asked is not None
    assert asked.data is not None
    assert asked.data.lead


@pytest.mark.parametrize("phase", [p for p in Phase if p.final])
def test_finished_generation_releases_everything(phase: Phase) -> None:
    over = sync_set.SyncSetStatus(generation=1, phase=str(phase), reason="X")
    decided = plan.decide(facts(declared(status=over), left=True))
    assert decided.release_groups
    assert decided.release_lease
    assert decided.status is not None
    assert decided.status.phase == phase
    assert (decided.start, decided.gang, decided.kill) == (None, None, None)


def test_deleted_set_is_forgotten() -> None:
    assert plan.decide(plan.Facts(seen=None, known=(1, 2))).forget == (1, 2)


def test_object_that_cannot_be_created_delays_the_gang() -> None:
    known = facts(pinned(), pins={"trades": PIN}, obstacle="spec.resources.objects[0]: no")
    decided = plan.decide(known)
    assert decided.gang is None
    assert decided.status is not None
    assert decided.status.reason == Reason.OBJECT_REFUSED


def reason_of(found: sync_set.SyncSetStatus, kind: str) -> str:
    return next(c.reason for c in found.conditions if c.type == kind)


REFUSED = {"reason": Reason.OBJECT_REFUSED, "message": "TaskCluster x cannot be made: quota"}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"obstacle": "spec.resources.objects[0]: no"}, "spec.resources.objects[0]: no"),
        ({"gang": gang(ready=False, **REFUSED)}, "TaskCluster x cannot be made: quota"),
    ],
)
def test_refused_object_fails_the_set_after_a_minute(more: dict[str, Any], text: str) -> None:
    known = facts(admitted(data=False), **more)
    first = plan.decide(known)
    assert first.status is not None
    assert (first.status.phase, first.status.message) == ("Placing", text)
    assert reason_of(first.status, "GangReady") == Reason.OBJECT_REFUSED
    last = plan.decide(msgspec.structs.replace(known, refused_s=60.0))
    assert last.status is not None
    assert (last.status.phase, last.status.reason) == ("Failed", Reason.OBJECT_REFUSED)
    assert last.status.message == f"{text} (tried for 60 s)"


def test_set_without_data_only_waits_for_workers() -> None:
    status = admitted(data=False).status
    assert reason_of(status, "SnapshotPinned") == Reason.NO_DATA
    assert reason_of(status, "GangReady") == Reason.WAITING_FOR_WORKERS


def test_flow_refused_by_the_engine_fails_the_generation() -> None:
    decided = plan.decide(facts(pinned(), pins={"trades": PIN}, refused="spec.flow.do: no"))
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Failed", Reason.INVALID_SPEC)


def test_deciding_again_changes_nothing() -> None:
    known = facts(pinned(), pins={"trades": PIN}, gang=gang(ready=False), readiness={})
    first = plan.decide(known)
    written = with_status(pinned(), first)
    again = plan.decide(msgspec.structs.replace(known, seen=written))
    assert again.status == written.status
    assert again.lease == first.lease


def test_kill_reason_decides_the_final_phase() -> None:
    seen = pinned()
    for reason, phase in (("DeadlineExceeded", "Failed"), ("Killed", "Killed")):
        ended = view(run_types.FlowPhase.KILLED, reason=reason, message="m")
        decided = plan.decide(facts(seen, flow=ended))
        assert decided.status is not None
        assert (decided.status.phase, decided.status.reason) == (phase, reason)


# What failed runs again


def failed(*, run: int = 2, **flow: Any) -> tuple[sync_set.SyncSet, plan.Facts]:
    """Return a generation whose flow has failed and for which another run is requested."""
    seen = pinned(deadlineSeconds=60)
    ended = view(run_types.FlowPhase.FAILED, reason="Raised", message="no price", **flow)
    seen = with_status(seen, plan.decide(facts(seen, flow=ended)))
    seen = msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, run=run))
    return seen, facts(seen, flow=ended, now=NOW + 100, gang=gang(), readiness={"a": READY})


def own(**more: Any) -> run_types.NewFlowRun:
    """Return the definition with which the flow was started; it differs from the current spec."""
    snapshots = {
        "trades": run_types.SnapshotRef(name="trades", digest=MANIFEST.digest, shards=[{}])
    }
    given: dict[str, Any] = {
        "uid": "u",
        "namespace": "default",
        "set_name": "risk",
        "generation": 1,
    }
    return run_types.NewFlowRun(**given, flow=declared().spec.flow, snapshots=snapshots, **more)


def test_next_run_starts_when_nothing_is_left_of_the_previous_run() -> None:
    seen, known = failed()
    waits = plan.decide(msgspec.structs.replace(known, left=True))
    assert (waits.release_groups, waits.release_lease, waits.status) == (True, True, None)
    decided = plan.decide(known)
    again = with_status(seen, decided).status
    assert (again.phase, again.reason, again.run) == ("Pending", Reason.RETRYING, 2)
    assert (again.snapshots, again.start_time) == (seen.status.snapshots, seen.status.start_time)
    assert (again.finish_time, again.generations) == (None, ())
    assert [one.generation for one in seen.status.generations] == [1]


def test_flow_continues_exactly_when_gang_and_data_are_ready_again() -> None:
    """The flow keeps its definition; its deadline starts again."""
    seen, known = failed()
    seen = with_status(seen, plan.decide(known))
    known = msgspec.structs.replace(known, seen=seen, stored_own=own())
    late = plan.decide(msgspec.structs.replace(known, readiness={}))
    assert late.status is not None
    assert (late.retry, late.start, late.status.phase) == (None, None, "Fetching")
    decided = plan.decide(known)
    assert (decided.retry, decided.start) == (2, None)
    flow = view(run=2)
    goes_on = plan.decide(msgspec.structs.replace(known, flow=flow))
    assert goes_on.status is not None
    assert (goes_on.status.phase, goes_on.kill, goes_on.retry) == ("Running", None, None)


@pytest.mark.parametrize(
    ("flow", "outputs", "why"),
    [
        ({"phase": run_types.FlowPhase.SUCCEEDED}, (), "its flow has succeeded"),
        ({}, ({"name": "prices", "step": "x"},), "the files of output prices that tasks of step x"),
    ],
)
def test_run_with_missing_data_is_refused_once(
    flow: dict[str, Any], outputs: tuple[dict[str, Any], ...], why: str
) -> None:
    seen, known = failed()
    steps = {"x": run_types.StepView(total=2, succeeded=1, failed=1)}
    ended = view(**{"phase": run_types.FlowPhase.FAILED, "steps": steps} | flow)
    new = own(outputs=msgspec.convert(outputs, tuple[sync_set.Output, ...]))
    known = msgspec.structs.replace(known, flow=ended, stored_own=new)
    refused = with_status(seen, plan.decide(known))
    assert (refused.status.phase, refused.status.run) == ("Failed", 2)
    assert f"no price; run 2 is refused, {why}" in refused.status.message
    assert plan.decide(msgspec.structs.replace(known, seen=refused)).status == refused.status


def test_generation_failed_before_its_flow_restarts_with_its_digests() -> None:
    seen = pinned()
    seen = with_status(
        seen, plan.decide(facts(seen, pins={"trades": PIN}, gang=gang(broken="lost")))
    )
    assert seen.status.phase == "Failed"
    seen = msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, run=2))
    seen = with_status(seen, plan.decide(facts(seen)))
    known = facts(seen, pins={"trades": PIN}, gang=gang(), readiness={"a": READY})
    decided = plan.decide(known)
    assert decided.start is not None
    assert (decided.start.run, decided.start.snapshots["trades"].digest) == (2, MANIFEST.digest)


# Shares of the data

SHARED: dict[str, Any] = {
    "name": "trades",
    "from": {"inline": {"a": "1"}},
    "shard": {"by": "files"},
    "deliver": "shard",
}
REQUESTS = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}


def shared_set(**more: Any) -> sync_set.SyncSet:
    template = {"spec": {"containers": [{"name": "worker", **REQUESTS}]}}
    return pinned(
        backend="pods",
        data={"snapshots": [SHARED]},
        flow={"do": [{"x": {"each": "s", "of": "data.trades", "command": ["true"]}}]},
        resources={"groups": [{"name": "worker", "replicas": 2, "template": template}]},
        **more,
    )


def shared_facts(held: dict[str, set[int]]) -> plan.Facts:
    wanted = {"worker": {"a": frozenset({0}), "b": frozenset({1})}}
    by_node = {node: frozenset(has) for node, has in held.items()}
    return facts(
        shared_set(),
        backend=sync_set.Backend.PODS,
        pins={"trades": PIN},
        gang=gang(nodes="ab", portions=wanted),
        readiness={"a": READY, "b": READY},
        held={"worker": by_node},
    )


def test_flow_waits_until_every_portion_is_held() -> None:
    decided = plan.decide(shared_facts({"a": {0}}))
    assert decided.start is None
    assert decided.status is not None
    message = "no node holds portions 1 of group worker yet"
    assert (decided.status.reason, decided.status.message) == (Reason.FETCHING, message)
    decided = plan.decide(shared_facts({"a": {0}, "b": {1}}))
    assert decided.start is not None
    assert (decided.start.by_shard, decided.start.portions) == (("trades",), {"worker": 2})
    assert decided.serve == {"risk-g1-worker": {"a": {0}, "b": {1}}}


def test_lease_has_shards_of_the_workers_and_former_shards_of_a_node() -> None:
    decided = plan.decide(shared_facts({"a": {0, 1}, "gone": {1}}))
    assert decided.lease is not None
    [snapshot] = decided.lease.snapshots
    assert snapshot.paths_by_node == {"a": ("1.csv", "2.csv", "3.csv"), "b": ("3.csv",)}
    assert decided.lease.portions == {"worker": {"a": {0, 1}, "b": {1}}}


def elastic_set(replicas: int, **more: Any) -> sync_set.SyncSet:
    group = {"name": "worker", "replicas": replicas, "min": 1, "elastic": {"max": 4}}
    snapshot = {**SHARED, "deliver": "all", "shard": {"by": "range", "group": "worker"}}
    data = {"snapshots": [snapshot]}
    return declared(resources={"groups": [group]}, data=data, **more)


@pytest.mark.parametrize(("replayed", "expected"), [(None, {"trades": 3}), (1, {})])
def test_shards_follow_the_number_of_workers_except_in_a_replay(
    replayed: int | None, expected: dict[str, int]
) -> None:
    snapshots = {
        "trades": run_types.SnapshotRef(name="trades", digest=MANIFEST.digest, shards=[{}, {}])
    }
    shown = {"trades": sync_set.SnapshotStatus(digest=MANIFEST.digest, shards=2)}
    seen = elastic_set(
        3,
        status=sync_set.SyncSetStatus(
            generation=1, phase="Running", snapshots=shown, replay_of=replayed
        ),
    )
    stored = run_types.NewFlowRun(
        uid="u",
        namespace="default",
        set_name="risk",
        generation=1,
        flow=seen.spec.flow,
        snapshots=snapshots,
    )
    known = facts(seen, flow=view(), stored_own=stored, gang=gang(), readiness={"a": READY})
    assert plan.decide(known).reshard == expected


OUTPUT = pond_model.Pin(
    state="Pinned",
    digest=MANIFEST.digest,
    manifest=MANIFEST,
    bytes=30,
    paths_by_node={"a": ("1.csv", "2.csv"), "b": ("3.csv",)},
)
OVER = view(run_types.FlowPhase.SUCCEEDED, value=1)


def test_set_succeeds_only_after_outputs_are_pinned_and_held() -> None:
    seen = pinned()
    late = pond_model.Pin(message="node a reads it")
    first = plan.decide(facts(seen, flow=OVER, pins_of_outputs={"prices": late}))
    assert first.outputs is None
    assert first.release_groups
    assert first.status is not None
    assert (first.status.phase, first.status.reason) == ("Running", Reason.KEEPING_OUTPUTS)
    assert first.status.message == "output prices: node a reads it"
    known = facts(seen, flow=OVER, pins_of_outputs={"prices": OUTPUT})
    second = plan.decide(known)
    assert second.outputs is not None
    assert second.outputs.nodes == {"a", "b"}
    assert second.status is not None
    assert second.status.phase == "Running"
    kept = {"a": READY, "b": pond_model.Readiness(message="node b fetches")}
    third = plan.decide(msgspec.structs.replace(known, kept=kept))
    assert third.status is not None
    assert third.status.message == "node b fetches"
    last = plan.decide(msgspec.structs.replace(known, kept={"a": READY, "b": READY}))
    assert last.status is not None
    assert last.status.phase == "Succeeded"
    assert last.status.outputs["prices"].digest == MANIFEST.digest
    assert last.status.generations[0].outputs == {"prices": MANIFEST.digest}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"pins_of_outputs": {"prices": pond_model.Pin(state="Failed", message="a link")}},
            "output prices: a link",
        ),
        ({"unknown_output": "output prices: gone"}, "output prices: gone"),
    ],
)
def test_output_that_cannot_be_stored_fails_the_set(more: dict[str, Any], message: str) -> None:
    decided = plan.decide(facts(pinned(), flow=OVER, **more))
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Failed", Reason.OUTPUT_FAILED)
    assert decided.status.message == message


def test_outputs_that_take_too_long_fail_the_set() -> None:
    known = facts(
        pinned(), flow=OVER, pins_of_outputs={"prices": pond_model.Pin(message="node a is silent")}
    )
    decided = plan.decide(msgspec.structs.replace(known, now=NOW + 902))
    assert decided.status is not None
    assert (decided.status.phase, decided.status.reason) == ("Failed", Reason.DATA_TIMED_OUT)
    assert "keeping outputs took longer" in decided.status.message


def test_failed_flow_keeps_no_outputs() -> None:
    failed = view(run_types.FlowPhase.FAILED, reason="Raised")
    decided = plan.decide(facts(pinned(), flow=failed, pins_of_outputs={"prices": OUTPUT}))
    assert decided.outputs is None
    assert decided.status is not None
    assert decided.status.phase == "Failed"
