"""Protobuf bodies become what JSON would have said."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.apiserver import protobuf

GOLDEN = Path(__file__).parent / "golden"


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def body(version: bytes, kind: bytes, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, version) + field(2, kind)) + field(2, raw)


def test_config_map_is_decoded() -> None:
    entry = field(1, b"key") + field(2, b"value")
    empty = field(1, b"none") + field(2, b"")
    labels = field(11, field(1, b"a") + field(2, b"b"))
    metadata = field(1, b"c") + field(2, b"") + field(7, 0) + field(8, b"") + labels
    raw = field(1, metadata) + field(2, entry) + field(2, empty) + field(4, 1)
    found = protobuf.decode(body(b"v1", b"ConfigMap", raw))
    assert found == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "labels": {"a": "b"}},
        "data": {"key": "value", "none": ""},
        "immutable": True,
    }


def test_bytes_times_and_repeated_messages_are_decoded() -> None:
    secret = field(1, field(1, b"s")) + field(2, field(1, b"k") + field(2, b"\xff\0"))
    assert protobuf.decode(body(b"v1", b"Secret", secret))["data"] == {"k": "/wA="}
    owners = field(13, field(1, b"Pod") + field(6, 1)) + field(13, field(1, b"Task"))
    stamped = field(1, b"x") + field(8, field(1, 1_700_000_000)) + owners
    found = protobuf.decode(body(b"v1", b"ServiceAccount", field(1, stamped)))["metadata"]
    assert found["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert found["ownerReferences"] == [{"kind": "Pod", "controller": True}, {"kind": "Task"}]


def test_zero_values_are_kept_unless_omitempty() -> None:
    found = protobuf.decode(body(b"meta.k8s.io/v1", b"DeleteOptions", field(1, 0)))
    assert found["gracePeriodSeconds"] == 0


def test_pod_of_the_real_api_server_is_decoded() -> None:
    """Two responses to the same GET: all is the same, but for the nulls that Go's JSON has."""
    expected = without_nulls(msgspec.json.decode((GOLDEN / "pod.json").read_bytes()))
    assert protobuf.decode((GOLDEN / "pod.pb").read_bytes()) == expected


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def test_unknown_kind_must_be_sent_as_json() -> None:
    with pytest.raises(protobuf.ProtobufError, match="Service is taken as application/json only"):
        protobuf.decode(body(b"v1", b"Service", b""))


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"k8s\0\x0a\xff", b"k8s\0\x0b", b"k8s\0" + b"\xff" * 12, b"k8s\0\x0a\x02\x0a\x09"],
)
def test_invalid_protobuf_is_rejected(raw: bytes) -> None:
    with pytest.raises(protobuf.ProtobufError):
        protobuf.decode(raw)


@pytest.mark.parametrize("seconds", [10**12, (1 << 62)])
def test_time_out_of_range_is_rejected(seconds: int) -> None:
    stamped = field(1, b"x") + field(8, field(1, seconds))
    with pytest.raises(protobuf.ProtobufError):
        protobuf.decode(body(b"v1", b"ServiceAccount", field(1, stamped)))
