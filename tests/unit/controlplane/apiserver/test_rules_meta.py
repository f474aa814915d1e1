"""Rules for the metadata of every object."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import rules_meta

UID = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}


def fields(kind: api_resources.Resource, **metadata: Any) -> list[str]:
    return [cause.field for cause in rules_meta.validate(kind, {"metadata": metadata})]


def problems_of_update(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    found = rules_meta.validate_update({"metadata": old}, {"metadata": new})
    return [cause.field for cause in found]


@pytest.mark.parametrize(
    ("kind", "name", "good"),
    [
        (api_resources.CONFIG_MAPS, "a.b", True),
        (api_resources.CONFIG_MAPS, "A", False),
        (api_resources.CONFIG_MAPS, "", False),
        (api_resources.NAMESPACES, "a", True),
        (api_resources.NAMESPACES, "a.b", False),
        (api_resources.ROLES, "system:A", True),
        (api_resources.ROLES, "a/b", False),
        (api_resources.CLUSTER_ROLES, "system:A", True),
    ],
)
def test_name_rules_depend_on_the_kind(
    kind: api_resources.Resource, name: str, *, good: bool
) -> None:
    assert fields(kind, name=name) == ([] if good else ["metadata.name"])


def test_generate_name_may_end_in_a_dash() -> None:
    assert fields(api_resources.PODS, name="a", generateName="a-") == []
    assert fields(api_resources.PODS, name="a", generateName="A-") == ["metadata.generateName"]


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"labels": {"a/b": "c"}}, []),
        ({"labels": {"a b": "c"}}, ["metadata.labels"]),
        ({"labels": {"a": "c d"}}, ["metadata.labels"]),
        ({"annotations": {"a": "any text"}}, []),
        ({"annotations": {"a b": ""}}, ["metadata.annotations"]),
        ({"annotations": {"a": "x" * (rules_meta.MAX_ANNOTATION_BYTES - 1)}}, []),
        (
            {"annotations": {"a": "x" * rules_meta.MAX_ANNOTATION_BYTES}},
            ["metadata.annotations"],
        ),
        ({"ownerReferences": [UID]}, []),
        ({"ownerReferences": [UID | {"uid": ""}]}, ["metadata.ownerReferences.uid"]),
        ({"ownerReferences": [UID | {"controller": True}, UID]}, []),
        ({"ownerReferences": [UID | {"controller": True}] * 2}, ["metadata.ownerReferences"]),
        ({"finalizers": ["orphan", "a.b/c"]}, []),
        ({"finalizers": ["own"]}, ["metadata.finalizers[0]"]),
    ],
)
def test_invalid_labels_owners_and_finalizers_are_rejected(
    more: dict[str, Any], wrong: list[str]
) -> None:
    assert fields(api_resources.PODS, name="p", **more) == wrong


def test_custom_kinds_may_have_short_finalizers() -> None:
    custom = api_resources.Resource(
        group="x.dev", version="v1", kind="X", plural="xs", singular="x"
    )
    assert fields(custom, name="p", finalizers=["own"]) == []


def test_identity_fields_cannot_change() -> None:
    old = {"name": "a", "uid": "1"}
    assert problems_of_update(old, dict(old)) == []
    assert problems_of_update(old, {"name": "b", "uid": "2"}) == ["metadata.name", "metadata.uid"]


def test_finalizers_are_only_removed_while_an_object_is_deleted() -> None:
    old = {"deletionTimestamp": "t", "finalizers": ["a/b"]}
    assert problems_of_update(old, {"deletionTimestamp": "t"}) == []
    more = {"deletionTimestamp": "t", "finalizers": ["a/b", "c/d"]}
    assert problems_of_update(old, more) == ["metadata.finalizers"]
    assert problems_of_update({}, {"finalizers": ["c/d"]}) == []
