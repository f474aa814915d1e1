"""Hints for steps that a SyncSet does not have."""

from typing import Any

import pytest

from kilnwork.cli import set_logs

SET: dict[str, Any] = {"status": {"flow": {"steps": {"solve": {}, "price": {}}}}}


@pytest.mark.parametrize("step", [None, "price", "price[17]", "solve[3]"])
def test_existing_step_or_instance_gives_no_hint(step: str | None) -> None:
    assert set_logs._name_steps(SET, step) == ""


@pytest.mark.parametrize("step", ["prices", "price.solve", "[1]"])
def test_unknown_step_error_lists_the_steps(step: str) -> None:
    text = f" No step has the path {step}; there are price, solve."
    assert set_logs._name_steps(SET, step) == text


@pytest.mark.parametrize("found", [{}, {"status": {}}, {"status": {"flow": None}}])
def test_no_step_is_unknown_before_the_flow_starts(found: dict[str, Any]) -> None:
    assert set_logs._name_steps(found, "price") == ""
