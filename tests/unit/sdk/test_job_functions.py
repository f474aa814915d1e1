"""`@kiln.job`: the JobConfig that a declaration makes, and what is refused."""

import datetime
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import kilnwork as kiln
from kilnwork.api import job_config, job_validation


@kiln.job
def plain(day: str = "today") -> str:
    """Say the day.

    And more.
    """
    return f"it is {day}"


@kiln.job(
    name="nightly",
    schedule=["H 2 * * *", "@weekly"],
    timezone="Europe/Zurich",
    daylight_saving={"gap": "Skip", "overlap": "Both"},
    missed_runs="All",
    concurrency="Enqueue",
    max_concurrency=2,
    max_queued=5,
    priority=7,
    locks={"warehouse": "Shared"},
    ttl=60,
    retries=2,
    retry_delay=3,
    max_losses=4,
    timeout=10,
    pending_timeout=20,
    job_timeout=30,
    kill_grace=1,
    cluster="big",
    pod={"metadata": {"labels": {"a": "b"}}},
)
def everything() -> None: ...


def total(results: list[int]) -> int:
    return sum(results)


@kiln.job(parallel=10, max_in_flight=2, completion={"maxFailed": "10%"}, finalizer=total)
def counted(index: int, base: int = 0) -> int:
    return base + index


@kiln.job(parallel=["a", "b"])
def keyed(key: str, index: int) -> str:
    return f"{key}{index}"


@kiln.job(parallel={"floor": ["1", "2"], "city": ["oslo"]})
def matrix(matrix: dict[str, str], key: str = "an option here") -> str:
    return matrix["city"]


@kiln.job
async def later(at: datetime.date) -> int:
    return at.year


EXPORT = {
    "request": {
        "method": "POST",
        "url": "http://example.org/${task.inputs.index}/${task.inputs.city}",
        "postData": {"mimeType": "text/plain", "text": "$${task.inputs.city} ${task.name}"},
    }
}
export = kiln.job(kiln.http(EXPORT, retries=2, timeout=9), name="export")
exports = kiln.job(parallel=3, name="exports", timeout=5)(kiln.http(EXPORT))


def spec(job: Any) -> dict[str, Any]:
    """The spec of its JobConfig, once the server's rules have nothing against it."""
    body = job.manifest()
    declared = msgspec.convert(body, job_config.JobConfig)
    assert job_validation.validate_job_config(declared) == []
    found: dict[str, Any] = body["spec"]
    return found


def template(job: Any) -> dict[str, Any]:
    found: dict[str, Any] = spec(job)["template"]["spec"]
    return found


def test_function_stays_a_function() -> None:
    assert plain("Monday") == "it is Monday"
    assert repr(plain) == "<JobFunction plain>"
    assert later(datetime.date(2026, 1, 2)).close() is None


def test_job_without_settings_has_a_minimal_manifest() -> None:
    body = plain.manifest()
    assert body["metadata"] == {
        "name": "plain",
        "annotations": {"kilnwork.dev/description": "Say the day."},
    }
    assert body["spec"]["concurrency"] == {"policy": "Allow"}
    assert body["spec"].keys() == {"template", "concurrency", "option"}
    assert template(plain)["taskTemplate"] == {
        "call": {
            "function": f"{__name__}:plain",
            "kwargs": {"day": "${option.day}"},
        }
    }


def test_every_setting_has_its_field() -> None:
    assert everything.name == "nightly"
    assert spec(everything) == {
        "template": {
            "spec": {
                "taskTemplate": {
                    "call": {"function": f"{__name__}:everything"},
                    "clusterName": "big",
                    "pod": {"spec": {}, "metadata": {"labels": {"a": "b"}}},
                },
                "retry": {"maxAttempts": 3, "delaySeconds": 3, "maxLosses": 4},
                "timeouts": {
                    "runningSeconds": 10,
                    "pendingSeconds": 20,
                    "jobSeconds": 30,
                    "killGraceSeconds": 1,
                },
            }
        },
        "concurrency": {"policy": "Enqueue", "maxConcurrency": 2, "maxQueued": 5},
        "schedule": {
            "cron": {"expressions": ["H 2 * * *", "@weekly"], "timezone": "Europe/Zurich"},
            "daylightSaving": {"gap": "Skip", "overlap": "Both"},
            "missedRuns": {"policy": "All"},
        },
        "priority": 7,
        "locks": [{"name": "warehouse", "mode": "Shared"}],
        "ttlSecondsAfterFinished": 60,
    }


