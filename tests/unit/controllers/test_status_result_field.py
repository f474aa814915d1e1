"""Results in statuses: small JSON with its value, everything with its digest."""

import hashlib
from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts
from kilnwork.controllers import status_result_field


def of(data: bytes, media_type: str = attempts.JSON) -> Any:
    return status_result_field.result_for_status(attempts.Payload(media_type, data))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"null", None),
        (b'{"a": [1, 1.5]}', {"a": [1, 1.5]}),
        (b"9223372036854775807", 2**63 - 1),
        (b"9223372036854775808", msgspec.UNSET),
        (b'{"a": [-9223372036854775809]}', msgspec.UNSET),
        (b"[" * 900 + b"]" * 900, msgspec.UNSET),
        (b'"' + b"x" * (8 * 1024 - 2) + b'"', "x" * (8 * 1024 - 2)),
        (b'"' + b"x" * (8 * 1024 - 1) + b'"', msgspec.UNSET),
    ],
)
def test_small_json_result_has_its_value(data: bytes, value: Any) -> None:
    found = of(data)
    assert found.value == value
    assert found.size_bytes == len(data)
    assert found.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_bytes_result_has_no_value() -> None:
    assert of(b"1", "application/octet-stream").value is msgspec.UNSET


def test_blob_result_has_its_digest() -> None:
    found = status_result_field.result_for_status(
        attempts.Payload(attempts.JSON, b"", b"\1" * 32, 70_000)
    )
    assert found is not None
    assert (found.digest, found.size_bytes) == ("sha256:" + "01" * 32, 70_000)
    assert found.value is msgspec.UNSET


def test_missing_result_is_none() -> None:
    assert status_result_field.result_for_status(None) is None
