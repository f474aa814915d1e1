"""The values of the store."""

import json

from kilnwork.controlplane import objects

KEY = objects.Key("pods", "ns", "p")
RAW = b'{"metadata":{"name":"p","resourceVersion":"7","labels":{"a":"b"}},"x":1}'


def test_a_decoded_object_is_a_fresh_copy() -> None:
    stored = objects.Stored(KEY, 7, RAW)
    stored.decode()["metadata"]["name"] = "other"
    assert stored.decode() == json.loads(RAW)
    assert stored.metadata().labels == {"a": "b"}


def test_a_change_shows_the_object_after_it() -> None:
    change = objects.Change(8, objects.Action.MODIFIED, KEY, RAW, b"{}")
    assert change.decode() == json.loads(RAW)
    assert change.metadata().name == "p"


def test_a_deleted_object_has_the_number_of_its_deletion() -> None:
    raw = objects.last_state(RAW, 9)
    assert objects.sequence_of(raw) == 9
    assert json.loads(raw) | {"metadata": None} == json.loads(RAW) | {"metadata": None}
    assert objects.sequence_of(RAW) == 7
