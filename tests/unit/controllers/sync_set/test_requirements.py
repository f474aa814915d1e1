"""The requirements of a generation: workers, start order, and snapshots by node."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, sync_set
from kilnwork.controllers.sync_set import requirements
from kilnwork.jobs.flows import run_types

LOCAL, PODS = sync_set.Backend.LOCAL, sync_set.Backend.PODS


def declared(groups: list[dict[str, Any]] | None = None, **data: Any) -> sync_set.SyncSet:
    snapshot = {
        "name": "trades",
        "from": {"inline": {"a": "1"}},
        "shard": {"by": "files"},
        "deliver": "shard",
    }
    body = {
        "resources": {"groups": groups or [{"name": "worker", "replicas": 2}]},
        "flow": {"do": [{"x": {"call": "m:f", "each": "s", "of": "data.trades"}}]},
        "data": {"snapshots": [snapshot], **data},
    }
    return sync_set.SyncSet(
        metadata=meta.ObjectMeta(name="risk"),
        spec=msgspec.convert(body, sync_set.SyncSetSpec),
        status=sync_set.SyncSetStatus(snapshots={"trades": sync_set.SnapshotStatus(digest="d")}),
    )


def ref(count: int = 4, size: int = 10) -> dict[str, run_types.SnapshotRef]:
    shards = [{"index": n, "count": count, "files": [{"path": f"{n}.csv"}]} for n in range(count)]
    return {"trades": run_types.SnapshotRef(name="trades", digest="d", bytes=size, shards=shards)}


def program(seen: sync_set.SyncSet, refs: dict[str, run_types.SnapshotRef]) -> requirements.Program:
    return requirements.Program(flow=seen.spec.flow, snapshots=refs)


@pytest.mark.parametrize(
    ("group", "count"),
    [
        ({"name": "g"}, 1),
        ({"name": "g", "replicas": 3}, 3),
        ({"name": "g", "replicasOf": {"snapshot": "trades", "max": 9}}, 4),
        ({"name": "g", "replicasOf": {"snapshot": "trades", "max": 2}}, 2),
        ({"name": "g", "replicasOf": {"snapshot": "other", "max": 9}}, 1),
    ],
)
def test_replicas_of_a_group(group: dict[str, Any], count: int) -> None:
    assert requirements.replicas(msgspec.convert(group, sync_set.Group), ref()) == count


def test_groups_have_portions_only_with_several_nodes() -> None:
    seen = declared()
    (pods,) = requirements.groups(seen, 1, program(seen, ref()), backend=PODS)
    (local,) = requirements.groups(seen, 1, program(seen, ref()), backend=LOCAL)
    assert (pods.replicas, pods.min, pods.portions, pods.cluster) == (2, 2, 2, "risk-g1-worker")
    assert local.portions == 0


def test_there_are_no_more_portions_than_shards() -> None:
    seen = declared([{"name": "worker", "replicas": 3, "elastic": {"max": 9}}])
    (made,) = requirements.groups(seen, 1, program(seen, ref(4)), backend=PODS)
    assert made.portions == 4


@pytest.mark.parametrize(
    ("groups", "pond", "size", "leads"),
    [
        (None, {}, 256 << 20, False),
        (None, {}, (256 << 20) + 1, True),
        (None, {"order": "lead"}, 1, True),
        (None, {"order": "follow"}, 1 << 40, False),
        ([{"name": "worker", "near": ["trades"], "nearMode": "required"}], {}, 1, True),
    ],
)
def test_data_leads_if_large_or_required(
    groups: Any, pond: dict[str, Any], size: int, *, leads: bool
) -> None:
    assert requirements.data_leads(declared(groups, pond=pond), ref(size=size)) is leads


def test_a_node_gets_the_files_of_its_portions() -> None:
    seen = declared()
    (made,) = requirements.wanted_snapshots(
        seen,
        program(seen, ref(4)),
        counts={"worker": 2},
        portions={"worker": {"n1": frozenset({0}), "n2": frozenset({1})}},
        backend=PODS,
    )
    assert made.paths_by_node is not None
    files = [set(made.paths_by_node[node]) for node in ("n1", "n2")]
    assert files[0] | files[1] == {"0.csv", "1.csv", "2.csv", "3.csv"}
    assert not files[0] & files[1]


def test_a_single_node_gets_all_files() -> None:
    seen = declared()
    (made,) = requirements.wanted_snapshots(
        seen, program(seen, ref()), counts={}, portions={}, backend=LOCAL
    )
    assert (made.paths, made.paths_by_node) == (None, None)


def test_copies_and_local_directories_are_writable() -> None:
    assert requirements.is_writable(declared(), LOCAL)
    assert not requirements.is_writable(declared(), PODS)


def test_a_program_needs_a_pond_for_data_or_outputs() -> None:
    seen = declared()
    assert program(seen, ref()).needs_pond
    assert not program(seen, {}).needs_pond
