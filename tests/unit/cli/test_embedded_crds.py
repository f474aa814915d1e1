"""Kinds of the embedded API server, with their rights and rules."""

from typing import Any

import pytest

from kilnwork.api import kinds, manager_access
from kilnwork.cli import embedded_crds
from kilnwork.controlplane.node import pod_field_effects

EXTENSIONS = embedded_crds.EXTENSIONS


def served(rules: tuple[dict[str, Any], ...]) -> set[str]:
    return {name for rule in rules for name in rule["resources"]}


def test_all_kinds_are_served() -> None:
    names = [kind.definition["spec"]["names"]["kind"] for kind in EXTENSIONS.kinds]
    assert sorted(names) == sorted(kind.kind for kind in kinds.OURS)
    assert EXTENSIONS.server_names == (manager_access.SERVER_NAME,)


def test_view_role_reads_and_the_edit_role_writes() -> None:
    plurals = {kind.plural for kind in kinds.OURS}
    assert plurals <= served(EXTENSIONS.view)
    assert plurals <= served(EXTENSIONS.edit)
    assert {verb for rule in EXTENSIONS.view for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert "tasks/status" in served(EXTENSIONS.view) - served(EXTENSIONS.edit)


@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [("Service", True), ("Deployment", True), ("DaemonSet", True), ("ConfigMap", False)],
)
def test_set_with_unserved_objects_is_rejected(
    kind: str,
    is_refused: bool,  # noqa: FBT001
) -> None:
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}
    body = {"metadata": {"name": "a"}, "spec": {"resources": {"objects": [manifest]}}}
    found = dict(embedded_crds._validate_sync_set(body))
    text = found.get("spec.resources.objects[0].kind", "")
    assert text.startswith(f"is {kind}, which `kiln up` does not serve") is is_refused


def test_worker_of_a_template_has_the_variable_of_its_memory_limit() -> None:
    spec = {"containers": [{"name": "other"}, {"name": "worker", "env": [{"name": "A"}]}]}
    other, worker = embedded_crds._with_memory_limit(spec)["containers"]
    assert "env" not in other
    assert [one["name"] for one in worker["env"]] == ["A", pod_field_effects.MEMORY_LIMIT]


@pytest.mark.parametrize("spec", [None, {}, {"containers": "a"}, {"containers": [1]}])
def test_template_that_cannot_be_read_is_left_to_its_schema(spec: object) -> None:
    assert embedded_crds._with_memory_limit(spec) is spec
