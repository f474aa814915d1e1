"""Variables of a call in the environment of its process."""

import os

import pytest

from kilnwork.sdk import call_environment


def test_variables_are_set_during_a_call_and_restored_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KILN_TEST_OLD", "before")
    monkeypatch.delenv("KILN_TEST_NEW", raising=False)
    with call_environment.applied({"KILN_TEST_OLD": "now", "KILN_TEST_NEW": "new"}):
        assert os.environ["KILN_TEST_OLD"] == "now"
        assert os.environ["KILN_TEST_NEW"] == "new"
    assert os.environ["KILN_TEST_OLD"] == "before"
    assert "KILN_TEST_NEW" not in os.environ


def fail_without_it() -> None:
    with call_environment.applied({"KILN_TEST_NEW": "new"}):
        del os.environ["KILN_TEST_NEW"]
        raise ValueError("bad")


def test_variables_removed_by_a_failing_call_are_restored() -> None:
    with pytest.raises(ValueError, match="bad"):
        fail_without_it()
    assert "KILN_TEST_NEW" not in os.environ
