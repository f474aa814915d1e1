"""The decisions of the Job controller, case by case."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import input_assembly, job, job_config, meta, reasons, task
from kilnwork.controllers.job import plan
from kilnwork.controllers.task import plan as task_plan
from kilnwork.jobs import index_job_types, job_start_queue
from kilnwork.kit import clock

UID = "018f3a5e-0000-7000-8000-000000000001"
NOW = 1_700_000_000.0
TEMPLATE = job.JobTemplate(task_template=task.TaskTemplate(command=("true",)))
CONFIG = job_config.JobConfig(
    metadata=meta.ObjectMeta(name="report", namespace="default", uid="c-1"),
    spec=job_config.JobConfigSpec(
        template=job_config.JobTemplateSpec(spec=TEMPLATE),
        concurrency=job_config.Concurrency(policy=job.ConcurrencyPolicy.FORBID),
    ),
)


def _job(*, known: job.JobStatus | None = None, **spec: Any) -> job.Job:
    metadata = meta.ObjectMeta(
        name="a",
        namespace="default",
        uid=UID,
        generation=1,
        creation_timestamp=clock.rfc3339(NOW - 5),
    )
    given = {"template": TEMPLATE, **spec}
    return job.Job(metadata=metadata, spec=job.JobSpec(**given), status=known or job.JobStatus())


def _view(phase: job.Phase = job.Phase.RUNNING, **more: Any) -> index_job_types.IndexJobView:
    given: dict[str, Any] = {
        "uid": UID,
        "namespace": "default",
        "name": "a",
        "version": 1,
        "phase": phase,
        "reason": "",
        "message": "",
        "run": 1,
        "created": NOW - 5,
        "started": None if phase is job.Phase.QUEUED else NOW - 4,
        "finished": NOW - 1 if phase.final else None,
        "counts": index_job_types.IndexCounts(total=1),
        "failed_indexes": "",
        "newest": (),
        "result": None,
        "stopped": None,
        "waiting_for": None,
        "suspended": False,
        "priority": 0,
        "max_in_flight": None,
        "group": "",
    }
    return index_job_types.IndexJobView(**{**given, **more})


def _decide(seen: job.Job | None, **facts: Any) -> plan.Plan:
    return plan.decide(plan.Facts(**{"job": seen, "view": None, "now": NOW, **facts}))


def _reason_and_message(decided: plan.Plan) -> tuple[str, str]:
    assert decided.status is not None
    return decided.status.phase, decided.status.reason


# Before the engine has it


def test_unknown_phase_written_by_a_client_is_ignored() -> None:
    known = job.JobStatus(phase="Nonsense", run=1)
    assert _decide(_job(known=known)).put is not None


def test_valid_job_is_passed_to_the_engine() -> None:
    decided = _decide(_job(priority=3))
    assert decided.put is not None
    assert (decided.put.uid, decided.put.name, decided.put.spec.priority) == (UID, "a", 3)
    assert decided.put.hold is None
    assert decided.put.variables["job.name"] == "a"


def test_deleted_job_is_released() -> None:
    assert _decide(None, strays=("u",)).release == ("u",)


def test_job_being_deleted_is_killed_and_reports_it() -> None:
    metadata = msgspec.structs.replace(_job().metadata, deletion_timestamp=clock.rfc3339(NOW))
    leaving = msgspec.structs.replace(_job(), metadata=metadata)
    decided = _decide(leaving, view=_view())
    assert (decided.kill, decided.release) == ("its object was deleted", ())
    for phase in (job.Phase.KILLING, job.Phase.KILLED):
        shown = _decide(leaving, view=_view(phase=phase))
        assert (shown.kill, shown.delete) == ("", False)
        assert _reason_and_message(shown)[0] == phase
    assert _reason_and_message(_decide(leaving)) == ("Killed", "Deleted")
    over = msgspec.structs.replace(
        leaving, status=job.JobStatus(run=1, phase="Succeeded", finish_time=clock.rfc3339(NOW))
    )
    assert _decide(over) == plan.Plan()


def test_invalid_job_says_which_field() -> None:
    decided = _decide(_job(template=job.JobTemplate()))
    assert _reason_and_message(decided) == ("AdmissionError", "InvalidSpec")
    assert decided.status is not None
    assert "spec.template" in decided.status.message
    assert decided.put is None


def test_job_of_a_config_is_expanded_first() -> None:
    decided = _decide(_job(config_name="report", template=None), config=CONFIG)
    assert decided.put is None
    assert decided.patch is not None
    assert decided.patch[-1]["path"] == "/spec"
    assert "configName" not in decided.patch[-1]["value"]


def test_missing_job_config_is_awaited() -> None:
    decided = _decide(_job(config_name="report", template=None))
    assert _reason_and_message(decided) == ("Queued", "WaitingForJobConfig")
    assert decided.wakes == {plan.Wake("JobConfig", "report")}


def test_invalid_option_values_are_an_admission_error() -> None:
    seen = _job(config_name="report", template=None, option_values={"typo": 1})
    decided = _decide(seen, config=CONFIG)
    assert _reason_and_message(decided) == ("AdmissionError", "InvalidSpec")
    assert decided.status is not None
    assert "typo" in decided.status.message


def test_job_killed_before_its_start_never_starts() -> None:
    decided = _decide(_job(kill_timestamp=clock.rfc3339(NOW - 1)))
    assert _reason_and_message(decided) == ("Killed", "Killed")
    assert decided.put is None


def test_refusal_by_the_engine_is_final() -> None:
    assert (
        _reason_and_message(_decide(_job(), refused="spec.template: too large"))[0]
        == "AdmissionError"
    )


def test_finished_job_unknown_to_the_journal_is_left_unchanged() -> None:
    known = job.JobStatus(phase="Succeeded", run=1, finish_time=clock.rfc3339(NOW - 10))
    decided = _decide(_job(known=known, ttl_seconds_after_finished=60))
    assert decided.put is None
    assert decided.status is None
    assert decided.again_s == pytest.approx(50)


# What it waits for


def _dependency(**more: Any) -> plan.DependencyState:
    given = {
        "dependency": job.Dependency(name="b"),
        "finished": False,
        "waits": "Job b is not over",
    }
    return plan.DependencyState(**{**given, **more})


def test_unfinished_dependency_holds_the_job() -> None:
    decided = _decide(_job(), dependencies=(_dependency(),))
    assert decided.put is not None
    assert decided.put.hold == job_start_queue.Hold(
        reason="WaitingForDependency", message="Job b is not over"
    )


def test_failed_dependency_fails_the_job() -> None:
    state = _dependency(finished=True, problem="Job b is Failed: x")
    first = _decide(_job(), dependencies=(state,))
    assert first.put is not None
    assert first.put.hold is not None, "it must not start before it is failed"
    then = _decide(_job(), view=_view(job.Phase.QUEUED), dependencies=(state,))
    assert then.fail == plan.Failure(reasons.JobReason.DEPENDENCY_FAILED, "Job b is Failed: x")


def test_job_starts_when_its_dependency_has_finished() -> None:
    hold = job_start_queue.Hold(reason="WaitingForDependency", message="Job b is not over")
    facts = {"dependencies": (_dependency(finished=True),), "known_hold": hold}
    decided = _decide(_job(), view=_view(job.Phase.QUEUED), **facts)
    assert decided.hold is None
    again = _decide(_job(), view=_view(job.Phase.QUEUED), **{**facts, "known_hold": None})
    assert again.hold is msgspec.UNSET, "it is set once"


@pytest.mark.parametrize(
    ("outcome", "succeeded", "problem"),
    [
        (job.DependencyOutcome.SUCCESS, True, ""),
        (job.DependencyOutcome.SUCCESS, False, "why"),
        (job.DependencyOutcome.FINISHED, False, ""),
    ],
)
def test_dependency_outcome_decides_the_effect_of_an_end(
    outcome: job.DependencyOutcome,
    succeeded: bool,  # noqa: FBT001
    problem: str,
) -> None:
    wanted = job.Dependency(name="b", outcome=outcome)
    found = plan.judge_dependency(wanted, "why", succeeded)
    assert (found.finished, found.problem) == (True, problem)


LIST = input_assembly.InputSource(input_assembly.InputKind.TASK, "lister")


def _each() -> job.Job:
    source = job.ResultSource(task="lister", path="$.files")
    template = msgspec.structs.replace(TEMPLATE, parallelism=job.Parallelism(with_result_of=source))
    return _job(template=template)


def test_list_of_an_unfinished_task_is_awaited() -> None:
    missing = {LIST: task_plan.Missing("Task lister has not succeeded yet")}
    decided = _decide(_each(), sources=missing)
    assert decided.put is not None
    assert decided.put.hold is not None
    assert decided.put.hold.reason == "WaitingForTask"
    view = _view(job.Phase.QUEUED, counts=index_job_types.IndexCounts())
    assert plan.Wake("Task", "lister") in _decide(_each(), view=view, sources=missing).wakes


def test_list_of_another_task_is_provided() -> None:
    found = {LIST: task_plan.Ready({"files": ["a", "b"]})}
    view = _view(job.Phase.QUEUED, counts=index_job_types.IndexCounts())
    decided = _decide(_each(), view=view, sources=found)
    assert decided.provide == plan.Provided(items=["a", "b"])


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (task_plan.Ready({"files": "a"}), "no list"),
        (task_plan.Broken("Task lister is Failed: x"), "Task lister is Failed"),
        (task_plan.Ready({}), "matches nothing"),
    ],
)
def test_list_of_a_failed_task_fails_the_job(found: task_plan.Found, text: str) -> None:
    view = _view(job.Phase.QUEUED, counts=index_job_types.IndexCounts())
    decided = _decide(_each(), view=view, sources={LIST: found})
    assert decided.fail is not None
    assert text in decided.fail.message


def test_list_at_a_missing_path_holds_the_job_until_it_fails() -> None:
    handed_in = _decide(_each(), sources={LIST: task_plan.Ready({})})
    assert handed_in.put is not None
    assert handed_in.put.hold == job_start_queue.Hold(
        reason="InputPathMissing",
        message="path '$.files' of input 'withResultOf' matches nothing",
    )


def test_missing_cluster_is_awaited() -> None:
    text = "TaskCluster default does not exist in namespace default"
    handed_in = _decide(_job(), no_cluster=text)
    assert handed_in.put is not None
    assert handed_in.put.hold == job_start_queue.Hold(reason="WaitingForCluster", message=text)
    view = _view(job.Phase.QUEUED)
    waits = _decide(_job(), view=view, no_cluster=text, known_hold=handed_in.put.hold)
    assert plan.Wake("TaskCluster", "default") in waits.wakes
    assert _decide(_job(), view=view, known_hold=handed_in.put.hold).hold is None


# The engine has it


def test_kill_is_passed_to_the_engine_once() -> None:
    seen = _job(kill_timestamp=clock.rfc3339(NOW - 1))
    assert _decide(seen, view=_view()).kill
    assert not _decide(seen, view=_view(job.Phase.KILLING)).kill
    assert not _decide(seen, view=_view(job.Phase.SUCCEEDED)).kill, "it succeeded before"


def test_kill_in_the_future_is_awaited() -> None:
    seen = _job(kill_timestamp=clock.rfc3339(NOW + 7))
    decided = _decide(seen, view=_view())
    assert not decided.kill
    assert decided.again_s == pytest.approx(7)


def test_changes_of_mutable_fields_are_passed_to_the_engine() -> None:
    parallelism = job.Parallelism(with_count=9, max_in_flight=3)
    seen = _job(
        template=msgspec.structs.replace(TEMPLATE, parallelism=parallelism),
        suspend=True,
        priority=4,
    )
    decided = _decide(seen, view=_view())
    assert (decided.suspend, decided.max_in_flight, decided.priority) == (True, 3, 4)
    same = _view(suspended=True, priority=4, max_in_flight=3)
    again = _decide(seen, view=same)
    assert again.suspend is None
    assert again.max_in_flight is msgspec.UNSET
    assert again.priority is msgspec.UNSET


def test_higher_run_is_started_when_the_run_has_finished() -> None:
    assert _decide(_job(run=2), view=_view()).rerun is None
    assert _decide(_job(run=2), view=_view(job.Phase.FAILED)).rerun == 2
    assert _decide(_job(run=1), view=_view(job.Phase.FAILED)).rerun is None
    assert _decide(_job(run=2), view=_view(job.Phase.ADMISSION_ERROR)).rerun == 2


def test_higher_run_starts_with_the_current_spec() -> None:
    over = _view(job.Phase.FAILED)
    paused = _decide(_job(run=2, suspend=True, priority=4), view=over)
    assert (paused.rerun, paused.suspend, paused.priority, paused.kill) == (2, True, 4, "")
    again = _decide(_job(run=2, priority=4), view=_view(job.Phase.FAILED, suspended=True))
    assert (again.rerun, again.suspend) == (2, False)
    killed = _decide(_job(run=2, kill_timestamp="2020-01-02T03:04:05Z"), view=over)
    text = "killTimestamp 2020-01-02T03:04:05Z came before its start"
    assert (killed.rerun, killed.kill) == (2, text)
    later = _decide(_job(run=2, kill_timestamp="2099-01-02T03:04:05Z"), view=over)
    assert (later.rerun, later.kill) == (2, "")


@pytest.mark.parametrize(
    ("phase", "spec", "left"),
    [
        (job.Phase.SUCCEEDED, {}, job.DEFAULT_TTL_S - 1),
        (job.Phase.SUCCEEDED, {"ttl_seconds_after_finished": 10}, 9),
        (job.Phase.FAILED, {"ttl_seconds_after_finished": 10}, 9),
        (
            job.Phase.FAILED,
            {"ttl_seconds_after_finished": 10, "ttl_seconds_after_failed": 99},
            98,
        ),
    ],
)
def test_finished_job_is_deleted_after_its_time_to_live(
    phase: job.Phase, spec: dict[str, Any], left: float
) -> None:
    assert _decide(_job(**spec), view=_view(phase)).again_s == pytest.approx(left)
    later = _decide(_job(**spec), view=_view(phase, finished=NOW - 100_000))
    assert later.delete


@pytest.mark.parametrize(
    ("waits", "ring"),
    [
        ({"a": ["b"], "b": ["c"]}, ()),
        ({"a": ["b"], "b": ["a"]}, ("a", "b", "a")),
        ({"a": ["x", "b"], "x": ["y"], "b": ["c"], "c": ["a"]}, ("a", "b", "c", "a")),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ()),
        ({"a": ["a"]}, ("a", "a")),
    ],
)
def test_cycles_of_dependencies_are_found(
    waits: dict[str, list[str]], ring: tuple[str, ...]
) -> None:
    assert plan.find_cycle("a", lambda name: waits.get(name, [])) == ring
