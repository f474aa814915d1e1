"""Stored objects and changes: what is decoded of them, and the last state of a deleted one."""

import json

from kilnwork.controlplane import store_types

KEY = store_types.Key("pods", "ns", "a")
RAW = b'{"metadata":{"name":"a","resourceVersion":"7","labels":{"x":"y"}},"spec":{"n":1}}'


def test_each_decode_returns_a_new_copy() -> None:
    stored = store_types.Stored(KEY, 7, RAW)
    stored.decode()["spec"]["n"] = 2
    assert stored.decode()["spec"]["n"] == 1


def test_metadata_is_decoded_alone() -> None:
    stored = store_types.Stored(KEY, 7, RAW)
    change = store_types.StoreChange(7, store_types.Action.ADDED, KEY, RAW, None)
    assert (stored.metadata().name, stored.metadata().labels) == ("a", {"x": "y"})
    assert change.metadata() == stored.metadata()


def test_last_state_differs_only_in_resource_version() -> None:
    last = json.loads(store_types.last_state(RAW, 12))
    assert last["metadata"].pop("resourceVersion") == "12"
    before = json.loads(RAW)
    del before["metadata"]["resourceVersion"]
    assert last == before


def test_sequence_number_is_the_resource_version() -> None:
    assert store_types.sequence_of(RAW) == 7
    assert store_types.sequence_of(store_types.last_state(RAW, 12)) == 12
