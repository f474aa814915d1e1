"""The state of one pond: reports in order, silence, and shared disks."""

from typing import Any

import pytest

from kilnwork.api import data_pond, pond_messages
from kilnwork.controllers.data_pond import model, pond_state
from kilnwork.kit import clock

WANTED = [model.WantedSnapshot(name="m", digest="d")]


@pytest.fixture
def time() -> clock.ManualClock:
    return clock.ManualClock()


@pytest.fixture
def pond(time: clock.ManualClock) -> pond_state.PondState:
    return pond_state.PondState("quant", "lake", time=time)


def report(sequence: int = 1, *, session: str = "s", **facts: Any) -> pond_messages.Report:
    return pond_messages.Report(session=session, sequence=sequence, **facts)


def test_an_older_report_is_ignored(pond: pond_state.PondState) -> None:
    assert pond.take_report("n1", report(2, used=2))
    assert not pond.take_report("n1", report(1, used=1))
    assert pond.agents["n1"].report.used == 2
    pond.take_report("n1", report(1, session="t", used=1))
    assert pond.agents["n1"].report.used == 1, "another session counts from the beginning"


def test_a_node_is_live_until_its_agent_is_silent(
    pond: pond_state.PondState, time: clock.ManualClock
) -> None:
    assert pond.note_silence() is None
    pond.take_report("n1", report())
    time.advance(10)
    assert pond.note_silence() == pond_messages.SILENT_S - 10
    time.advance(pond_messages.SILENT_S - 10)
    before = pond.revision
    assert pond.note_silence() is None
    assert pond.live() == frozenset()
    assert pond.revision > before


def test_an_agent_serves_the_nodes_that_share_its_disk(pond: pond_state.PondState) -> None:
    holding = pond_messages.HoldingReport(digest="d", files=1, bytes=5, files_here=1, bytes_here=5)
    pond.take_report("n1", report(store="x", holdings=(holding,)))
    pond.take_report("n2", report(store="x", shares="n1"))
    pond.take_report("n3", report(store="y"))
    assert pond.owner("n2", pond.live()) == "n1"
    assert pond.owner("n3", pond.live()) == "n3"
    assert pond.holders("d") == {"n1": 5, "n2": 5}


def test_repeated_report_changes_nothing(pond: pond_state.PondState) -> None:
    pond.set_spec(data_pond.DataPondSpec(), "/pond")
    pond.want("risk-g1", nodes=["n1"], snapshots=WANTED)
    pond.remove()
    before = pond.revision
    pond.set_spec(data_pond.DataPondSpec(), "/pond")
    pond.want("risk-g1", nodes=["n1"], snapshots=WANTED)
    pond.remove()
    assert pond.revision == before
    pond.want("risk-g1", nodes=["n1"], snapshots=WANTED, outputs=True)
    assert pond.revision == before + 1


def test_order_releases_a_released_lease(pond: pond_state.PondState) -> None:
    pond.take_report("n1", report(leases=(pond_messages.LeaseReport(name="risk-g1"),)))
    pond.want("risk-g1", nodes=["n1"], snapshots=WANTED)
    assert [lease.name for lease in pond.order("n1").leases] == ["risk-g1"]
    pond.release("risk-g1")
    order = pond.order("n1")
    assert (order.leases, order.released) == ((), ("risk-g1",))


def test_a_deleted_pond_pins_nothing_new(pond: pond_state.PondState) -> None:
    source = data_pond.SnapshotSource(inline={"a": "1"})
    kept = pond.want_pin("r1", source, digest=None)
    pond.deleted = True
    assert pond.want_pin("r1", source, digest=None) == kept
    assert pond.want_pin("r2", source, digest=None).reason == "WaitingForPond"
    assert pond.pins == ("r1",)
