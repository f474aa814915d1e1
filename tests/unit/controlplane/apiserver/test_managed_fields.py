"""Sets of fields, and what managers keep of invalid ones."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import field_sets, field_types, managed_fields
from support import served_kinds

CM = field_types.type_of(served_kinds.kind_of(api_resources.CONFIG_MAPS))
POD = field_types.type_of(served_kinds.kind_of(api_resources.PODS))
A: field_sets.Set = {"f:data": {"f:a": {}}}
AB: field_sets.Set = {"f:data": {".": {}, "f:a": {}, "f:b": {}}}


@pytest.mark.parametrize(
    "given",
    [
        5,
        [5],
        [{"fieldsV1": 5}],
        [{"fieldsV1": {"f:data": 5}}],
        [{"fieldsV1": {"odd": {}}}],
        [{"fieldsV1": {"k:{": {}}}],
    ],
)
def test_malformed_managed_fields_are_ignored(given: Any) -> None:
    entry = {
        "manager": "one",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "t",
        "fieldsType": "FieldsV1",
        "fieldsV1": A,
    }
    old = {"metadata": {"name": "a", "managedFields": [entry]}, "data": {"a": "1"}}
    new: dict[str, Any] = {"metadata": {"name": "a"}, "data": {"a": "1", "b": "2"}}
    two = managed_fields.FieldManager("two", "v1")
    managed_fields.updated(CM, old, new, two, given=given, now="u")
    found = {e["manager"]: e["fieldsV1"] for e in new["metadata"]["managedFields"]}
    assert found == {"one": A, "two": {"f:data": {"f:b": {}}}}


def test_oldest_update_entries_are_merged() -> None:
    old: dict[str, Any] = {"metadata": {"name": "a"}, "data": {}}
    new = {**old, "metadata": {"name": "a"}, "data": {"k0": "x"}}
    managed_fields.created(
        CM, new, managed_fields.FieldManager("m0", "v1"), now="t00", custom=False
    )
    for number in range(1, 15):
        old, new = new, {"metadata": {"name": "a"}, "data": {**new["data"], f"k{number}": "x"}}
        manager = managed_fields.FieldManager(f"m{number}", "v1")
        given = old["metadata"]["managedFields"]
        managed_fields.updated(CM, old, new, manager, given=given, now=f"t{number:02}")
    entries = new["metadata"]["managedFields"]
    assert len(entries) == managed_fields.MAX_UPDATERS
    assert entries[0]["manager"] == "ancient-changes"
    names = {key for e in entries for key in e["fieldsV1"]["f:data"] if key != "."}
    assert names == {f"f:k{n}" for n in range(15)}
