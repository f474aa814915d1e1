"""`kiln wait`: what --for means."""

from typing import Any

import pytest

from kilnwork.api import kinds
from kilnwork.cli import errors
from kilnwork.cli.commands import wait


def task(state: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    return {"status": {"state": state, "conditions": listed}}


@pytest.mark.parametrize("wanted", ["state=Success", "state=success", "Success", "final"])
def test_a_state_is_reached(wanted: str) -> None:
    test = wait.test_of(wanted, "task/a")
    assert not test(task("Running"))
    assert not test({})
    assert test(task("Success"))


def test_another_end_is_a_failure() -> None:
    with pytest.raises(errors.TaskFailed, match="will not be Success: Failed"):
        wait.test_of("state=Success", "task/a")(task("Failed"))
    assert wait.test_of("final", "task/a")(task("Failed"))


@pytest.mark.parametrize("state", ["Failed", "Killed"])
def test_an_end_that_is_no_success_is_a_failure_by_default(state: str) -> None:
    wait.check_end(task("Success"), "task/a")
    with pytest.raises(errors.TaskFailed, match=f"task/a ended as {state}"):
        wait.check_end(task(state), "task/a")


def test_conditions() -> None:
    test = wait.test_of("condition=available", "taskcluster/a")
    assert test(task("", ("Available", "True")))
    assert not test(task("", ("Available", "False")))
    assert wait.test_of("condition=Available=Unknown", "x")(task("", ("Available", "Unknown")))


def test_deletion_and_absence() -> None:
    assert wait.test_of("delete", "task/a")(None)
    assert not wait.test_of("delete", "task/a")(task("Success"))
    with pytest.raises(errors.Missing, match="task/a does not exist"):
        wait.test_of("final", "task/a")(None)


@pytest.mark.parametrize("wanted", ["nonsense", "state=", "condition=", "state=Nope", ""])
def test_nonsense_is_refused(wanted: str) -> None:
    with pytest.raises(errors.Unusable, match="write state=NAME"):
        wait.test_of(wanted, "task/a")


@pytest.mark.parametrize("wanted", ["final", "state=Running", "Success"])
def test_only_tasks_have_an_end(wanted: str) -> None:
    wait.check_kind(wanted, kinds.TASKS)
    with pytest.raises(errors.Unusable, match="for a TaskCluster write --for=condition=TYPE"):
        wait.check_kind(wanted, kinds.TASK_CLUSTERS)


@pytest.mark.parametrize("wanted", ["delete", "condition=Ready", "condition=Ready=False"])
def test_whatever_has_conditions_can_be_waited_for(wanted: str) -> None:
    wait.check_kind(wanted, kinds.TASK_CLUSTERS)
