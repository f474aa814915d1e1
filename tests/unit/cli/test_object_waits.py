"""Final states of a Task for `kiln wait`."""

import pytest

from kilnwork.cli import object_waits


@pytest.mark.parametrize(
    ("state", "run", "asked", "over"),
    [
        ("Failed", 1, 1, True),
        ("Failed", 1, 2, False),  # requested by `kiln retry`, not started yet
        ("Killed", 2, 2, True),
        ("Killed", 2, 3, False),
        ("Running", 2, 2, False),
        ("Success", 1, 2, True),
    ],
)
def test_task_is_final_unless_a_later_run_is_requested(
    state: str, run: int, asked: int, *, over: bool
) -> None:
    assert (
        object_waits.final({"spec": {"run": asked}, "status": {"state": state, "run": run}}) is over
    )


def test_forced_rerun_of_a_success_is_not_final() -> None:
    found = {
        "metadata": {"annotations": {"kilnwork.dev/force-run": "2"}},
        "spec": {"run": 2},
        "status": {"state": "Success", "run": 1},
    }
    assert not object_waits.final(found)
    assert object_waits.final({**found, "spec": {"run": 3}})


def test_missing_fields_mean_the_first_run() -> None:
    assert object_waits.final({"spec": {}, "status": {"state": "Failed"}})
    assert not object_waits.final({"spec": {}})
    assert not object_waits.final(None)
