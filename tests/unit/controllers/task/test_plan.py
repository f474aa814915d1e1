"""The decisions of the Task controller, case by case."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, input_assembly, meta, reasons, task, task_cluster
from kilnwork.controllers.task import plan
from kilnwork.dispatch import model
from kilnwork.kit import clock, ids
from support import view_samples

UID = "018f3a5e-0000-7000-8000-000000000001"
NOW = 1_700_000_000.0
CLUSTER = task_cluster.TaskCluster(metadata=meta.ObjectMeta(name="default", namespace="default"))
NEW = task.TaskStatus()
_view = view_samples.running
GONE = "its Task object was deleted"
OBJECT = input_assembly.InputSource(input_assembly.InputKind.OBJECT, "start")


def _task(*, known: task.TaskStatus = NEW, name: str = "a", **spec: Any) -> task.Task:
    metadata = meta.ObjectMeta(name=name, namespace="default", uid=UID, generation=1)
    return task.Task(metadata=metadata, spec=task.TaskSpec(**spec), status=known)


def _decide(seen: task.Task | None, **facts: Any) -> plan.Plan:
    values: dict[str, Any] = {
        "task": seen,
        "view": None,
        "cluster": CLUSTER,
        "now": NOW,
        "pending_since": NOW,
    }
    return plan.decide(plan.Facts(**{**values, **facts}))


def _kill(reason: str, message: str) -> plan.Kill:
    return plan.Kill(ids.task_id(UID), reason, message)


def _reason_and_message(decided: plan.Plan) -> tuple[str, str]:
    assert decided.status is not None
    return decided.status.state, decided.status.reason


def _final(state: str = "Success", run: int = 1) -> task.TaskStatus:
    return task.TaskStatus(
        state=state, reason="X", run=run, finish_time=clock.rfc3339(NOW), observed_generation=1
    )


# Before the dispatcher has it


def test_task_with_all_requirements_is_submitted() -> None:
    seen = _task(input_object="start", command=("true",))
    decided = _decide(seen, sources={OBJECT: plan.Ready({"count": "0"})})
    assert decided.submit == model.Submission(
        task=ids.task_id(UID),
        namespace="default",
        name="a",
        spec=seen.spec,
        inputs=b'{"input":{"count":"0"}}',
        declared=True,
        pending_since=NOW,
    )
    assert decided.status is None


def test_missing_cluster_is_named_and_awaited() -> None:
    decided = _decide(_task(cluster_name="counter"), cluster=None)
    assert _reason_and_message(decided) == ("Pending", "WaitingForCluster")
    assert decided.status is not None
    assert decided.status.message == "TaskCluster counter does not exist in namespace default"
    assert decided.wakes == {plan.Wake("TaskCluster", "counter")}
    assert decided.submit is None


def test_cluster_being_deleted_gets_no_new_task() -> None:
    leaving = meta.ObjectMeta(name="default", deletion_timestamp=clock.rfc3339(NOW))
    decided = _decide(_task(), cluster=task_cluster.TaskCluster(metadata=leaving))
    assert _reason_and_message(decided) == ("Pending", "WaitingForCluster")


def test_missing_object_is_named_and_awaited() -> None:
    missing = plan.Missing("TaskObject start does not exist in namespace default")
    decided = _decide(_task(input_object="start"), sources={OBJECT: missing})
    assert _reason_and_message(decided) == ("Pending", "WaitingForObject")
    assert decided.status is not None
    assert "start" in decided.status.message
    assert decided.wakes == {plan.Wake("TaskObject", "start")}


def test_several_missing_inputs_are_counted() -> None:
    other = input_assembly.InputSource(input_assembly.InputKind.TASK, "t")
    sources = {other: plan.Missing("Task t is late"), OBJECT: plan.Missing("no start")}
    decided = _decide(_task(), sources=sources)
    assert decided.status is not None
    assert decided.status.message == "no start (and 1 more)"
    assert decided.wakes == {plan.Wake("TaskObject", "start"), plan.Wake("Task", "t")}


def test_failed_input_fails_the_task() -> None:
    broken = plan.Broken("Task t is Failed: exit code 3")
    decided = _decide(
        _task(), sources={input_assembly.InputSource(input_assembly.InputKind.TASK, "t"): broken}
    )
    assert _reason_and_message(decided) == ("Failed", "InputFailed")


def test_invalid_input_fails_the_task() -> None:
    entry = task.TaskInput(name="a", object="start", path="$.nothing")
    decided = _decide(_task(inputs=(entry,)), sources={OBJECT: plan.Ready({})})
    assert _reason_and_message(decided) == ("Failed", "InputPathMissing")
    assert decided.submit is None


def test_suspended_task_is_not_submitted() -> None:
    decided = _decide(_task(suspend=True))
    assert _reason_and_message(decided) == ("Pending", "Suspended")
    assert decided.submit is None


def test_task_killed_before_it_started_never_reaches_the_dispatcher() -> None:
    decided = _decide(_task(kill_timestamp=clock.rfc3339(NOW - 1)))
    assert _reason_and_message(decided) == ("Killed", "Killed")
    assert decided.submit is None


def test_spec_accepted_by_a_real_api_server_may_be_refused() -> None:
    decided = _decide(_task(command=("a\0b",)))
    assert decided.submit is None
    assert decided.status is not None
    assert (decided.status.state, decided.status.reason) == ("Failed", "InvalidSpec")
    assert decided.status.message == "spec.command[0] must not contain a NUL character"


def test_kill_timestamp_in_the_future_schedules_a_pass() -> None:
    seen = _task(kill_timestamp=clock.rfc3339(NOW + 30))
    decided = _decide(seen)
    assert decided.submit is not None
    assert decided.again_s == 30
    running = _decide(seen, view=_view())
    assert (running.kills, running.again_s) == ((), 30)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (task.Timeouts(pending_seconds=5), "PendingTimedOut"),
        (task.Timeouts(total_seconds=5), "TotalTimedOut"),
    ],
)
def test_waiting_task_has_deadlines(limits: task.Timeouts, reason: str) -> None:
    seen = _task(timeouts=limits)
    early = _decide(seen, cluster=None, pending_since=NOW - 4)
    assert _reason_and_message(early) == ("Pending", "WaitingForCluster")
    assert early.again_s == 1
    late = _decide(seen, cluster=None, pending_since=NOW - 5)
    assert _reason_and_message(late) == ("Failed", reason)


def test_spec_that_is_too_large_fails_the_task() -> None:
    decided = _decide(_task(), unfit="it is too large")
    assert _reason_and_message(decided) == ("Failed", "InvalidSpec")
    assert decided.submit is None


def test_finished_run_unknown_to_the_journal_is_left_unchanged() -> None:
    decided = _decide(_task(known=_final()))
    assert decided == plan.Plan()


def test_unfinished_run_unknown_to_the_journal_is_resubmitted() -> None:
    known = task.TaskStatus(state="Running", reason="Started", run=1)
    assert _decide(_task(known=known)).submit is not None


# With the dispatcher


def test_view_becomes_status() -> None:
    decided = _decide(_task(), view=_view())
    assert _reason_and_message(decided) == ("Running", "Started")
    assert decided.submit is None


def test_due_kill_is_repeated_until_it_takes_effect() -> None:
    seen = _task(kill_timestamp=clock.rfc3339(NOW))
    decided = _decide(seen, view=_view())
    assert decided.kills == (_kill("Killed", f"killTimestamp {clock.rfc3339(NOW)} has come"),)
    heard = _decide(seen, view=_view(state=task.State.KILLING, reason="Killed"))
    assert heard.kills == ()
    assert _reason_and_message(heard) == ("Killing", "Killed")


def test_suspension_is_repeated_until_it_takes_effect() -> None:
    waiting = _view(state=task.State.PENDING, reason="NoFreeSlot")
    assert _decide(_task(suspend=True), view=waiting).suspend is True
    held = _view(state=task.State.PENDING, reason="Suspended", suspended=True)
    assert _decide(_task(suspend=True), view=held).suspend is None
    assert _decide(_task(suspend=False), view=held).suspend is False
    assert _decide(_task(suspend=True), view=_view(state=task.State.SUCCESS)).suspend is None


def test_finished_task_is_not_killed() -> None:
    seen = _task(kill_timestamp=clock.rfc3339(NOW))
    assert _decide(seen, view=_view(state=task.State.SUCCESS)).kills == ()


def test_task_of_a_deleted_object_is_killed() -> None:
    decided = _decide(None, strays=(ids.task_id(UID),))
    assert decided.kills == (_kill("Deleted", GONE),)
    assert decided.status is None


def test_new_object_of_the_same_name_is_another_task() -> None:
    old = ids.task_id("018f3a5e-0000-7000-8000-000000000009")
    decided = _decide(_task(), strays=(old,))
    assert decided.kills == (plan.Kill(old, "Deleted", GONE),)
    assert decided.submit is not None


def test_object_held_by_a_finalizer_is_killed_and_shown() -> None:
    metadata = meta.ObjectMeta(
        name="a", namespace="default", uid=UID, deletion_timestamp=clock.rfc3339(NOW)
    )
    seen = task.Task(metadata=metadata)
    decided = _decide(seen, view=_view())
    assert decided.kills == (_kill("Deleted", GONE),)
    assert _decide(seen).submit is None


def test_higher_run_of_a_finished_task_is_submitted() -> None:
    seen = _task(run=2, known=_final("Failed"))
    decided = _decide(seen, view=_view(state=task.State.FAILED))
    assert decided.submit is not None
    assert decided.submit.spec.run == 2


def test_higher_run_first_ends_the_previous_run() -> None:
    decided = _decide(_task(run=2), view=_view())
    assert decided.submit is None
    assert decided.kills == (_kill("Replaced", "run 2 takes its place"),)
    assert _reason_and_message(decided) == ("Running", "Started")
    ending = _decide(_task(run=2), view=_view(state=task.State.KILLING, reason="Replaced"))
    assert ending.kills == ()
    assert ending.submit is None


def test_successful_task_runs_again_only_with_force_for_that_run() -> None:
    metadata = meta.ObjectMeta(
        name="a", namespace="default", uid=UID, annotations={task.FORCE_ANNOTATION: "2"}
    )
    view = _view(state=task.State.SUCCESS)
    forced = task.Task(metadata=metadata, spec=task.TaskSpec(run=2), status=_final())
    assert _decide(forced, view=view).force
    other = task.Task(metadata=metadata, spec=task.TaskSpec(run=3), status=_final())
    assert not _decide(other, view=view).force


def test_run_keeps_children_only_with_resume_for_that_run() -> None:
    view = _view(run=1, state=task.State.FAILED)
    for run, resumed in (("2", True), ("1", False)):
        notes = {task.RESUME_ANNOTATION: run}
        metadata = meta.ObjectMeta(namespace="default", name="hello", uid=UID, annotations=notes)
        seen = task.Task(metadata=metadata, spec=task.TaskSpec(run=2), status=_final())
        assert _decide(seen, view=view).resume is resumed


def test_refused_run_leaves_the_previous_run() -> None:
    seen = _task(run=2, known=_final())
    view = _view(state=task.State.SUCCESS, reason="Succeeded", finished=NOW)
    decided = _decide(seen, view=view, refused=True)
    assert decided.submit is None
    assert _reason_and_message(decided) == ("Success", "Succeeded")


def test_no_worker_is_explained_by_the_cluster() -> None:
    condition = meta.Condition(
        type="Available",
        status="False",
        reason=reasons.ClusterReason.SERVICE_ACCOUNT_MISSING,
        message="ServiceAccount x does not exist in namespace default",
    )
    known = task_cluster.TaskClusterStatus(conditions=(condition,))
    cluster = msgspec.structs.replace(CLUSTER, status=known)
    view = _view(state=task.State.PENDING, reason="NoWorker", message="no worker")
    decided = _decide(_task(), view=view, cluster=cluster)
    assert _reason_and_message(decided) == ("Pending", "WaitingForServiceAccount")
    assert decided.status is not None
    assert "ServiceAccount x" in decided.status.message
    assert decided.wakes == {plan.Wake("TaskCluster", "default")}


# After the end


def test_result_is_written_to_the_output_object_once() -> None:
    seen = _task(output_object="out")
    payload = attempts.Payload("application/json", b"[1]")
    view = _view(state=task.State.SUCCESS, result=payload, finished=NOW)
    assert _decide(seen, view=view).output == plan.Output("out", [1])
    made = _decide(seen, view=view, output_made="out")
    assert made.output is None
    assert made.status is not None
    assert made.status.output_object == "out"
    assert _decide(seen, view=view, output_made="").output is None


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (attempts.Payload("application/json", b"", b"d" * 32, 300_000), "300000 bytes, too large"),
        (attempts.Payload("application/octet-stream", b"x"), "not JSON"),
        (attempts.Payload("application/json", b"[" * 2000 + b"]" * 2000), "too deep"),
    ],
)
def test_result_that_cannot_be_an_object_is_reported_once(
    payload: attempts.Payload, why: str
) -> None:
    seen = _task(output_object="out")
    view = _view(state=task.State.SUCCESS, result=payload, finished=NOW)
    output = _decide(seen, view=view).output
    assert output is not None
    assert why in output.obstacle
    assert _decide(seen, view=view, output_made="").output is None


def test_failed_task_creates_no_output_object() -> None:
    view = _view(state=task.State.FAILED, finished=NOW)
    assert _decide(_task(output_object="out"), view=view).output is None


@pytest.mark.parametrize("known", [True, False])
def test_object_is_deleted_after_its_time_to_live(*, known: bool) -> None:
    seen = _task(known=_final(), ttl_seconds_after_finished=60)
    view = _view(state=task.State.SUCCESS, finished=NOW) if known else None
    early = _decide(seen, view=view, now=NOW + 20)
    assert not early.delete
    assert early.again_s == 40
    assert _decide(seen, view=view, now=NOW + 60).delete


# Results as inputs


def test_result_of_a_task_is_an_input() -> None:
    payload = attempts.Payload("application/json", b'{"x": 1}')
    found = plan.result_of(_task(), _view(state=task.State.SUCCESS, result=payload))
    assert found == plan.Ready({"x": 1})


def test_task_without_result_gives_null() -> None:
    assert plan.result_of(_task(), _view(state=task.State.SUCCESS)) == plan.Ready(None)


def test_input_of_an_unfinished_task_is_awaited() -> None:
    assert isinstance(plan.result_of(_task(), _view()), plan.Missing)
    assert isinstance(plan.result_of(_task(), None), plan.Missing)


def test_input_of_a_task_that_runs_again_is_awaited() -> None:
    view = _view(state=task.State.SUCCESS)
    assert isinstance(plan.result_of(_task(run=2, known=_final()), view), plan.Missing)


@pytest.mark.parametrize("state", [task.State.FAILED, task.State.KILLED])
def test_failed_task_breaks_its_dependents(state: task.State) -> None:
    assert isinstance(plan.result_of(_task(), _view(state=state)), plan.Broken)
    assert isinstance(plan.result_of(_task(known=_final(state)), None), plan.Broken)


def test_binary_result_is_no_input() -> None:
    payload = attempts.Payload("application/octet-stream", b"\x00")
    found = plan.result_of(_task(), _view(state=task.State.SUCCESS, result=payload))
    assert isinstance(found, plan.Broken)


def test_result_in_a_blob_is_no_input() -> None:
    payload = attempts.Payload("application/json", b"", digest=b"\1" * 32, size=70_000)
    found = plan.result_of(_task(), _view(state=task.State.SUCCESS, result=payload))
    assert isinstance(found, plan.Broken)
    assert "70000 bytes" in found.message


def test_result_is_read_from_the_status_if_the_journal_forgot_it() -> None:
    known = msgspec.structs.replace(_final(), result=task.Result(value=7, size_bytes=1))
    assert plan.result_of(_task(known=known), None) == plan.Ready(7)
    large = msgspec.structs.replace(_final(), result=task.Result(size_bytes=9_000))
    assert isinstance(plan.result_of(_task(known=large), None), plan.Broken)
