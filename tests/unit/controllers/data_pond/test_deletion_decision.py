"""The deletion of a DataPond waits for leases, then for agents, for a limited time."""

from typing import Any

import pytest

from kilnwork.api import data_pond, meta, pod, pond_messages, reasons
from kilnwork.controllers.data_pond import deletion_decision, model, pond_state
from kilnwork.kit import clock

NOW = clock.ManualClock().wall()


def state(**removed: bool) -> pond_state.PondState:
    """Return a pond whose data is being removed. `removed`: whether each node has removed its
    data.
    """
    made = pond_state.PondState("quant", "lake", time=clock.ManualClock())
    for node, done in removed.items():
        report = pond_messages.Report(session="s", sequence=1, store="x", removed=done)
        made.take_report(node, report)
    return made


def on_node(node: str) -> pod.Pod:
    return pod.Pod(metadata=meta.ObjectMeta(name=node), spec=pod.PodSpec(node_name=node))


def decide(
    known: pond_state.PondState | None, *pods: pod.Pod, **more: Any
) -> deletion_decision.Deletion:
    given = {"refused": False, "now": NOW, **more}
    return deletion_decision.decide(known, pods, **given)


def test_leases_of_sync_sets_delay_the_deletion() -> None:
    known = state(n1=False)
    wanted = model.WantedSnapshot(name="m", digest="d")
    known.want("risk-g1", nodes=None, snapshots=[wanted])
    decided = decide(known)
    assert (decided.reason, decided.remove) == (reasons.PondReason.LEASES_HELD, False)
    known.remove()
    assert decide(known).remove, "once begun it goes on"


def test_deletion_ends_when_all_agents_have_removed_their_data() -> None:
    known = state(n1=True, n2=False)
    known.remove()
    decided = decide(known, on_node("n1"))
    assert (decided.remove, decided.finished) == (True, False)
    assert "n2" in decided.message
    done = decide(state(n1=True), on_node("n1"))
    assert (done.remove, done.finished, done.left) == (False, True, ())


def test_deletion_waits_for_a_pod_without_a_report() -> None:
    assert not decide(state(), on_node("n1")).finished
    assert decide(None).finished


@pytest.mark.parametrize(("passed_s", "over"), [(0, False), (299, False), (300, True)])
def test_deletion_waits_some_minutes_for_unreachable_nodes(passed_s: float, *, over: bool) -> None:
    known = state()
    known.remove()
    decided = decide(known, on_node("n1"), now=NOW + passed_s)
    assert decided.finished is over
    assert decided.left == (("n1",) if over else ())
    assert decided.again_s == 300 - passed_s


def test_deletion_ends_if_agents_are_refused_and_none_is_live() -> None:
    assert decide(state(), on_node("n1"), refused=True).finished
    assert not decide(state(n1=False), on_node("n1"), refused=True).finished


def test_only_a_deleted_pond_with_the_finalizer_is_closing() -> None:
    def pond(*finalizers: str, deleted: str | None) -> data_pond.DataPond:
        metadata = meta.ObjectMeta(name="p", finalizers=finalizers, deletion_timestamp=deleted)
        return data_pond.DataPond(metadata=metadata, spec=data_pond.DataPondSpec())

    assert deletion_decision.is_being_deleted(
        pond(deletion_decision.FINALIZER, deleted="2026-01-01T00:00:00Z")
    )
    assert not deletion_decision.is_being_deleted(pond("other", deleted="2026-01-01T00:00:00Z"))
    assert not deletion_decision.is_being_deleted(pond(deletion_decision.FINALIZER, deleted=None))


def test_directory_of_an_agent_counts_as_data() -> None:
    assert deletion_decision.has_data(state(n1=False))
    assert not deletion_decision.has_data(state())
    assert not deletion_decision.has_data(None)
