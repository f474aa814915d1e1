"""Rules for CustomResourceDefinitions."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import rules_definitions

Json = dict[str, Any]
SCHEMA = "spec.validation.openAPIV3Schema"


def version(name: str = "v1", *, schema: Json | None = None, **more: Any) -> Json:
    given = {"openAPIV3Schema": schema or {"type": "object"}}
    return {"name": name, "served": True, "storage": True, "schema": given, **more}


def definition(**spec: Any) -> Json:
    names = {"plural": "xs", "singular": "x", "kind": "X", "listKind": "XList"}
    base = {"group": "x.dev", "scope": "Cluster", "names": names, "versions": [version()]}
    made = base | spec
    group = made["group"]
    return {"metadata": {"name": f"{made['names']['plural']}.{group}"}, "spec": made}


def fields(found: Json) -> list[str]:
    return [cause.field for cause in rules_definitions.validate(found)]


def of_schema(schema: Json) -> list[str]:
    return [f.removeprefix(SCHEMA) for f in fields(definition(versions=[version(schema=schema)]))]


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, []),
        ({"group": "dev"}, ["spec.group"]),
        ({"group": "X.dev"}, ["spec.group"]),
        ({"group": ""}, ["spec.group"]),
        ({"scope": ""}, ["spec.scope"]),
        ({"scope": "Other"}, ["spec.scope"]),
        ({"versions": [version("1")]}, ["spec.versions[0].name"]),
        (
            {"versions": [version(), version("v2")]},
            ["spec.versions", "status.storedVersions"],
        ),
        ({"versions": [version(), version(storage=False)]}, ["spec.versions[1].name"]),
        (
            {"versions": [version(additionalPrinterColumns=[{"name": "n", "type": "string"}])]},
            ["spec.versions[0].additionalPrinterColumns[0].jsonPath"],
        ),
    ],
)
def test_invalid_definitions_are_rejected(spec: Json, wrong: list[str]) -> None:
    assert fields(definition(**spec)) == wrong


def test_name_must_be_plural_and_group() -> None:
    found = definition()
    found["metadata"]["name"] = "other"
    assert fields(found) == ["metadata.name"]


@pytest.mark.parametrize(
    ("said", "good"),
    [("", False), ("soon", False), ("unapproved: test", True), ("https://github.com/x", True)],
)
def test_groups_of_kubernetes_need_approval(said: str, *, good: bool) -> None:
    found = definition(group="x.k8s.io")
    found["metadata"]["annotations"] = {"api-approved.kubernetes.io": said}
    assert (fields(found) == []) is good


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"type": "object", "properties": {"a": {}}}, [".properties[a].type"]),
        ({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": True}}}, []),
        ({"type": "array", "items": {"type": "string"}}, [".type"]),
        ({"properties": {"a": {"type": "string"}}}, [".type"]),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            [".properties[a].items"],
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
            [".properties[a].pattern"],
        ),
        (
            {"type": "object", "x-kubernetes-list-type": "map"},
            [".x-kubernetes-list-map-keys"],
        ),
        ({"type": "object", "x-kubernetes-list-type": "bag"}, [".x-kubernetes-list-type"]),
    ],
)
def test_non_structural_schemas_are_rejected(schema: Json, wrong: list[str]) -> None:
    assert of_schema(schema) == wrong


def test_stored_versions_and_identity_cannot_change() -> None:
    old = definition()
    old["status"] = {
        "conditions": [{"type": "Established", "status": "True"}],
        "storedVersions": ["v1"],
    }
    new = definition(scope="Namespaced", versions=[version("v2")])
    found = [c.field for c in rules_definitions.validate_update(old, new)]
    assert found == ["spec.scope", "status.storedVersions[0]"]
    assert list(rules_definitions.validate_update(old, definition())) == []
    assert list(rules_definitions.validate_update(definition(), new)) == []
