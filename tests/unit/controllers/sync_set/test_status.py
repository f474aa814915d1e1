"""The status of a SyncSet: what is kept of it, and when it is written."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, sync_set
from kilnwork.controllers.sync_set import status
from kilnwork.kit import clock

NOW = 1_800_000_000.0
Phase = sync_set.Phase


def declared(wanted: int = 1, **of_status: Any) -> sync_set.SyncSet:
    body = {
        "resources": {"groups": [{"name": "worker"}]},
        "flow": {"do": [{"x": {"command": ["true"]}}]},
        "generation": wanted,
        "keep": {"generations": 2},
    }
    return sync_set.SyncSet(
        metadata=meta.ObjectMeta(name="risk", generation=7),
        spec=msgspec.convert(body, sync_set.SyncSetSpec),
        status=sync_set.SyncSetStatus(**of_status),
    )


def make(seen: sync_set.SyncSet, phase: Phase, reason: str = "X", message: str = "m") -> Any:
    shown = status.StatusContent(phase, status.Explanation(reason, message))
    return status.make(seen, shown, now=NOW)


def test_admission_starts_a_new_status() -> None:
    old = declared(2, generation=1, phase="Succeeded", start_time=clock.rfc3339(NOW - 9))
    begun = status.begin(old, backend=sync_set.Backend.LOCAL, now=NOW).status
    assert (begun.generation, begun.phase, begun.start_time) == (2, "Pending", None)
    assert begun.backend_ref is not None
    assert begun.backend_ref.names == ("risk-g2-worker",)
    assert [one.generation for one in begun.generations] == [1], "it can be replayed"


def test_history_has_at_most_keep_generations() -> None:
    past = tuple(sync_set.GenerationStatus(generation=n) for n in (3, 2, 1))
    assert [g.generation for g in status.observed(declared(generations=past)).generations] == [3, 2]


def test_conditions_follow_the_phase() -> None:
    found = {c.type: c.status for c in make(declared(), Phase.RUNNING).conditions}
    assert found["Succeeded"] == "Unknown"
    assert found["SnapshotPinned"] == "True", "it has no snapshots"
    ended = {c.type: c.status for c in make(declared(), Phase.FAILED).conditions}
    assert (ended["Succeeded"], ended["FlowRunning"]) == ("False", "False")


def test_finish_time_does_not_change() -> None:
    ended = make(declared(), Phase.FAILED)
    assert ended.finish_time == clock.rfc3339(NOW)
    seen = msgspec.structs.replace(declared(), status=ended)
    later = status.StatusContent(Phase.FAILED, status.Explanation("X", "m"))
    assert status.make(seen, later, now=NOW + 9).finish_time == ended.finish_time


def test_a_refused_run_keeps_the_message() -> None:
    seen = declared(phase="Failed", message="step x failed")
    found = status.refuse_again(seen, "data is gone")
    assert found.message == "step x failed; run 1 is refused, data is gone"


@pytest.mark.parametrize(
    ("wanted", "wait_s"),
    [
        (sync_set.SyncSetStatus(), None),
        (sync_set.SyncSetStatus(progress="1/2"), 0.75),
        (sync_set.SyncSetStatus(reason="Pinning"), 0.2),
        (sync_set.SyncSetStatus(phase="Failed"), 0.0),
        (sync_set.SyncSetStatus(generation=1), 0.0),
    ],
)
def test_wait_before_a_write_depends_on_the_difference(
    wanted: sync_set.SyncSetStatus, wait_s: float | None
) -> None:
    found = status.wait_s(
        sync_set.SyncSetStatus(), wanted, written=NOW - 0.25, differs_since=NOW - 0.1, now=NOW
    )
    assert found == (None if wait_s is None else pytest.approx(wait_s, abs=1e-6))


@pytest.mark.parametrize(
    ("phase", "type_"),
    [("Failed", "Warning"), ("Succeeded", "Normal"), ("Running", "Normal"), ("Placing", None)],
)
def test_announcement_of_phase_changes(phase: str, type_: str | None) -> None:
    before = sync_set.SyncSetStatus(phase="Fetching", generation=1)
    after = sync_set.SyncSetStatus(phase=phase, generation=1, reason="R", message="m")
    found = status.announcement(before, after)
    assert (None if found is None else found.type) == type_
    assert status.announcement(after, after) is None
