"""Fields of a flow as users write them: names, defaults and bounds."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import flow


def step(**fields: Any) -> flow.Step:
    return msgspec.convert(fields, flow.Step)


def test_python_keywords_are_written_without_the_underscore() -> None:
    found = step(**{"with": {"a": 1}, "if": "a", "else": {"call": "m:f"}})
    assert (found.with_, found.if_, found.else_) == ({"a": 1}, "a", {"call": "m:f"})
    assert msgspec.to_builtins(found) == {"with": {"a": 1}, "if": "a", "else": {"call": "m:f"}}


def test_empty_step_has_the_documented_defaults() -> None:
    found = step()
    assert (found.wait, found.deterministic, found.parallel, found.max) == (
        "all",
        False,
        None,
        None,
    )
    assert flow.Allow().failed == 0


@pytest.mark.parametrize(
    ("field", "largest"), [("parallel", flow.MAX_IN_FLIGHT), ("max", flow.MAX_ITERATIONS)]
)
def test_counts_of_a_step_are_at_least_one_and_bounded(field: str, largest: int) -> None:
    assert step(**{field: 1}) != step(**{field: largest})
    for value in (0, largest + 1):
        with pytest.raises(msgspec.ValidationError):
            step(**{field: value})


@pytest.mark.parametrize("field", ["attemptSeconds", "timeoutSeconds"])
def test_durations_of_a_step_are_positive(field: str) -> None:
    step(**{field: 0.001})
    with pytest.raises(msgspec.ValidationError):
        step(**{field: 0})


def test_unknown_field_of_a_step_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="retries"):
        step(retries=3)


@pytest.mark.parametrize("do", [[], [{}], [{"a": {}, "b": {}}]])
def test_each_entry_of_a_flow_is_one_named_step(do: list[object]) -> None:
    assert msgspec.convert({"do": [{"a": {}}]}, flow.Flow).do == ({"a": flow.Step()},)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"do": do}, flow.Flow)


def test_last_steps_are_encoded_as_finally() -> None:
    found = msgspec.convert({"do": [{"a": {}}], "finally": [{"z": {}}]}, flow.Flow)
    assert found.finally_ == ({"z": {}},)


def test_empty_cause_is_refused() -> None:
    assert msgspec.convert({}, flow.Catch).causes == ()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"causes": [""]}, flow.Catch)
