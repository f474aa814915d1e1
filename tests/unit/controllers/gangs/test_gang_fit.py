"""Capacity for gangs: members are placed exactly where there is room."""

import decimal
from typing import Any

import pytest
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


def test_gated_pods_use_no_resources() -> None:
    gated = pod("gated", 3, schedulingGates=[{"name": "x"}])
    assert gang_fit.is_gated(gated)
    assert not gang_fit.is_gated(pod("open", 3, schedulingGates=[]))
    assert gang_fit.place(room(4, pods=(gated,)), members(4), ready=frozenset()).assigned


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_use_no_resources(phase: str) -> None:
    over = {**pod("over", 4, nodeName="n0"), "status": {"phase": phase}}
    assert gang_fit.place(room(4, pods=(over,)), members(4), ready=frozenset()).assigned
    running = {**pod("running", 4, nodeName="n0"), "status": {"phase": "Running"}}
    assert not gang_fit.place(room(4, pods=(running,)), members(4), ready=frozenset()).assigned


def test_largest_members_are_placed_first() -> None:
    found = gang_fit.place(room(4, 3), members(1, 2, 4), ready=frozenset())
    assert found.assigned == {"p0": "n1", "p1": "n1", "p2": "n0"}


def test_members_of_equal_cpu_are_placed_by_memory() -> None:
    def member(name: str, memory: str) -> gang_fit.Member:
        one = pod(name, 1)
        one["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
        return gang_fit.Member(name, "g", one)

    found = gang_fit.place(
        room(8), [member("small", "8Gi"), member("large", "60Gi")], ready=frozenset()
    )
    assert found.assigned == {"large": "n0"}
    assert [one.name for one, _ in found.unplaced] == ["small"]


def test_each_pod_counts_against_the_pods_of_a_node() -> None:
    here = room(8)
    here.nodes[0]["status"]["allocatable"]["pods"] = "2"
    found = gang_fit.place(here, members(1, 1, 1), ready=frozenset())
    assert len(found.assigned) == 2
    assert found.unplaced[0][1] == "0/1 nodes are available: 1 Too many pods"


def test_placed_members_are_counted_by_group() -> None:
    gang = [
        gang_fit.Member("a", "g", pod("a", 1)),
        gang_fit.Member("b", "g", pod("b", 9)),
        gang_fit.Member("c", "h", pod("c", 1)),
    ]
    found = gang_fit.place(room(4), gang, ready=frozenset())
    assert [found.count(gang, group) for group in ("g", "h", "i")] == [1, 1, 0]


def test_unplaced_members_are_described_by_group() -> None:
    gang = [gang_fit.Member(name, name, pod(name, 9)) for name in ("g", "h")]
    found = gang_fit.place(room(4), gang, ready=frozenset())
    text = gang_fit.describe_unplaced(found, room(4))
    for group in ("g", "h"):
        assert f"1 worker has no node in group {group}: each needs cpu 9; 0/1 nodes" in text
    assert text.endswith("; free: node n0 cpu 4, memory 64Gi")
    placed = gang_fit.place(room(4), members(1), ready=frozenset())
    assert gang_fit.describe_unplaced(placed, room(4)) == ""


def test_description_names_the_first_five_nodes() -> None:
    here = room(*[1] * 7)
    here = gang_fit.ClusterRoom(nodes=tuple(reversed(here.nodes)))
    found = gang_fit.place(here, members(9), ready=frozenset())
    free = gang_fit.describe_unplaced(found, here).partition("free: ")[2]
    assert [part.split()[1] for part in free.split("; ")[:5]] == ["n0", "n1", "n2", "n3", "n4"]
    assert free.endswith("; and 2 more")
    five = gang_fit.ClusterRoom(nodes=room(*[1] * 5).nodes)
    found = gang_fit.place(five, members(9), ready=frozenset())
    assert "more" not in gang_fit.describe_unplaced(found, five)


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        ("1Gi", "1Gi"),
        ("1536Mi", "1.5Gi"),
        ("1Mi", "1Mi"),
        ("1023Mi", "1023Mi"),
        ("1000", "1000"),
    ],
)
def test_memory_is_described_in_binary_units(memory: str, text: str) -> None:
    one = pod("a", 9)
    one["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    found = gang_fit.place(room(1), [gang_fit.Member("a", "g", one)], ready=frozenset())
    assert f"each needs cpu 9, memory {text};" in gang_fit.describe_unplaced(found, room(1))


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


def test_affinity_of_a_pod_without_any_names_the_nodes() -> None:
    bare = node("b", 1)
    del bare["metadata"]["labels"]  # its name is its host name
    made = gang_fit.affinity_to(pod("p", 1), frozenset({"a", "b"}), [node("a", 1), bare])
    term = {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b", "host-a"]}
        ]
    }
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    assert made == {"nodeAffinity": {key: {"nodeSelectorTerms": [term]}}}
