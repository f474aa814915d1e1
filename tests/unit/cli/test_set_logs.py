"""A step that a SyncSet does not have is said to be none."""

from typing import Any

import pytest

from kilnwork.cli import set_logs

SET: dict[str, Any] = {"status": {"flow": {"steps": {"solve": {}, "price": {}}}}}


@pytest.mark.parametrize("step", [None, "price", "price[17]", "solve[3]"])
def test_a_step_or_an_instance_of_one_is_known(step: str | None) -> None:
    assert set_logs._name_steps(SET, step) == ""


@pytest.mark.parametrize("step", ["prices", "price.solve", "[1]"])
def test_another_step_is_named_with_those_that_there_are(step: str) -> None:
    text = f" No step has the path {step}; there are price, solve."
    assert set_logs._name_steps(SET, step) == text


@pytest.mark.parametrize("found", [{}, {"status": {}}, {"status": {"flow": None}}])
def test_before_the_flow_has_begun_no_step_is_unknown(found: dict[str, Any]) -> None:
    assert set_logs._name_steps(found, "price") == ""
