"""The progress of a generation's snapshots."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, reasons, sync_set
from kilnwork.controllers.data_pond import model as pond_model
from kilnwork.controllers.sync_set import flow_pond_interfaces, requirements, snapshot_digests
from kilnwork.jobs.flows import run_types

POND = flow_pond_interfaces.Pond(path="/pond", nodes=frozenset({"a"}))
PIN = pond_model.Pin(state="Pinned", digest="d1", bytes=5)
Reason = reasons.SetReason


def declared(*, digest: str | None = None, data: bool = True, **status: Any) -> sync_set.SyncSet:
    snapshot = {"name": "trades", "from": {"inline": {"a": "1"}}}
    body = {
        "resources": {"groups": [{"name": "worker"}]},
        "flow": {"do": [{"x": {"command": ["true"]}}]},
        "data": {"snapshots": [snapshot]} if data else {},
    }
    seen = sync_set.SyncSet(
        metadata=meta.ObjectMeta(name="risk", namespace="n"),
        spec=msgspec.convert(body, sync_set.SyncSetSpec),
        status=sync_set.SyncSetStatus(**status),
    )
    if digest is None:
        return seen
    snapshots = (msgspec.structs.replace(seen.spec.data.snapshots[0], digest=digest),)
    given = msgspec.structs.replace(seen.spec.data, snapshots=snapshots)
    return msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, data=given))


def resolve(seen: sync_set.SyncSet, **more: Any) -> snapshot_digests.Pinned:
    given: dict[str, Any] = {"pins": {}, "stored": None, "pond": POND, **more}
    pins = given.pop("pins")
    return snapshot_digests.resolve_pins(seen, pins, planned=requirements.ShardCache(), **given)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"pond": None}, Reason.WAITING_FOR_POND),
        (
            {"pond": flow_pond_interfaces.Pond(path="/p", nodes=frozenset())},
            Reason.WAITING_FOR_POND,
        ),
        ({}, Reason.PINNING),
        ({"pins": {"trades": pond_model.Pin(message="reading")}}, Reason.PINNING),
    ],
)
def test_unfinished_pins_are_awaited(more: dict[str, Any], reason: reasons.SetReason) -> None:
    found = resolve(declared(), **more)
    assert (found.program, found.why.reason) == (None, reason)


def test_a_pin_becomes_a_digest() -> None:
    found = resolve(declared(), pins={"trades": PIN})
    assert found.snapshots["trades"].digest == "d1"
    assert found.program is not None
    assert found.is_new(sync_set.SyncSetStatus())


def test_without_data_nothing_is_pinned() -> None:
    found = resolve(declared(data=False), pond=None)
    assert found.program is not None
    assert found.why.reason == Reason.NO_DATA


@pytest.mark.parametrize(
    ("seen", "pin", "reason"),
    [
        (declared(), pond_model.Pin(state="Failed", reason="X"), Reason.PIN_FAILED),
        (declared(), pond_model.Pin(state="Failed", reason="SourceChanged"), Reason.SOURCE_CHANGED),
        (declared(digest="d2"), PIN, Reason.SOURCE_CHANGED),
        (
            declared(snapshots={"trades": sync_set.SnapshotStatus(digest="d0")}),
            PIN,
            Reason.SOURCE_CHANGED,
        ),
    ],
)
def test_failed_pins_raise_cannot_pin(
    seen: sync_set.SyncSet, pin: pond_model.Pin, reason: reasons.SetReason
) -> None:
    with pytest.raises(snapshot_digests.CannotPin) as refused:
        resolve(seen, pins={"trades": pin})
    assert refused.value.reason == reason


def test_replay_uses_the_stored_snapshots() -> None:
    seen = declared(replay_of=1)
    with pytest.raises(snapshot_digests.CannotPin, match="generation 1 is not kept"):
        resolve(seen)
    stored = run_types.NewFlowRun(
        uid="u",
        namespace="n",
        set_name="risk",
        generation=1,
        flow=seen.spec.flow,
        snapshots={"trades": run_types.SnapshotRef(name="trades", digest="d9")},
    )
    assert resolve(seen, stored=stored).snapshots["trades"].digest == "d9"


def test_written_digest_takes_precedence_over_the_spec() -> None:
    written = declared(digest="d2", snapshots={"trades": sync_set.SnapshotStatus(digest="d0")})
    assert snapshot_digests.wanted_digest(written, "trades", None) == "d0"
    assert snapshot_digests.wanted_digest(declared(digest="d2"), "trades", None) == "d2"
    assert snapshot_digests.wanted_digest(declared(), "trades", None) is None
