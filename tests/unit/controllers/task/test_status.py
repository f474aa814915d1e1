"""What a Task's status says, and when it is written."""

import msgspec
import pytest

from kilnwork.api import attempts, meta, reasons, task
from kilnwork.controllers.task import status
from kilnwork.dispatch import model
from kilnwork.kit import clock
from support import view_samples

UID = "018f3a5e-0000-7000-8000-000000000001"
NOW = 1_700_000_000.0
NEW = task.TaskStatus()
_view = view_samples.running
VIEW = _view()


def _task(known: task.TaskStatus = NEW) -> task.Task:
    metadata = meta.ObjectMeta(name="a", namespace="default", uid=UID, generation=1)
    return task.Task(metadata=metadata, status=known)


def _status_of(seen: task.Task, view: model.TaskView, *, now: float = NOW) -> task.TaskStatus:
    why = status.Explanation(view.reason, view.message)
    return status.of_view(seen, view, why=why, output_object="", now=now)


def _condition(shown: task.TaskStatus, kind: str) -> meta.Condition | None:
    return next((c for c in shown.conditions if c.type == kind), None)


def test_running_task_shows_its_pod_and_node() -> None:
    shown = _status_of(_task(), VIEW)
    assert (shown.state, shown.reason, shown.pod_name, shown.node_name) == (
        "Running",
        "Started",
        "w-0",
        "n",
    )
    assert shown.start_time == clock.rfc3339(NOW)
    started = _condition(shown, "Started")
    assert started is not None
    assert started.status == "True"


def test_pod_that_starts_and_ends_quickly_needs_one_write() -> None:
    starting = _first(task.State.STAGING, "Starting")
    held, wait_s = status.hold(task.TaskStatus(), starting, held=None, now=10.0, is_pod=True)
    assert wait_s == pytest.approx(status.POD_START_HOLD_S)
    running = _first(task.State.RUNNING)
    held, wait_s = status.hold(task.TaskStatus(), running, held=held, now=11.9, is_pod=True)
    assert wait_s == pytest.approx(status.POD_RUNNING_HOLD_S)
    ended = _first(task.State.SUCCESS)
    assert status.hold(task.TaskStatus(), ended, held=held, now=12.0, is_pod=True)[1] == 0


def test_reason_of_a_pod_that_does_not_start_is_written_soon() -> None:
    waits = _first(task.State.STAGING, "ImagePull")
    _, wait_s = status.hold(task.TaskStatus(), waits, held=None, now=10.0, is_pod=True)
    assert wait_s == status.WAITING_HOLD_S


def test_same_view_gives_the_same_status_later() -> None:
    first = _status_of(_task(), VIEW)
    assert _status_of(_task(first), VIEW, now=NOW + 60) == first


def test_small_json_result_is_copied_with_its_nulls() -> None:
    payload = attempts.Payload("application/json", b'{"a":null}')
    shown = _status_of(_task(), _view(state=task.State.SUCCESS, result=payload))
    assert msgspec.to_builtins(shown)["result"]["value"] == {"a": None}
    assert shown.result is not None
    assert shown.result.size_bytes == 10
    assert shown.result.digest.startswith("sha256:")


@pytest.mark.parametrize(
    "payload",
    [
        attempts.Payload("application/json", b'"' + b"x" * attempts.MAX_STATUS_BYTES + b'"'),
        attempts.Payload("application/octet-stream", b"\x00"),
        attempts.Payload("application/json", b'{"a": [18446744073709551616]}'),
        attempts.Payload("application/json", b"[" * 500 + b"]" * 500),
        attempts.Payload("application/json", b"[" * 4000 + b"]" * 4000),
    ],
)
def test_large_or_binary_result_is_shown_without_its_value(payload: attempts.Payload) -> None:
    shown = _status_of(_task(), _view(state=task.State.SUCCESS, result=payload))
    assert "value" not in msgspec.to_builtins(shown)["result"]
    assert shown.result is not None
    assert shown.result.size_bytes == len(payload.data)


def test_result_in_a_blob_is_named_by_its_own_digest_and_size() -> None:
    payload = attempts.Payload("application/json", b"", digest=b"\1" * 32, size=70_000)
    shown = _status_of(_task(), _view(state=task.State.SUCCESS, result=payload))
    assert shown.result is not None
    assert (shown.result.size_bytes, shown.result.digest) == (70_000, "sha256:" + "01" * 32)


@pytest.mark.parametrize(
    ("proof", "expected"), [(True, "True"), (None, "True"), (False, "Unknown")]
)
def test_killed_task_has_a_stopped_condition(*, proof: bool | None, expected: str) -> None:
    shown = _status_of(_task(), _view(state=task.State.KILLED, reason="Killed", stopped=proof))
    stopped = _condition(shown, "Stopped")
    assert stopped is not None
    assert stopped.status == expected


def test_successful_task_needs_no_stopped_condition() -> None:
    shown = _status_of(_task(), _view(state=task.State.SUCCESS, reason="Succeeded", stopped=True))
    assert _condition(shown, "Stopped") is None


def test_suspended_condition_while_running_and_after_resume() -> None:
    assert _condition(_status_of(_task(), VIEW), "Suspended") is None
    held = msgspec.structs.replace(_task(), spec=task.TaskSpec(suspend=True))
    shown = _status_of(held, _view(suspended=True))
    condition = _condition(shown, "Suspended")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Suspended")
    assert condition.message == "spec.suspend is true: no attempt starts; one that runs goes on"
    resumed = _condition(_status_of(_task(shown), VIEW), "Suspended")
    assert resumed is not None
    assert resumed.status == "False"
    over = _view(state=task.State.SUCCESS, finished=NOW, stopped=True)
    assert _condition(_status_of(_task(shown), over), "Suspended") is None


