"""Fields of our kinds without effect."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import kind_field_effects, task_cluster
from kilnwork.api.field_support import Side


def paths(kind: str, spec: dict[str, Any], side: Side = Side.CLUSTER) -> list[str]:
    return [found.path for found in kind_field_effects.findings(kind, {"spec": spec}, side)]


def test_the_image_of_a_task_is_a_label_on_the_local_node() -> None:
    assert paths("Task", {"image": "x"}, Side.EMBEDDED) == ["spec.image"]
    assert paths("Task", {"image": "x"}) == []


def test_furikos_force_deletion_has_no_effect() -> None:
    spec = {"template": {"forbidTaskForceDeletion": True}}
    assert paths("Job", spec) == ["spec.template.forbidTaskForceDeletion"]


def test_the_cluster_replaces_fields_of_its_template() -> None:
    containers = [{"name": "side", "command": ["x"]}, {"name": "worker", "command": ["x"]}]
    template = {"metadata": {"name": "mine"}, "spec": {"containers": containers}}
    assert paths("TaskCluster", {"template": template}) == [
        "spec.template.metadata.name",
        "spec.template.spec.containers[1].command",
    ]


def test_other_kinds_have_no_findings() -> None:
    assert paths("Pod", {"image": "x"}) == []


@pytest.mark.parametrize(
    ("containers", "position"),
    [([{"name": "a"}, {"name": "worker"}], 1), ([{"name": "a"}, {"name": "b"}], 0), ([], 0)],
)
def test_position_of_the_worker_container(containers: list[dict[str, Any]], position: int) -> None:
    assert kind_field_effects.worker_position(containers) == position


def test_the_condition_names_all_fields() -> None:
    given = {"template": {"metadata": {"name": "mine"}}}
    spec = msgspec.convert(given, task_cluster.TaskClusterSpec)
    found = kind_field_effects.ignored("TaskCluster", spec, generation=4)
    assert found is not None
    assert (found.type, found.observed_generation) == ("FieldsIgnored", 4)
    assert "spec.template.metadata.name" in found.message
    assert (
        kind_field_effects.ignored("TaskCluster", task_cluster.TaskClusterSpec(), generation=4)
        is None
    )
