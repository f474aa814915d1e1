"""Reasons are stable names with a sentence each."""

import re

import msgspec
import pytest

from kilnwork.api import attempts, reasons

EVERY = [member for family in reasons.ALL for member in family]


@pytest.mark.parametrize("reason", EVERY)
def test_reason_is_camel_case_as_conditions_demand(reason: reasons.Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason.value)


@pytest.mark.parametrize("reason", EVERY)
def test_reason_has_one_sentence(reason: reasons.Reason) -> None:
    assert reason.sentence[0].isupper() or reason.sentence[0] == "`"
    assert reason.sentence.endswith(".")
    assert "\n" not in reason.sentence


@pytest.mark.parametrize("reason", EVERY)
def test_member_is_named_after_its_text(reason: reasons.Reason) -> None:
    assert reason.name.replace("_", "").lower() == reason.value.lower()


def test_reason_is_encoded_as_plain_text() -> None:
    outcome = attempts.Outcome(attempts.Ending.FAILED, reasons.Reason.NON_ZERO_EXIT)
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(outcome))
    assert raw[1] == "NonZeroExit"


def test_reason_is_found_by_its_text() -> None:
    assert reasons.Reason("NoWorker") is reasons.Reason.NO_WORKER
    assert f"{reasons.Reason.NO_WORKER}" == "NoWorker"
