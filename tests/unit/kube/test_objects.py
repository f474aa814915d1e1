"""Metadata of JSON objects and of structs is read alike."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import meta
from kilnwork.kube import objects

JSON: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "x",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o1"},
            {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "o2"},
        ],
    }
}


@pytest.mark.parametrize("obj", [JSON, msgspec.convert(JSON, meta.Partial)], ids=["json", "struct"])
def test_both_forms_say_the_same(obj: Any) -> None:
    assert objects.key(obj) == ("x", "a")
    assert (objects.uid(obj), objects.resource_version(obj)) == ("u", "7")
    assert objects.age(obj) == ("2026-01-01T00:00:00Z", "a")
    assert objects.owner_uids(obj) == ("o1", "o2")


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"ownerReferences": None}}])
def test_missing_metadata_is_empty(obj: Any) -> None:
    assert objects.key(obj) == ("", "")
    assert (objects.uid(obj), objects.resource_version(obj)) == ("", "")
    assert (objects.age(obj), objects.owner_uids(obj)) == (("", ""), ())