def test_index_sets() -> None:
    found = template(counted)
    assert found["parallelism"] == {
        "withCount": 10,
        "maxInFlight": 2,
        "completionStrategy": {"maxFailed": "10%"},
    }
    assert found["finalizer"] == {"taskTemplate": {"call": {"function": f"{__name__}:total"}}}
    kwargs = {"index": "${task.index_num}", "base": "${option.base}"}
    assert found["taskTemplate"]["call"]["kwargs"] == kwargs
    assert [one["name"] for one in spec(counted)["option"]["options"]] == ["base"]

    found = template(keyed)
    assert found["parallelism"] == {"withKeys": ["a", "b"]}
    kwargs = {"key": "${task.index_key}", "index": "${task.index_num}"}
    assert found["taskTemplate"]["call"]["kwargs"] == kwargs

    found = template(matrix)
    assert found["parallelism"] == {"withMatrix": {"floor": ["1", "2"], "city": ["oslo"]}}
    assert found["taskTemplate"]["call"]["kwargs"] == {
        "matrix": {"city": "${task.index_matrix.city}", "floor": "${task.index_matrix.floor}"},
        "key": "${option.key}",
    }


def test_inputs_of_a_template_are_options() -> None:
    found = template(export)
    request = found["taskTemplate"]["http"]["request"]
    assert request["url"] == "http://example.org/${option.index}/${option.city}"
    assert request["postData"]["text"] == "$${task.inputs.city} ${task.name}"
    assert found["retry"]["maxAttempts"] == 3
    assert found["timeouts"]["runningSeconds"] == 9
    names = [one["name"] for one in spec(export)["option"]["options"]]
    assert names == ["city", "index"]


def test_inputs_of_a_parallel_template_may_be_of_the_index() -> None:
    url = template(exports)["taskTemplate"]["http"]["request"]["url"]
    assert url == "http://example.org/${task.index_num}/${option.city}"
    assert [one["name"] for one in spec(exports)["option"]["options"]] == ["city"]


def generator() -> Any:
    yield 1


def needed(day: str) -> None: ...


def starred(*days: str) -> None: ...


def two(results: list[int], more: int) -> None: ...


@kiln.task
def tasked() -> None: ...


@pytest.mark.parametrize(
    ("given", "function", "words"),
    [
        ({"retrys": 1}, needed, "did you mean retries"),
        ({"retries": -1}, needed, "retries=-1"),
        ({"retries": True}, needed, "retries=True"),
        ({"timeout": "soon"}, needed, "timeouts.runningSeconds"),
        ({"concurrency": "Sometimes"}, needed, "concurrency.policy"),
        ({"timezone": "UTC"}, needed, "without schedule="),
        ({"max_in_flight": 3}, needed, "without parallel="),
        ({"schedule": "@daily"}, needed, "day would need one"),
        ({"schedule": "@daily", "timezone": "Mars/Base"}, everything._made_of, "Mars/Base"),
        ({"schedule": "@daily", "missed_runs": "Some"}, everything._made_of, "missedRuns.policy"),
        ({"parallel": "abc"}, needed, "parallel='abc'"),
        ({"parallel": 0}, needed, "withCount"),
        ({"parallel": True}, needed, "parallel=True"),
        ({"parallel": 2, "finalizer": two}, needed, "must have one parameter, results"),
        ({"parallel": 2, "finalizer": lambda results: 1}, needed, "top of a module"),
        ({"locks": ["A lock"]}, needed, "spec.locks"),
        ({"name": "My Job"}, needed, "give name="),
        ({"name": "a" * 50}, needed, "metadata.name"),
        ({}, generator, "generator"),
        ({}, starred, r"\*days"),
        ({}, tasked, "already"),
        ({}, plain, "already"),
        ({}, lambda: 1, "top of a module"),
        ({}, 3, "not 3"),
        ({}, kiln.http(EXPORT), "give name="),
    ],
)
def test_invalid_job_is_refused(
    given: dict[str, Any], function: Callable[..., Any], words: str
) -> None:
    with pytest.raises(kiln.BadOption, match=words):
        kiln.job(**given)(function)


def test_name_of_a_deployed_job_takes_no_settings() -> None:
    with pytest.raises(kiln.BadOption, match="deployed under that name"):
        kiln.job("report", retries=3)  # type: ignore[call-overload]


@pytest.fixture
def untyped() -> dict[str, Any]:
    """Jobs that type checkers know nothing of."""
    return {"plain": plain, "later": later, "counted": counted, "x": kiln.job("x")}


def test_values_are_checked_before_anything_is_sent(untyped: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="'dya'; its options are day"):
        untyped["plain"].submit(dya="x")
    with pytest.raises(TypeError, match="missing a required argument: 'at'"):
        untyped["later"].submit()
    with pytest.raises(TypeError, match="option 'at': must be a date"):
        untyped["later"].submit(at=3)
    with pytest.raises(TypeError, match="index"):
        untyped["counted"].submit(index=3)


