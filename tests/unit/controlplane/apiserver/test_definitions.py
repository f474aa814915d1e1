"""CustomResourceDefinitions: names, order of versions and conditions."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import definitions

SCHEMA = {"openAPIV3Schema": {"type": "object"}}
NAMES = {"plural": "dogs", "singular": "dog", "kind": "Dog", "listKind": "DogList"}


def definition(**status: Any) -> dict[str, Any]:
    versions: list[dict[str, Any]] = [
        {"name": name, "served": name != "v2", "storage": name == "v1", "schema": SCHEMA}
        for name in ("v1beta1", "v1", "v2")
    ]
    return {
        "metadata": {"name": "dogs.example.com", "finalizers": ["keep"]},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": dict(NAMES),
            "versions": versions,
        },
        "status": status,
    }


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["lastTransitionTime"]) for c in status["conditions"]}


def test_omitted_names_default_to_the_kind() -> None:
    found: dict[str, Any] = {"spec": {"names": {"plural": "dogs", "kind": "Dog"}}}
    definitions.default(found)
    assert found["spec"]["names"] == NAMES
    assert found["spec"]["conversion"] == {"strategy": "None"}


def test_versions_sort_as_kubernetes_does() -> None:
    ordered = ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1beta1", "v3alpha1", "z", "a"]
    shuffled = sorted(ordered)
    assert sorted(shuffled, key=definitions.priority, reverse=True) == ordered


def test_only_served_versions_are_listed() -> None:
    served = [s.resource.version for s in definitions.served_by(definition())]
    assert served == ["v1", "v1beta1"]
    assert definitions.stored_version(definition()) == "v1"


def test_name_in_use_stays_with_its_holder() -> None:
    others = {"cats.example.com": [{"plural": "cats", "kind": "Dog", "listKind": "CatList"}]}
    names, conflict = definitions.accept_names(definition(), others)
    assert conflict is not None
    assert conflict.holder == "cats.example.com"
    assert conflict.message == '"Dog" is already in use'
    assert (names["kind"], names["plural"]) == ("", "dogs")
    names, conflict = definitions.accept_names(definition(acceptedNames=NAMES), others)
    assert (names, conflict) == (NAMES, None)


@pytest.mark.parametrize("conflicting", [False, True])
def test_status_contains_names_accepted_condition(*, conflicting: bool) -> None:
    conflict = definitions.NameConflict("KindConflict", "in use", "") if conflicting else None
    status = definitions.status(definition(), NAMES, conflict, now="t1")
    wanted = ("False" if conflicting else "True", "t1")
    assert conditions(status) == {"NamesAccepted": wanted, "Established": wanted}
    assert status["storedVersions"] == ["v1"]
    assert definitions.is_established({"status": status}) is not conflicting


def test_established_definition_stays_established_with_its_times() -> None:
    first = definitions.status(definition(), NAMES, None, now="t1")
    conflict = definitions.NameConflict("KindConflict", "in use", "")
    second = definitions.status(definition(**first), NAMES, conflict, now="t2")
    assert conditions(second) == {"NamesAccepted": ("False", "t2"), "Established": ("True", "t1")}


def test_deleted_definition_waits_for_its_objects() -> None:
    marked = definitions.mark_deleted(definition(), now="t1")
    assert marked["metadata"]["finalizers"] == ["keep", definitions.CLEANUP]
    assert definitions.mark_deleted(marked, now="t2")["metadata"]["finalizers"] == [
        "keep",
        definitions.CLEANUP,
    ]
    going = definitions.terminating(marked, now="t2")
    assert conditions(going) == {"Terminating": ("True", "t1")}
    assert going["conditions"][0]["reason"] == "InstanceDeletionInProgress"
