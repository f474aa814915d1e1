"""Rules for Secrets, ConfigMaps and Leases."""

import base64
from collections.abc import Iterable
from typing import Any

import pytest

from kilnwork.controlplane.apiserver import causes, rules_data, statuses

Json = dict[str, Any]


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def fields(found: Iterable[causes.Cause]) -> list[str]:
    return [cause.field for cause in found]


def test_string_data_overrides_data() -> None:
    secret: Json = {"data": {"a": "old", "b": "kept"}, "stringData": {"a": "new"}}
    rules_data.default_secret(secret)
    assert secret == {"type": "Opaque", "data": {"a": b64(b"new"), "b": "kept"}}


def test_given_secret_type_is_kept() -> None:
    secret = {"type": "t"}
    rules_data.default_secret(secret)
    assert secret == {"type": "t"}


@pytest.mark.parametrize(
    ("secret", "wrong"),
    [
        ({"data": {"a": b64(b"x")}}, []),
        ({"data": {"a": "eA\n==\r"}}, []),
        ({"data": {"a b": ""}}, ["data[a b]"]),
        ({"data": {"a": b64(b"x" * rules_data.MAX_BYTES)}}, []),
        ({"data": {"a": b64(b"x" * (rules_data.MAX_BYTES + 1))}}, ["data"]),
        ({"type": "kubernetes.io/tls", "data": {"tls.crt": "eA=="}}, ["data[tls.key]"]),
        ({"type": "kubernetes.io/basic-auth"}, ["data[username]", "data[password]"]),
        ({"type": "kubernetes.io/basic-auth", "data": {"password": ""}}, []),
    ],
)
def test_invalid_secrets_are_rejected(secret: Json, wrong: list[str]) -> None:
    assert fields(rules_data.validate_secret(secret)) == wrong


def test_errors_contain_no_secret_values() -> None:
    with pytest.raises(statuses.StatusError) as refused:
        list(rules_data.validate_secret({"data": {"a": "hunter2!"}}))
    assert refused.value.code == 400
    assert "stringData" in refused.value.message
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"data": {"a": "ä"}, "binaryData": {"b": "eA=="}}, []),
        ({"data": {"a": ""}, "binaryData": {"a": ""}}, ["data[a]"]),
        ({"data": {"a b": ""}}, ["data[a b]"]),
        ({"binaryData": {"a b": ""}}, ["binaryData[a b]"]),
        ({"data": {"a": "x" * rules_data.MAX_BYTES}}, []),
        ({"data": {"a": "x" * rules_data.MAX_BYTES}, "binaryData": {"b": "eA=="}}, [""]),
    ],
)
def test_invalid_config_maps_are_rejected(config: Json, wrong: list[str]) -> None:
    assert fields(rules_data.validate_config_map(config)) == wrong


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ({"data": {"a": "1"}}, {"data": {"a": "2"}}, []),
        ({"immutable": True, "data": {}}, {"immutable": True}, []),
        ({"immutable": True, "data": {}}, {"immutable": True, "data": {"a": "1"}}, ["data"]),
        ({"immutable": True}, {"immutable": False}, ["immutable"]),
        ({"immutable": True}, {"immutable": True, "binaryData": {"a": ""}}, ["binaryData"]),
    ],
)
def test_immutable_data_cannot_change(old: Json, new: Json, wrong: list[str]) -> None:
    assert fields(rules_data.validate_config_map_update(old, new)) == wrong


def test_type_of_a_secret_cannot_change() -> None:
    assert fields(rules_data.validate_secret_update({"type": "a"}, {"type": "b"})) == ["type"]
    assert fields(rules_data.validate_secret_update({"type": "a"}, {"type": "a"})) == []


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, []),
        ({"leaseDurationSeconds": 1, "leaseTransitions": 0}, []),
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds"]),
        ({"leaseTransitions": -1}, ["spec.leaseTransitions"]),
    ],
)
def test_invalid_leases_are_rejected(spec: Json, wrong: list[str]) -> None:
    assert fields(rules_data.validate_lease({"spec": spec})) == wrong
