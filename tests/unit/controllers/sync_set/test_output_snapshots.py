"""Which files count as an output, and which SyncSets may read it."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond, meta, sync_set
from kilnwork.controllers.data_pond import model as pond_model
from kilnwork.controllers.sync_set import output_snapshots
from kilnwork.jobs.flows import run_types

S = run_types.InstanceState


def instance(
    key: str, state: run_types.InstanceState = S.SUCCEEDED, **more: Any
) -> run_types.InstanceView:
    given = {"task": "t", "node": "a", "attempt": 1, **more}
    return run_types.InstanceView(key=key, step="price", state=state, **given)


def test_only_successful_attempts_count() -> None:
    found = output_snapshots.where_written(
        [
            instance("price[0]", attempt=2),
            instance("price[1]", S.FAILED),
            instance("price[2]", node="b", task="u", run=3),
        ]
    )
    assert found.attempts == {"a": ("t.1.2",), "b": ("u.3.1",)}
    assert found.unknown == ""


def test_task_with_an_unknown_node_is_reported() -> None:
    found = output_snapshots.where_written(
        [instance("price[0]"), instance("price[1]", node="", attempt=0)]
    )
    assert found.unknown == "price[1]"


def writer(**status: Any) -> sync_set.SyncSet:
    spec = {
        "generation": 3,
        "resources": {"groups": [{"name": "worker"}]},
        "flow": {"do": [{"price": {"command": ["true"]}}]},
        "data": {"outputs": [{"name": "prices", "step": "price"}]},
    }
    return sync_set.SyncSet(
        metadata=meta.ObjectMeta(name="writer", namespace="default", uid="u"),
        spec=msgspec.convert(spec, sync_set.SyncSetSpec),
        status=sync_set.SyncSetStatus(generation=3, **status),
    )


PAST = sync_set.GenerationStatus(generation=2, phase="Succeeded", outputs={"prices": "sha256:2"})
DONE = {
    "phase": "Succeeded",
    "outputs": {"prices": sync_set.OutputStatus(digest="sha256:3")},
    "generations": (PAST,),
}


@pytest.mark.parametrize(
    ("of", "generation", "found"),
    [
        (writer(**DONE), None, "sha256:3"),
        (writer(**DONE), 3, "sha256:3"),
        (writer(**DONE), 2, "sha256:2"),
        (writer(phase="Running", generations=(PAST,)), None, "sha256:2"),
    ],
)
def test_output_is_that_of_the_requested_or_newest_generation(
    of: sync_set.SyncSet, generation: int | None, found: str
) -> None:
    ref = data_pond.OutputRef(set="writer", name="prices", generation=generation)
    assert output_snapshots.find_output(of, ref, pond="default", reader="reader") == found


@pytest.mark.parametrize(
    ("of", "ref", "state", "message"),
    [
        (None, {}, "Pending", "SyncSet writer does not exist"),
        (writer(phase="Running"), {}, "Pending", "has not written output prices yet: it is Run"),
        (writer(phase="Failed"), {}, "Failed", "has no output prices: generation 3 Failed"),
        (writer(**DONE), {"generation": 1}, "Failed", "keeps no output prices of generation 1"),
        (writer(**DONE), {"name": "x"}, "Failed", "has no output x in spec.data.outputs"),
    ],
)
def test_missing_output_is_awaited_or_fails(
    of: sync_set.SyncSet | None, ref: dict[str, Any], state: str, message: str
) -> None:
    wanted = data_pond.OutputRef(**{"set": "writer", "name": "prices", **ref})
    found = output_snapshots.find_output(of, wanted, pond="default", reader="reader")
    assert isinstance(found, pond_model.Pin)
    assert (found.state, message in found.message) == (state, True)


def test_output_in_another_pond_fails() -> None:
    ref = data_pond.OutputRef(set="writer", name="prices")
    found = output_snapshots.find_output(writer(**DONE), ref, pond="lake", reader="reader")
    assert isinstance(found, pond_model.Pin)
    assert found.state == "Failed"


def test_own_output_is_that_of_an_earlier_generation() -> None:
    ref = data_pond.OutputRef(set="writer", name="prices")
    first = output_snapshots.find_output(
        writer(phase="Pending"), ref, pond="default", reader="writer"
    )
    assert isinstance(first, pond_model.Pin)
    assert first.state == "Failed"
    assert "give the first generation another source" in first.message
    second = writer(phase="Pending", generations=(PAST,))
    assert output_snapshots.find_output(second, ref, pond="default", reader="writer") == "sha256:2"


def test_leases_of_kept_generations_are_kept() -> None:
    assert output_snapshots.kept_leases(writer(**DONE)) == {"writer-g3.out", "writer-g2.out"}
