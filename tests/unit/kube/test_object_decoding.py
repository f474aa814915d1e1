"""Objects from bytes; one that cannot be read hides no other."""

import logging

import msgspec
import pytest

from kilnwork.api import meta
from kilnwork.kube import errors, object_decoding


class _Spec(msgspec.Struct):
    size: int


class _Thing(msgspec.Struct):
    spec: _Spec
    metadata: meta.ObjectMeta = meta.ObjectMeta()


class _RawThing(msgspec.Struct):
    spec: msgspec.Raw


GOOD = b'{"metadata": {"name": "a"}, "spec": {"size": "3"}, "other": 1}'
BAD = b'{"metadata": {"name": "b"}, "kind": "Thing", "spec": {"size": "x"}}'


def test_object_is_decoded_leniently_or_refused() -> None:
    assert object_decoding.whole(GOOD, _Thing).spec.size == 3
    with pytest.raises(errors.Invalid, match="_Thing"):
        object_decoding.whole(BAD, _Thing)


def test_a_bad_object_of_a_list_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    body = b'{"metadata": {"resourceVersion": "9", "continue": "c"}, "items": [%s, %s]}'
    with caplog.at_level(logging.ERROR):
        found, listed, unreadable = object_decoding.items(body % (BAD, GOOD), _Thing)
    assert [one.metadata.name for one in found] == ["a"]
    assert (listed.resource_version, listed.continue_) == ("9", "c")
    assert unreadable == [("", "b")]
    assert [record.__dict__["object"] for record in caplog.records] == ["b"]


@pytest.mark.parametrize("body", [b'{"items": null}', b"{}", b'{"items": []}'])
def test_a_list_without_items_is_empty(body: bytes) -> None:
    assert object_decoding.items(body, _Thing) == ([], object_decoding.ListMeta(), [])


def test_a_list_of_raw_fields_is_read_item_by_item() -> None:
    (found,), _, _ = object_decoding.items(b'{"items": [{"spec": {"size": 1}}]}', _RawThing)
    assert bytes(found.spec) == b'{"size": 1}'


def test_identity_is_read_of_malformed_objects() -> None:
    malformed = b'{"metadata": {"name": "b", "namespace": "n", "labels": 1}, "spec": []}'
    assert object_decoding.identify(msgspec.Raw(malformed)).key == ("n", "b")
    assert object_decoding.identify(msgspec.Raw(b"[1]")) == object_decoding.Identity()
