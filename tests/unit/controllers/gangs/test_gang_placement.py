"""Which members of a gang start, and on which nodes."""

from typing import Any

import msgspec

from kilnwork.api import pod, sync_set_validation
from kilnwork.controllers.gangs import gang_fit, gang_placement, gang_state, port

GATE = {"name": sync_set_validation.GATE}


def node(name: str, cpu: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": str(cpu), "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def raw(name: str, cpu: int = 1, **spec: Any) -> dict[str, Any]:
    container = {"name": "worker", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "metadata": {"name": name, "namespace": "n", "uid": f"u-{name}", "resourceVersion": "7"},
        "spec": {"containers": [container], "schedulingGates": [GATE], **spec},
        "status": {},
    }


def spec(**more: Any) -> port.GangSpec:
    given: dict[str, Any] = {
        "namespace": "n",
        "name": "risk",
        "uid": "u",
        "generation": 1,
        "groups": (),
        "wait_s": 60.0,
        "requeue": True,
        **more,
    }
    return port.GangSpec(**given)


def gang(*pods: dict[str, Any], required: int) -> tuple[gang_state.ObservedGroup, ...]:
    group = port.GroupSpec(name="g", cluster="c", replicas=len(pods), min=required)
    seen = tuple(msgspec.convert(one, pod.Pod) for one in pods)
    return (gang_state.ObservedGroup(spec=group, cluster=None, pods=seen),)


def starting_members(cpu: int, count: int, *, required: int, **more: Any) -> list[str]:
    """Return the names of starting members, out of `count` members on a node with `cpu` cores."""
    pods = [raw(f"p{n}") for n in range(count)]
    room = gang_fit.ClusterRoom(nodes=(node("n1", cpu),), pods=tuple(pods))
    groups = gang(*pods, required=required)
    placement, waiting = gang_placement.place(spec(**more), groups, room)
    chosen = gang_placement.choose_starting(spec(**more), groups, placement, waiting)
    return [member.name for member in chosen]


def test_all_required_members_start_or_none() -> None:
    assert starting_members(3, 3, required=3) == ["p0", "p1", "p2"]
    assert starting_members(2, 3, required=3) == []


def test_optional_members_start_where_there_is_room() -> None:
    assert starting_members(2, 3, required=2) == ["p0", "p1"]
    assert starting_members(1, 3, required=2) == []


def test_members_start_individually_once_the_flow_runs() -> None:
    assert starting_members(1, 3, required=3, running_since=1.0) == ["p0"]


def test_would_fit_ignores_running_pods() -> None:
    pods = [raw("p0"), raw("p1")]
    busy = raw("x", cpu=2, nodeName="n1") | {"status": {"phase": "Running"}}
    busy["spec"].pop("schedulingGates")
    room = gang_fit.ClusterRoom(nodes=(node("n1", 2),), pods=(*pods, busy))
    groups = gang(*pods, required=2)
    placement, waiting = gang_placement.place(spec(), groups, room)
    assert gang_placement.choose_starting(spec(), groups, placement, waiting) == []
    assert gang_placement.would_fit(spec(), groups, room)
    large = raw("p0", cpu=3)
    alone = gang_fit.ClusterRoom(nodes=room.nodes, pods=(large,))
    assert not gang_placement.would_fit(spec(), gang(large, required=1), alone)


def test_patch_opens_only_our_gate() -> None:
    given = raw("p0", schedulingGates=[{"name": "other"}, GATE])
    member = gang_fit.Member("p0", "g", given, None, {}, frozenset({2, 0}))
    room = gang_fit.ClusterRoom(nodes=(node("n1", 2),), pods=())
    patch = gang_placement.opening_patch(spec(), member, room, now=12.5)
    assert patch["spec"] == {"schedulingGates": [{"name": "other"}]}
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["annotations"][gang_state.OPENED_ANNOTATION] == "12.500"


def test_a_member_needs_a_node_with_all_of_its_portions() -> None:
    held = {"g": {"n1": frozenset({0, 1}), "n2": frozenset({1})}}
    data = port.DataPlaces(ready=frozenset({"n3"}), held=held)
    whole = gang_fit.Member("p0", "g", raw("p0"), None, {}, frozenset({0, 1}))
    part = gang_fit.Member("p0", "g", raw("p0"), None, {}, frozenset({1}))
    plain = gang_fit.Member("p0", "g", raw("p0"), None, {})
    assert gang_placement.nodes_with_data(data, whole) == {"n1"}
    assert gang_placement.nodes_with_data(data, part) == {"n1", "n2"}
    assert gang_placement.nodes_with_data(data, plain) == {"n3"}
