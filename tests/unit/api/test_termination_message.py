"""Results in the termination message of a sidecar."""

import pytest

from kilnwork.api import attempts, termination_message


@pytest.mark.parametrize(
    "payload",
    [
        attempts.Payload(attempts.JSON, b'{"a":1}'),
        attempts.Payload(termination_message.BYTES, b"\0\1"),
        attempts.Payload(attempts.PICKLE, b"", b"d" * 32, 7_000),
    ],
)
def test_payload_round_trips_through_the_message(payload: attempts.Payload) -> None:
    made = termination_message.of_payload(payload)
    assert made.payload == payload


@pytest.mark.parametrize("message", ["", "OOM", "[]", '{"sizeBytes": -1}'])
def test_invalid_messages_are_refused(message: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        termination_message.decode(message)


def test_a_message_without_a_result_has_no_payload() -> None:
    assert termination_message.decode('{"reason": "OutputTooLarge"}').payload is None


def test_invalid_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="is no digest"):
        assert termination_message.decode('{"digest": "sha256:xyz"}').payload


@pytest.mark.parametrize(("containers", "size"), [(1, 4096), (3, 4096), (4, 3072), (100, 122)])
def test_containers_share_the_bytes_of_the_pod(containers: int, size: int) -> None:
    assert termination_message.message_bytes(containers) == size
