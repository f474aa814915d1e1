"""What the Task reconciler remembers between two passes."""

from typing import Any

from kilnwork.api import meta, task
from kilnwork.controllers.task import known_state
from kilnwork.kit import clock

NOW = 1_700_000_000.0
NEW = task.TaskStatus()


def _task(*, created: float = NOW, known: task.TaskStatus = NEW, **spec: Any) -> task.Task:
    metadata = meta.ObjectMeta(name="a", creation_timestamp=clock.rfc3339(created))
    return task.Task(metadata=metadata, spec=task.TaskSpec(**spec), status=known)


def _waiting(reason: str = "NoWorker") -> task.TaskStatus:
    return task.TaskStatus(state="Pending", reason=reason, run=1)


def test_new_task_waits_since_it_was_seen() -> None:
    known = known_state.KnownState("u")
    assert known.pending_since(_task(created=NOW - 0.9), NOW) == NOW
    assert known.pending_since(_task(created=NOW - 0.9), NOW + 9) == NOW


def test_task_from_before_a_restart_waits_since_it_was_made() -> None:
    assert known_state.KnownState("u").pending_since(_task(created=NOW - 60), NOW) == NOW - 60


def test_new_run_restarts_its_wait() -> None:
    known = known_state.KnownState("u")
    known.pending_since(_task(), NOW)
    assert known.pending_since(_task(run=2), NOW + 9) == NOW + 9


def test_suspension_does_not_count_as_waiting() -> None:
    known = known_state.KnownState("u")
    known.pending_since(_task(), NOW)
    known.pending_since(_task(suspend=True), NOW + 9)
    suspended = _waiting("Suspended")
    assert known.pending_since(_task(known=suspended), NOW + 60) == NOW + 60


def test_long_wait_is_reported_once_for_each_reason() -> None:
    known = known_state.KnownState("u")
    assert known.long_wait(_waiting(), 0.0) == (False, known_state.REPORT_AFTER_S)
    assert known.long_wait(_waiting(), 4.0) == (False, 6.0)
    assert known.long_wait(_waiting(), 10.0) == (True, None)
    assert known.long_wait(_waiting(), 20.0) == (False, None)
    assert known.long_wait(_waiting("NoFreeSlot"), 21.0) == (False, known_state.REPORT_AFTER_S)


def test_suspended_task_is_not_reported_as_waiting() -> None:
    assert known_state.KnownState("u").long_wait(_waiting("Suspended"), 0.0) == (False, None)


def test_output_object_is_known_from_the_status_after_a_restart() -> None:
    shown = task.TaskStatus(state="Success", reason="Succeeded", run=1, output_object="out")
    known = known_state.KnownState("u")
    assert known.output_made(_task(known=shown), 1) == "out"
    assert known.output_made(_task(known=shown), 2) is None
    known.output = (2, "")
    assert known.output_made(_task(known=shown), 2) == ""
