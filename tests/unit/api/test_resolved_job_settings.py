"""Settings of Jobs: short forms, defaults, and when a Job is decided."""

from fractions import Fraction
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from kilnwork.api import job, resolved_job_settings, task

TASK = {"taskTemplate": {"command": ["true"]}}


def template(**more: Any) -> job.JobTemplate:
    return msgspec.convert({**TASK, **more}, job.JobTemplate)


def settings(*, total: int = 1, **more: Any) -> resolved_job_settings.JobSettings:
    return resolved_job_settings.JobSettings.of(template(**more), total)


def test_empty_template_has_all_defaults() -> None:
    assert settings() == resolved_job_settings.JobSettings(
        index_task=task.TaskTemplate(command=("true",)),
        retry=task.Retry(max_attempts=1, delay_seconds=0, factor=1, max_delay_seconds=0, jitter=0),
        timeouts=task.Timeouts(pending_seconds=900, kill_grace_seconds=30),
        job_seconds=None,
        completion=resolved_job_settings.Completion(max_failed=0),
        max_in_flight=None,
        hooks=(),
        finalizer=None,
    )


def test_both_forms_of_the_task_are_the_same() -> None:
    other = msgspec.convert({"task": {"template": TASK["taskTemplate"]}}, job.JobTemplate)
    assert resolved_job_settings.JobSettings.of(other, 1) == settings()


def test_a_template_without_a_task_has_no_settings() -> None:
    with pytest.raises(ValueError, match="give taskTemplate"):
        resolved_job_settings.JobSettings.of(job.JobTemplate(), 1)


def test_short_form_of_retry_has_a_constant_delay() -> None:
    retry = settings(maxAttempts=3, retryDelaySeconds=90).retry
    assert (retry.max_attempts, retry.delay_seconds, retry.max_delay_seconds) == (3, 90, 90)
    assert (retry.factor, retry.jitter) == (1, 0)


def test_complete_retry_is_used_unchanged() -> None:
    given = {"maxAttempts": 4, "factor": 3, "on": ["exit:9"]}
    assert settings(retry=given).retry == msgspec.convert(given, task.Retry)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 900),
        ({"taskPendingTimeoutSeconds": 60}, 60),
        ({"taskPendingTimeoutSeconds": 0}, None),
        ({"timeouts": {"pendingSeconds": 5}}, 5),
        ({"timeouts": {"pendingSeconds": 0}}, None),
        ({"timeouts": {"runningSeconds": 5}}, 900),
    ],
)
def test_pending_timeout_of_an_index(given: Any, seconds: float | None) -> None:
    assert settings(**given).timeouts.pending_seconds == seconds


def test_deadlines_are_mapped_to_job_and_index() -> None:
    limits = {"runningSeconds": 7, "jobSeconds": 70, "killGraceSeconds": 0}
    found = settings(timeouts=limits)
    assert found.timeouts.running_seconds == 7
    assert found.timeouts.kill_grace_seconds == 0
    assert found.timeouts.total_seconds is None
    assert found.job_seconds == 70


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("AllSuccessful", {"max_failed": 0}),
        ("AnySuccessful", {"min_successful": 1}),
        ({"minSuccessful": 3}, {"min_successful": 3}),
        ({"maxFailed": 2}, {"max_failed": 2}),
        ({"maxFailed": "1%"}, {"max_failed": 1}),
        ({"maxFailed": "0.5%"}, {"max_failed": 0}),
        ({"maxFailed": "100%"}, {"max_failed": 150}),
    ],
)
def test_completion_strategy_is_resolved_to_a_number(strategy: Any, expected: Any) -> None:
    parallelism = {"withCount": 150, "completionStrategy": strategy}
    found = settings(total=150, parallelism=parallelism).completion
    assert found == resolved_job_settings.Completion(**expected)


@hypothesis.given(percent=st.integers(0, 100), total=st.integers(0, job.MAX_INDEXES))
def test_a_percentage_is_rounded_down(percent: int, total: int) -> None:
    found = resolved_job_settings.percent_of(f"{percent}%", total)
    assert found <= Fraction(percent * total, 100) < found + 1


@pytest.mark.parametrize("text", ["", "1", "%", "-1%", "101%", "100.1%", "1 %", "1.%", "٣%"])
def test_invalid_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a percentage"):
        resolved_job_settings.percent_of(text, 100)


@pytest.mark.parametrize(
    ("spec", "succeeded", "failed"),
    [
        ({}, 3600, 3600),
        ({"ttlSecondsAfterFinished": 0}, 0, 0),
        ({"ttlSecondsAfterFailed": 0}, 3600, 0),
        ({"ttlSecondsAfterFinished": 5, "ttlSecondsAfterFailed": 50}, 5, 50),
    ],
)
def test_time_to_live_depends_on_the_outcome(spec: Any, succeeded: int, failed: int) -> None:
    read = msgspec.convert(spec, job.JobSpec)
    assert resolved_job_settings.seconds_to_live(read, succeeded=True) == succeeded
    assert resolved_job_settings.seconds_to_live(read, succeeded=False) == failed
