"""Stored objects and changes: what is decoded of them, and the last state of a deleted one."""

import json

from kilnwork.controlplane import objects

KEY = objects.Key("pods", "ns", "a")
RAW = b'{"metadata":{"name":"a","resourceVersion":"7","labels":{"x":"y"}},"spec":{"n":1}}'


def test_each_decode_is_a_copy_of_its_own() -> None:
    stored = objects.Stored(KEY, 7, RAW)
    stored.decode()["spec"]["n"] = 2
    assert stored.decode()["spec"]["n"] == 1


def test_metadata_is_read_without_the_rest() -> None:
    stored = objects.Stored(KEY, 7, RAW)
    change = objects.StoreChange(7, objects.Action.ADDED, KEY, RAW, None)
    assert (stored.metadata().name, stored.metadata().labels) == ("a", {"x": "y"})
    assert change.metadata() == stored.metadata()


def test_the_last_state_has_the_number_of_the_deletion_and_is_otherwise_unchanged() -> None:
    last = json.loads(objects.last_state(RAW, 12))
    assert last["metadata"].pop("resourceVersion") == "12"
    before = json.loads(RAW)
    del before["metadata"]["resourceVersion"]
    assert last == before


def test_the_sequence_number_is_the_resource_version() -> None:
    assert objects.sequence_of(RAW) == 7
    assert objects.sequence_of(objects.last_state(RAW, 12)) == 12
