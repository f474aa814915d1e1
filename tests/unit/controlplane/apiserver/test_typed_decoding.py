"""Reading: what the server makes of what was sent, and what it need not look at again."""

from typing import Any

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.controlplane.apiserver import typed_decoding
from support import served_kinds

PODS, TASKS = served_kinds.kind_of(api_resources.PODS), served_kinds.kind_of(kinds.TASKS)
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "main", "image": "i", "tty": True}], "priority": 7},
}


def test_valid_fields_are_copied_to_a_new_object() -> None:
    made, unknown = typed_decoding.read(PODS, POD)
    assert (made, unknown) == (POD, [])
    assert made["spec"]["containers"] is not POD["spec"]["containers"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"hostNetwork": 1}, "cannot unmarshal number into .* of type bool"),
        ({"hostNetwork": "true"}, "cannot unmarshal string into .* of type bool"),
        ({"priority": True}, "cannot unmarshal bool into .* of type int32"),
        ({"nodeName": {}}, "cannot unmarshal object into .* of type string"),
        ({"nodeSelector": {"a": 1}}, "cannot unmarshal number into .* of type string"),
        ({"containers": [{"command": ["a", 1]}]}, "cannot unmarshal number into .* of type string"),
    ],
)
def test_field_of_wrong_type_is_rejected(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(typed_decoding.WrongType, match=why):
        typed_decoding.read(PODS, {**POD, "spec": spec})


def test_null_in_list_or_map_becomes_the_zero_value() -> None:
    spec = {"nodeSelector": {"a": None}, "containers": [{"command": ["a", None]}]}
    made, _ = typed_decoding.read(PODS, {**POD, "spec": spec})
    assert made["spec"] == {"nodeSelector": {"a": ""}, "containers": [{"command": ["a", ""]}]}


def test_identical_known_parts_are_not_decoded_again() -> None:
    odd = {**POD, "spec": {"unknown": 1, "priority": "odd"}}
    changed = {**odd, "status": {"phase": "Running", "new": 1}}
    made, unknown = typed_decoding.read(PODS, changed, known=odd)
    assert list(made) == list(changed)
    assert made["spec"] is odd["spec"]
    assert (made["status"], unknown) == ({"phase": "Running"}, ["status.new"])


def test_equal_but_not_identical_parts_are_decoded() -> None:
    old = {**POD, "spec": {"hostNetwork": True}}
    with pytest.raises(typed_decoding.WrongType):
        typed_decoding.read(PODS, {**POD, "spec": {"hostNetwork": 1}}, known=old)


def test_defaults_do_not_replace_known_parts() -> None:
    old: dict[str, Any] = {"metadata": {"name": "x"}, "spec": {"run": 3}}
    made, _ = typed_decoding.read(TASKS, {**old, "status": {"state": "Running"}}, known=old)
    assert made == {**old, "status": {"state": "Running"}}
