"""Capacity for gangs: members are placed exactly where there is room."""

import decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import node_fit
from kilnwork.controllers.gangs import gang_fit


def node(name: str, cpu: int, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": f"host-{name}"}},
        "spec": more,
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, cpu: int, **spec: Any) -> dict[str, Any]:
    container = {"name": "worker", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def members(*sizes: int, **more: Any) -> list[gang_fit.Member]:
    return [gang_fit.Member(f"p{i}", "g", pod(f"p{i}", cpu), **more) for i, cpu in enumerate(sizes)]


def room(*cpus: int, pods: tuple[dict[str, Any], ...] = ()) -> gang_fit.ClusterRoom:
    return gang_fit.ClusterRoom(
        nodes=tuple(node(f"n{i}", cpu) for i, cpu in enumerate(cpus)), pods=pods
    )


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=12)
NODES = st.lists(st.integers(0, 12), min_size=1, max_size=6)


@given(sizes=SIZES, cpus=NODES, taken=st.lists(st.integers(1, 3), max_size=4))
def test_no_node_gets_more_than_it_has(sizes: list[int], cpus: list[int], taken: list[int]) -> None:
    there = tuple(pod(f"t{i}", cpu, nodeName=f"n{i % len(cpus)}") for i, cpu in enumerate(taken))
    found = gang_fit.place(room(*cpus, pods=there), members(*sizes), ready=frozenset())
    used = dict.fromkeys((f"n{i}" for i in range(len(cpus))), 0)
    for one, cpu in zip(there, taken, strict=True):
        used[one["spec"]["nodeName"]] += cpu
    before = dict(used)
    for name, where in found.assigned.items():
        used[where] += sizes[int(name[1:])]
    for i, cpu in enumerate(cpus):
        assert used[f"n{i}"] <= max(cpu, before[f"n{i}"])
    assert len(found.assigned) + len(found.unplaced) == len(sizes)


@given(size=st.integers(1, 4), count=st.integers(1, 20), cpus=NODES)
def test_equal_members_are_placed_exactly_if_they_fit(
    size: int, count: int, cpus: list[int]
) -> None:
    found = gang_fit.place(room(*cpus), members(*[size] * count), ready=frozenset())
    assert len(found.assigned) == min(count, sum(cpu // size for cpu in cpus))


@given(sizes=SIZES, cpus=NODES)
def test_same_room_gives_the_same_placement(sizes: list[int], cpus: list[int]) -> None:
    first = gang_fit.place(room(*cpus), members(*sizes), ready=frozenset())
    again = gang_fit.place(room(*reversed(cpus)), members(*sizes), ready=frozenset())
    assert first == gang_fit.place(room(*cpus), members(*sizes), ready=frozenset())
    assert len(again.assigned) + len(again.unplaced) == len(sizes)


def test_pods_whose_gates_are_open_are_counted_before_they_have_a_node() -> None:
    waiting = pod("other", 3)
    gated = pod("gated", 3, schedulingGates=[{"name": "x"}])
    found = gang_fit.place(room(4, pods=(waiting, gated)), members(1, 1), ready=frozenset())
    assert len(found.assigned) == 1


def test_finished_pods_use_no_resources() -> None:
    over = {**pod("over", 4, nodeName="n0"), "status": {"phase": "Succeeded"}}
    assert gang_fit.place(room(4, pods=(over,)), members(4), ready=frozenset()).assigned


def test_ready_nodes_are_filled_first_then_those_with_most_data() -> None:
    near = {"n1": 10, "n2": 20}
    found = gang_fit.place(room(1, 1, 1, 1), members(1, 1, 1, near=near), ready=frozenset({"n3"}))
    assert [found.assigned[f"p{i}"] for i in range(3)] == ["n3", "n2", "n1"]


def test_members_are_placed_only_on_allowed_nodes() -> None:
    found = gang_fit.place(room(4, 4), members(1, allowed=frozenset()), ready=frozenset())
    assert found.assigned == {}
    assert "2 node(s) were not next to the data" in gang_fit.describe_unplaced(found, room(4, 4))


def test_lacks_describes_group_request_reason_and_free_room() -> None:
    here = gang_fit.ClusterRoom(
        nodes=(node("a", 2), node("b", 8, taints=[{"key": "gpu", "effect": "NoSchedule"}])),
        pods=(pod("x", 1, nodeName="a"),),
    )
    found = gang_fit.place(here, members(2, 2), ready=frozenset())
    assert gang_fit.describe_unplaced(found, here) == (
        "2 workers have no node in group g: each needs cpu 2; 0/2 nodes are available: "
        "1 Insufficient cpu, 1 node(s) had untolerated taint {gpu: }; "
        "free: node a cpu 1, memory 64Gi; node b cpu 8, memory 64Gi"
    )


def test_affinity_is_narrowed_and_keeps_the_template_terms() -> None:
    own = {"key": "pool", "operator": "In", "values": ["batch"]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    given_affinity = {
        "nodeAffinity": {key: {"nodeSelectorTerms": [{"matchExpressions": [own]}]}},
        "podAntiAffinity": {"x": 1},
    }
    nodes = [node("a", 1), node("b", 1), node("c", 1)]
    made = gang_fit.affinity_to(pod("p", 1, affinity=given_affinity), frozenset({"a", "c"}), nodes)
    assert made["podAntiAffinity"] == {"x": 1}
    [term] = made["nodeAffinity"][key]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        own,
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-a", "host-c"]},
    ]
    fits = {
        n["metadata"]["name"]: node_fit.find_misfit(n, pod("p", 1, affinity=made), {})
        for n in nodes
    }
    assert "didn't match" in fits["b"]
    assert decimal.Decimal(1) == node_fit.requests(pod("p", 1)["spec"])["cpu"]
