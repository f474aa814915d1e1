"""References to attempts as text, and the blobs of a value."""

import pytest

from kilnwork.api import attempts
from kilnwork.kit import ids

REF = attempts.AttemptRef(ids.TaskId(bytes(range(16))), 2, 3)


def test_attempt_ref_round_trips_as_text() -> None:
    assert str(REF) == "00010203-0405-0607-0809-0a0b0c0d0e0f/2/3"
    assert attempts.AttemptRef.parse(str(REF)) == REF


@pytest.mark.parametrize("text", ["", "x/1/1", f"{REF}/4", str(REF).replace("/2", "/a")])
def test_invalid_attempt_ref_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        attempts.AttemptRef.parse(text)


def test_digests_of_a_payload_include_its_blobs() -> None:
    blob, further = b"a" * 32, b"b" * 32
    assert attempts.Payload(attempts.JSON, b"1").digests == ()
    assert attempts.Payload(attempts.JSON, b"1", blobs=(further,)).digests == (further,)
    assert attempts.Payload(attempts.JSON, b"", blob, 9, (further,)).digests == (blob, further)
