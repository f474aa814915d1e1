"""A gang as one Job of Volcano."""

import pytest

from kilnwork.api import volcano_rendering

ROLES = [
    volcano_rendering.Role(name="solve", replicas=4, min=3, template={"spec": {"containers": []}}),
    volcano_rendering.Role(name="lead", replicas=1, min=1, template={}, fails=True),
]


def test_the_gang_needs_the_minimum_of_all_groups() -> None:
    made = volcano_rendering.render("s-g1", ROLES, namespace="n", labels={"a": "b"})
    assert made["spec"]["minAvailable"] == 4
    assert made["metadata"] == {"name": "s-g1", "namespace": "n", "labels": {"a": "b"}}
    assert [t["name"] for t in made["spec"]["tasks"]] == ["solve", "lead"]


def test_a_group_that_fails_aborts_the_job() -> None:
    tasks = volcano_rendering.render("s-g1", ROLES, namespace="n")["spec"]["tasks"]
    assert [t["policies"][0]["action"] for t in tasks] == ["RestartPod", "AbortJob"]
    assert all(t["template"]["spec"]["schedulerName"] == "volcano" for t in tasks)


def test_a_name_without_room_for_its_pods_is_refused() -> None:
    longest = "s" * (63 - len("-solve-999"))
    volcano_rendering.render(longest, ROLES[:1], namespace="n")
    with pytest.raises(volcano_rendering.Unrenderable, match="cannot be the name of a Pod"):
        volcano_rendering.render(longest + "s", ROLES[:1], namespace="n")