def test_new_run_resets_the_conditions() -> None:
    first = _status_of(_task(), _view(state=task.State.FAILED, reason="NonZeroExit"))
    again = _status_of(
        _task(first), _view(run=2, started=None, state=task.State.PENDING, reason="X")
    )
    started = _condition(again, "Started")
    assert started is not None
    assert started.status == "False"


def _first(state: task.State, reason: str = "Started") -> task.TaskStatus:
    return _status_of(_task(), _view(state=state, reason=reason))


@pytest.mark.parametrize(
    ("state", "delay_s"),
    [
        (task.State.PENDING, 0.5),
        (task.State.STAGING, 0.5),
        (task.State.RUNNING, 0.05),
        (task.State.SUCCESS, 0.0),
        (task.State.FAILED, 0.0),
        (task.State.KILLED, 0.0),
    ],
)
def test_first_write_is_delayed_according_to_the_state(state: task.State, delay_s: float) -> None:
    _, wait_s = status.hold(task.TaskStatus(), _first(state), held=None, now=10.0)
    assert wait_s == pytest.approx(delay_s)


def test_equal_status_is_not_written() -> None:
    shown = _first(task.State.RUNNING)
    assert status.hold(shown, shown, held=status.Hold("minor", 1.0), now=2.0) == (None, None)


def test_waiting_clock_does_not_restart_when_the_reason_changes() -> None:
    nothing = task.TaskStatus()
    held, _ = status.hold(nothing, _first(task.State.PENDING, "NoWorker"), held=None, now=10.0)
    held, wait_s = status.hold(
        nothing, _first(task.State.PENDING, "NoFreeSlot"), held=held, now=10.4
    )
    assert wait_s == pytest.approx(0.1)


def test_running_is_written_50_ms_after_its_own_start() -> None:
    nothing = task.TaskStatus()
    held, _ = status.hold(nothing, _first(task.State.STAGING), held=None, now=10.0)
    held, wait_s = status.hold(nothing, _first(task.State.RUNNING), held=held, now=10.3)
    assert wait_s == pytest.approx(0.05)
    _, wait_s = status.hold(nothing, _first(task.State.RUNNING), held=held, now=10.4)
    assert wait_s == 0.0


def test_new_position_in_the_queue_is_not_written() -> None:
    view = _view(state=task.State.PENDING, reason="NoFreeSlot", message="3 before it")
    first = _status_of(_task(), view)
    later = _status_of(_task(first), msgspec.structs.replace(view, message="2 before it"))
    assert status.settle(first, later) == first


def test_another_missing_object_is_written() -> None:
    view = _view(state=task.State.PENDING, reason="WaitingForObject", message="TaskObject a")
    first = _status_of(_task(), view)
    later = _status_of(_task(first), msgspec.structs.replace(view, message="TaskObject b"))
    assert status.settle(first, later) == later
    assert status.hold(first, later, held=None, now=1.0)[1] == 0.5


def test_counts_of_children_are_written_every_few_seconds() -> None:
    first = _first(task.State.RUNNING)
    later = _status_of(_task(first), _view(children=task.ChildCounts(total=3, running=3)))
    assert status.hold(first, later, held=None, now=1.0)[1] == status.MINOR_HOLD_S


def test_failure_retry_and_kill_are_announced_once() -> None:
    failed = _first(task.State.FAILED, "NonZeroExit")
    backoff = _first(task.State.PENDING, "RetryBackoff")
    killed = _first(task.State.KILLED, "Killed")
    nothing = task.TaskStatus()
    assert status.announcement(nothing, failed) == status.Announcement("Warning", "NonZeroExit", "")
    assert status.announcement(nothing, backoff) == status.Announcement(
        "Warning", "RetryBackoff", ""
    )
    shown = status.announcement(nothing, killed)
    assert shown is not None
    assert shown.type == "Normal"
    assert status.announcement(failed, failed) is None
    assert status.announcement(nothing, _first(task.State.SUCCESS, "Succeeded")) is None


def test_a_lost_attempt_is_announced_with_its_worker() -> None:
    first = _first(task.State.RUNNING)
    again = _status_of(_task(first), _view(state=task.State.PENDING, reason="NoFreeSlot", losses=1))
    shown = "attempt 1 in Pod w-0 (node n) was lost: the task runs again"
    assert status.announcement(first, again) == status.Announcement("Warning", "AttemptLost", shown)
    later = _status_of(_task(again), _view(attempt=2, losses=1))
    assert status.announcement(again, later) is None
    shown = "attempt 1 in Pod w-0 (node n) was lost (WorkerLost: its Pod is gone): "
    named = status.announcement(first, again, loss="WorkerLost: its Pod is gone")
    assert named is not None
    assert named.message == shown + "the task runs again"


def test_run_that_never_reached_the_dispatcher_keeps_its_finish_time() -> None:
    why = status.Explanation(reasons.Reason.INPUT_FAILED, "Task x is Failed")
    first = status.without_view(_task(), task.State.FAILED, why, now=NOW)
    again = status.without_view(_task(first), task.State.FAILED, why, now=NOW + 100)
    assert first == again
    assert first.finish_time == clock.rfc3339(NOW)


def test_image_ignored_condition_is_set_while_true() -> None:
    seen = _task()
    image = meta.Condition(type="ImageIgnored", status="True", reason="ImageIgnored", message="m")
    why = status.Explanation(VIEW.reason, VIEW.message)
    shown = status.of_view(seen, VIEW, why=why, output_object="", image=image, now=NOW)
    assert _condition(shown, "ImageIgnored") is not None
    assert (
        _condition(_status_of(msgspec.structs.replace(seen, status=shown), VIEW), image.type)
        is None
    )
