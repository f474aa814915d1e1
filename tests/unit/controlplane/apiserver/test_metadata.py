"""What clients may set in metadata, and what only the server sets."""

import random

import pytest

from kilnwork.controlplane.apiserver import metadata, statuses

OLD = {"name": "a", "uid": "u", "resourceVersion": "5", "creationTimestamp": "t", "generation": 3}


def test_new_object_gets_server_set_metadata() -> None:
    given = {"name": "a", "uid": "x", "selfLink": "/x", "managedFields": [1], "labels": {}}
    found = metadata.for_create(given, namespace="n", uid="u", now="t", counted=True)
    assert found == {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "creationTimestamp": "t",
        "generation": 1,
    }


def test_new_object_with_resource_version_is_rejected() -> None:
    with pytest.raises(statuses.StatusError, match="resourceVersion should not be set"):
        metadata.for_create(OLD, namespace="", uid="u", now="t", counted=False)


def test_update_keeps_server_set_metadata() -> None:
    given = {"name": "b", "uid": "x", "generation": 9, "labels": {"a": "b"}, "annotations": None}
    assert metadata.for_update(given, OLD) == {"labels": {"a": "b"}, **OLD}


def test_metadata_must_be_an_object() -> None:
    assert metadata.metadata_of({"metadata": None}) == {}
    with pytest.raises(statuses.StatusError, match="must be an object"):
        metadata.metadata_of({"metadata": []})


def test_generated_names_fit_a_label() -> None:
    entropy = random.Random(1)
    name = metadata.generated_name("x" * 100, entropy)
    assert len(name) == 63
    assert metadata.generated_name("run-", entropy) != metadata.generated_name("run-", entropy)


def test_new_finalizers_are_those_added() -> None:
    assert metadata.new_finalizers({"finalizers": ["a", "b"]}, {"finalizers": ["a"]}) == ["b"]
    assert metadata.new_finalizers({}, {"finalizers": ["a"]}) == []
