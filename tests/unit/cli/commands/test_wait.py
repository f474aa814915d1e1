"""`kiln wait`: meaning of --for."""

from typing import Any

import pytest

from kilnwork.api import kinds
from kilnwork.cli import errors
from kilnwork.cli.commands import wait


def task(state: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    return {"status": {"state": state, "conditions": listed}}


@pytest.mark.parametrize("wanted", ["state=Success", "state=success", "Success", "final"])
def test_state_is_reached(wanted: str) -> None:
    test = wait.test_of(wanted, "task/a")
    assert not test(task("Running"))
    assert not test({})
    assert test(task("Success"))


def asked_again(state: str, *, run: int) -> dict[str, Any]:
    """Return a task whose second run `kiln retry` has requested, with the status of its `run`."""
    return {"spec": {"run": 2}, "status": {"state": state, "run": run}}


@pytest.mark.parametrize("state", ["Failed", "Killed"])
def test_end_of_the_previous_run_does_not_count(state: str) -> None:
    test = wait.test_of(f"state={state}", "task/a")
    assert not test(asked_again(state, run=1))
    assert not test(asked_again("Running", run=2))
    assert test(asked_again(state, run=2))
    assert not wait.test_of("state=Success", "task/a")(asked_again(state, run=1))
    assert wait.test_of("state=Running", "task/a")(asked_again("Running", run=1))


def test_other_final_state_is_a_failure() -> None:
    with pytest.raises(errors.TaskFailed, match="will not be Success: Failed"):
        wait.test_of("state=Success", "task/a")(task("Failed"))
    assert wait.test_of("final", "task/a")(task("Failed"))


@pytest.mark.parametrize("state", ["Failed", "Killed"])
def test_unsuccessful_end_is_a_failure_by_default(state: str) -> None:
    wait.check_end(task("Success"), "task/a")
    with pytest.raises(errors.TaskFailed, match=f"task/a ended as {state}"):
        wait.check_end(task(state), "task/a")


def test_condition_is_met() -> None:
    test = wait.test_of("condition=available", "taskcluster/a")
    assert test(task("", ("Available", "True")))
    assert not test(task("", ("Available", "False")))
    assert wait.test_of("condition=Available=Unknown", "x")(task("", ("Available", "Unknown")))


def test_condition_of_an_older_generation_is_not_met() -> None:
    test = wait.test_of("condition=Finished", "task/a")
    condition = {"type": "Finished", "status": "True", "observedGeneration": 1}
    found = {"metadata": {"generation": 2}, "status": {"conditions": [condition]}}
    assert not test(found)
    assert test({**found, "metadata": {"generation": 1}})


def test_wait_for_deletion_ends_when_the_object_is_absent() -> None:
    assert wait.test_of("delete", "task/a")(None)
    assert not wait.test_of("delete", "task/a")(task("Success"))
    with pytest.raises(errors.Missing, match="task/a does not exist"):
        wait.test_of("final", "task/a")(None)


@pytest.mark.parametrize("wanted", ["nonsense", "state=", "condition=", "state=Nope", ""])
def test_unknown_state_is_rejected(wanted: str) -> None:
    with pytest.raises(errors.InvalidInput, match="write state=NAME"):
        wait.test_of(wanted, "task/a")


@pytest.mark.parametrize("wanted", ["final", "state=Running", "Success"])
def test_state_of_a_kind_without_states_is_rejected(wanted: str) -> None:
    wait.check_kind(wanted, kinds.TASKS)
    with pytest.raises(errors.InvalidInput, match="for a TaskCluster write --for=condition=TYPE"):
        wait.check_kind(wanted, kinds.TASK_CLUSTERS)


@pytest.mark.parametrize("wanted", ["delete", "condition=Ready", "condition=Ready=False"])
def test_conditions_of_any_kind_can_be_waited_for(wanted: str) -> None:
    wait.check_kind(wanted, kinds.TASK_CLUSTERS)
