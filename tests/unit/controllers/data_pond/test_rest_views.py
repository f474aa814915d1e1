"""Views of a pond for users of the REST API."""

from kilnwork.api import pond_messages, pond_views
from kilnwork.controllers.data_pond import model, pond_state, rest_views
from kilnwork.kit import clock

TROUBLE = pond_messages.PondTrouble(reason="PondUnusable", message="is read-only")


def test_nodes_are_ready_while_they_report_without_problems() -> None:
    time = clock.ManualClock()
    pond = pond_state.PondState("quant", "lake", time=time)
    pond.take_report("n3", pond_messages.Report(session="s", sequence=1))
    time.advance(pond_messages.SILENT_S)
    pond.take_report("n2", pond_messages.Report(session="s", sequence=1, trouble=TROUBLE))
    pond.take_report("n1", pond_messages.Report(session="s", sequence=1, used=7))
    made = rest_views.nodes(pond)
    assert [(one.node, one.ready) for one in made] == [("n1", True), ("n2", False), ("n3", False)]
    assert made[0].used == 7


def test_leases_of_users_are_shown_without_prefix() -> None:
    pond = pond_state.PondState("quant", "lake", time=clock.ManualClock())
    wanted = [model.WantedSnapshot(name="m", digest="d")]
    pond.want(f"{pond_views.LEASE_PREFIX}mine", nodes=["n1"], snapshots=wanted)
    pond.want("risk-g1", nodes=["n1"], snapshots=wanted)
    made = {one.name: one for one in rest_views.leases(pond)}
    assert {name: one.user for name, one in made.items()} == {"mine": True, "risk-g1": False}
    assert not made["mine"].ready


def test_a_lease_without_nodes_is_not_ready() -> None:
    pond = pond_state.PondState("quant", "lake", time=clock.ManualClock())
    pin = model.Pin(state=model.PINNED, digest="d", bytes=5)
    made = rest_views.lease(pond, "x", {"m": pin})
    assert not made.ready
    assert (made.snapshots["m"].state, made.snapshots["m"].bytes) == ("Pinned", 5)