def test_submit_options_are_checked(untyped: dict[str, Any]) -> None:
    with pytest.raises(kiln.BadOption, match="no option is called 'retries'"):
        untyped["plain"].options(retries=3)
    with pytest.raises(kiln.BadOption, match="start_after"):
        untyped["x"].options(start_after=datetime.datetime(2026, 1, 1))
    with pytest.raises(kiln.BadOption, match="concurrency"):
        untyped["x"].options(concurrency="Perhaps")
    with pytest.raises(kiln.BadOption, match="depends_on"):
        kiln.job("x").options(depends_on=[{"kind": "Pod", "name": "a"}])


def test_session_without_jobs_raises_with_a_remedy() -> None:
    with pytest.raises(kiln.NoSession):
        plain.submit()
    with kiln.testing.inline(), pytest.raises(kiln.ConfigurationError, match=r"kiln\.connect"):
        kiln.job("plain").submit()


def notify(job: str, phase: str, loud: bool = False) -> None: ...  # noqa: FBT001, FBT002


def note() -> None: ...


PAGE = {"request": {"method": "POST", "url": "http://example.org/${task.inputs.phase}"}}


@kiln.job(
    with_result_of=counted,
    max_in_flight=3,
    depends_on=[plain, "deployed", {"kind": "Task", "name": "t", "outcome": "Finished"}],
    hooks={"Failed": notify, ("Running", "Killed"): note, "Succeeded": kiln.http(PAGE)},
)
def chained(item: dict[str, int], index: int, unit: str = "m") -> str:
    return f"{item}{index}{unit}"


@kiln.job(with_result_of={"task": "files", "path": "$.x"})
def listed(item: str) -> None: ...


@kiln.job(depends_on=kiln.job("deployed"))
def alone() -> None: ...


def test_list_of_another_job() -> None:
    made = template(chained)
    assert made["parallelism"] == {"withResultOf": {"jobConfig": "counted"}, "maxInFlight": 3}
    assert made["taskTemplate"]["call"]["kwargs"] == {
        "item": "${task.index_item}",
        "index": "${task.index_num}",
        "unit": "${option.unit}",
    }
    assert [one["name"] for one in spec(chained)["option"]["options"]] == ["unit"]
    assert template(listed)["parallelism"] == {"withResultOf": {"task": "files", "path": "$.x"}}


def item_hook(item: str) -> None: ...


def test_depends_on_accepts_jobs_names_and_items() -> None:
    assert spec(chained)["dependsOn"] == [
        {"kind": "JobConfig", "name": "plain"},
        {"kind": "JobConfig", "name": "deployed"},
        {"kind": "Task", "name": "t", "outcome": "Finished"},
    ]
    assert spec(alone)["dependsOn"] == [{"kind": "JobConfig", "name": "deployed"}]


def test_hooks() -> None:
    failed, ran, succeeded = template(chained)["hooks"]
    assert failed == {
        "phases": ["Failed"],
        "taskTemplate": {
            "call": {
                "function": f"{__name__}:notify",
                "kwargs": {"job": "${job.name}", "phase": "${job.phase}"},
            }
        },
    }
    assert ran["phases"] == ["Running", "Killed"]
    assert ran["taskTemplate"] == {"call": {"function": f"{__name__}:note"}}
    url = succeeded["taskTemplate"]["http"]["request"]["url"]
    assert url == "http://example.org/${job.phase}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hooks": {"Fail": note}}, "phases are Running, Succeeded, Failed, Killed"),
        ({"hooks": {(): note}}, "phases are Running"),
        ({"hooks": [note]}, "must be a mapping from phases"),
        ({"hooks": {"Failed": lambda: None}}, "must be a function at the top of a module"),
        ({"hooks": {"Failed": item_hook}}, "no parameters but job and phase"),
        ({"hooks": {"Failed": kiln.http(EXPORT)}}, "it has city, index"),
        ({"with_result_of": "counted"}, "must be a job, or a mapping"),
        ({"with_result_of": {"job": "a", "task": "b"}}, "give one of task, job and jobConfig"),
        ({"with_result_of": counted, "parallel": 3}, "give one of parallel= and with_result_of="),
        ({"depends_on": [3]}, "must be a job, the name of one"),
        ({"depends_on": [{"kind": "Pod", "name": "x"}]}, "spec.dependsOn[0].kind"),
    ],
)
def test_hooks_and_dependencies_that_are_none(given: dict[str, Any], said: str) -> None:
    with pytest.raises(kiln.BadOption) as refused:
        kiln.job(name="bad", **given)(note)
    assert said in str(refused.value)
