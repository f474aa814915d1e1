"""CRDs: current, small, structural, and with the columns that kubectl shows."""

import copy
import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kilnwork.api import cel_evaluation, crd, crd_parts, kinds, schema_generation


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema node, `node` included."""
    yield node
    for child in node.get("properties", {}).values():
        yield from nodes(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key])


def root(plural: str) -> dict[str, Any]:
    version = crd.crds()[plural]["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def test_checked_in_files_are_current() -> None:
    for path, text in crd.files():
        assert path.read_text() == text, "run `python -m kilnwork.api.crd`"
    assert {p.name for p in crd.DIRECTORY.iterdir()} == {p.name for p, _ in crd.files()}


def test_files_are_small_and_read_back_as_the_same() -> None:
    for path, text in crd.files():
        assert len(text.encode()) < crd.MAX_BYTES
        assert yaml.safe_load(text) == crd.crds()[path.stem]


@pytest.mark.parametrize("plural", [kind.plural for kind in kinds.OURS])
def test_schemas_are_structural(plural: str) -> None:
    """The rules of apiextensions-apiserver/pkg/apiserver/schema/validation.go."""
    forbidden = {"$ref", "anyOf", "oneOf", "allOf", "not", "title", "definitions"}
    for node in nodes(root(plural)):
        assert not forbidden & node.keys()
        assert "type" in node or node.get(schema_generation.PRESERVE)
        assert not ("properties" in node and "additionalProperties" in node)
        assert node.get("additionalProperties") is not False
        if node.get("x-kubernetes-list-type") == "map":
            keys = node["x-kubernetes-list-map-keys"]
            assert set(keys) <= set(node["items"]["required"])


def described(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every property of a schema by its dotted path, with its description."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}{name}", child.get("description", "")
        yield from described(child, f"{path}{name}.")
    for key, step in (("items", "[]."), ("additionalProperties", "{}.")):
        if isinstance(node.get(key), dict):
            yield from described(node[key], f"{path.removesuffix('.')}{step}")


@pytest.mark.parametrize("plural", [kind.plural for kind in kinds.OURS])
def test_every_property_is_described(plural: str) -> None:
    """Except `metadata`, which Kubernetes describes: a definition may only give its type
    (apiextensions-apiserver pkg/apiserver/schema/validation.go).
    """
    found = dict(described(root(plural)))
    assert found.pop("metadata") == ""
    assert len(found) >= 3
    assert [path for path, text in found.items() if not text.endswith(".")] == []


def test_names_and_status_of_each_kind() -> None:
    for kind in kinds.OURS:
        spec = crd.definition(kind)["spec"]
        assert spec["names"]["shortNames"] == list(kind.short_names)
        assert spec["names"]["categories"] == ["kiln"]
        version = spec["versions"][0]
        assert ("status" in version.get("subresources", {})) == (kind != kinds.TASK_OBJECTS)


def test_columns_end_with_age_and_hide_the_reason() -> None:
    columns = crd.definition(kinds.TASKS)["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [c["name"] for c in columns if not c.get("priority")]
    assert shown == ["State", "Attempts", "Suspend", "Age"]
    assert next(c for c in columns if c["name"] == "Reason")["priority"] == 1


def test_task_object_data_is_any_json_at_the_top() -> None:
    data = root("taskobjects")["properties"]["data"]
    assert data[schema_generation.PRESERVE]
    assert "type" not in data


def test_rules_for_the_real_server() -> None:
    spec = root("tasks")["properties"]["spec"]
    rules = [v["message"] for n in nodes(spec) for v in n.get("x-kubernetes-validations", ())]
    assert rules == [
        crd_parts.RUN_RULE,
        crd_parts.POD_RULE,
        *(crd_parts.alone_rule(field) for field in crd_parts.ALONE),
        crd_parts.CALL_RULE,
        crd_parts.INPUT_RULE,
    ]


@pytest.mark.parametrize("plural", ["jobs", "jobconfigs"])
def test_left_out_schema_names_the_object_that_describes_it(plural: str) -> None:
    """Only one task template is complete: with all of them a definition would be too large."""
    left_out = {
        path: text for path, text in described(root(plural)) if " Its fields are those of " in text
    }
    at = "spec.template" if plural == "jobs" else "spec.template.spec"
    assert {
        f"{at}.task.template",
        f"{at}.hooks[].taskTemplate",
        f"{at}.finalizer.taskTemplate",
    } <= left_out.keys()
    paths = dict(described(root(plural)))
    for text in left_out.values():
        other = text.rpartition("`")[0].rpartition("`")[2]
        assert any(path.startswith(f"{other}.") for path in paths), text


def test_job_rules_compare_all_fields_of_the_template() -> None:
    """New fields of a template must be compared too, except for those that CEL cannot compare."""
    spec = root("jobs")["properties"]["spec"]
    rules = " ".join(v["rule"] for v in spec["x-kubernetes-validations"])
    template = spec["properties"]["template"]["properties"]
    for field in template:
        assert f"has(self.template.{field})" in rules
    for field, schema_ in template["parallelism"]["properties"].items():
        compared = f"has(self.template.parallelism.{field})" in rules
        assert compared == ("type" in schema_ and field != "maxInFlight")


def test_frozen_fields_of_sync_sets_in_cel() -> None:
    """The rules as the real server evaluates them: an update within a generation is refused, one
    that raises the generation is accepted.
    """
    library = importlib.import_module(cel_evaluation.LIBRARY)
    spec = root("syncsets")["properties"]["spec"]
    old = {
        "generation": 1,
        "backend": "auto",
        "priority": 0,
        "data": {"pin": "at-admission"},
        "flow": {"do": []},
        "resources": {
            "groups": [
                {"name": "a", "replicas": 2, "slotsPerWorker": 1, "elastic": {"max": 4}},
                {"name": "b", "slotsPerWorker": 1},
            ]
        },
    }

    def refused(**changes: Any) -> list[str]:
        new = {**copy.deepcopy(old), **changes}
        variables = {"self": new, "oldSelf": old}
        return [
            rule["message"]
            for rule in spec[schema_generation.RULES]
            if library.compile(rule["rule"]).execute(variables) is not True
        ]

    def groups(*given: dict[str, Any]) -> dict[str, Any]:
        return {"resources": {"groups": list(given)}}

    first, second = old["resources"]["groups"]  # type: ignore[index]
    assert refused() == []
    assert refused(suspend=True) == []
    assert refused(**groups({**first, "replicas": 3}, second)) == []
    assert len(refused(**groups(first, {**second, "replicas": 3}))) == 1
    assert len(refused(**groups(first))) == 1
    assert len(refused(**groups(first, {**second, "slotsPerWorker": 2}))) == 1
    assert len(refused(backend="pods")) == 1
    assert len(refused(replay={"generation": 2, "of": 1})) == 1
    assert len(refused(replay={"generation": 1, "of": 1})) == 2
    assert (
        refused(backend="pods", generation=2, replay={"generation": 2, "of": 1}, **groups(first))
        == []
    )
    assert len(refused(generation=0)) == 1
