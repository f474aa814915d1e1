"""The settings of a Job: its template with short forms and defaults resolved.

Used by the engine and the controllers, on templates that `job_validation` accepts. No I/O. Not the
index set (`job_indexes`), nor what each index runs (`job_task_rendering`).
"""

import fractions
import re
from typing import Any

import msgspec

from kilnwork.api import job
from kilnwork.api import task as api_task

ALL_SUCCESSFUL = "AllSuccessful"
ANY_SUCCESSFUL = "AnySuccessful"
STRATEGIES = (ALL_SUCCESSFUL, ANY_SUCCESSFUL)
"""Completion strategies that are a single word."""

MIN_SUCCESSFUL = "minSuccessful"
MAX_FAILED = "maxFailed"

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """When a Job is decided before all of its indexes have finished. One of the two fields is
    set."""

    min_successful: int | None = None
    """Number of successful indexes with which the Job succeeds; it fails as soon as it cannot
    reach this number. None: it succeeds when all indexes have finished."""
    max_failed: int | None = None
    """Number of indexes that may fail for good; with one more the Job fails. None: no limit."""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved template of a Job."""

    index_task: api_task.TaskTemplate
    """Task of each index."""
    retry: api_task.Retry
    """Rules for retrying attempts of an index."""
    timeouts: api_task.Timeouts
    """Deadlines of each index; `total_seconds` is None."""
    job_seconds: float | None
    """Maximum duration of the whole Job from its start, in seconds; None: no limit."""
    completion: Completion
    """When the Job is decided."""
    max_in_flight: int | None
    """Maximum number of indexes with a task at the same time; None: as many as keep the workers
    busy."""
    hooks: tuple[job.Hook, ...]
    """Tasks that run after changes of the Job's phase."""
    finalizer: api_task.TaskTemplate | None
    """Task that gets the results of all indexes; None: there is no such task."""

    @classmethod
    def of(cls, template: job.JobTemplate, total: int) -> "JobSettings":
        """Return the settings of a valid template whose index set has `total` members.

        Raises ValueError for a template without a task.
        """
        if template.effective_task is None:
            raise ValueError("the template has no task: give taskTemplate")
        parallelism = template.parallelism
        limits = template.timeouts
        return cls(
            index_task=template.effective_task,
            retry=retry_of(template),
            timeouts=timeouts_of(template),
            job_seconds=None if limits is None else limits.job_seconds,
            completion=completion_of(parallelism, total),
            max_in_flight=None if parallelism is None else parallelism.max_in_flight,
            hooks=template.hooks,
            finalizer=None if template.finalizer is None else template.finalizer.task_template,
        )


def retry_of(template: job.JobTemplate) -> api_task.Retry:
    """Return the rules for retrying attempts of an index."""
    if template.retry is not None:
        return template.retry
    delay_s = template.retry_delay_seconds or 0.0
    return api_task.Retry(
        max_attempts=template.max_attempts or 1,
        delay_seconds=delay_s,
        max_delay_seconds=delay_s,
        factor=1.0,
        jitter=0.0,
    )


def timeouts_of(template: job.JobTemplate) -> api_task.Timeouts:
    """Return the deadlines of each index."""
    limits = template.timeouts or job.JobTimeouts()
    given = (limits.pending_seconds, template.task_pending_timeout_seconds, job.DEFAULT_PENDING_S)
    pending_s = next(seconds for seconds in given if seconds is not None)
    return api_task.Timeouts(
        pending_seconds=pending_s or None,
        running_seconds=limits.running_seconds,
        kill_grace_seconds=limits.kill_grace_seconds,
    )


def completion_of(parallelism: job.Parallelism | None, total: int) -> Completion:
    """Return the completion rule of a Job with `total` indexes."""
    strategy: Any = ALL_SUCCESSFUL if parallelism is None else parallelism.completion_strategy
    if strategy == ALL_SUCCESSFUL:
        return Completion(max_failed=0)
    if strategy == ANY_SUCCESSFUL:
        return Completion(min_successful=1)
    if MIN_SUCCESSFUL in strategy:
        return Completion(min_successful=strategy[MIN_SUCCESSFUL])
    most = strategy[MAX_FAILED]
    return Completion(max_failed=most if isinstance(most, int) else percent_of(most, total))


def percent_of(text: str, total: int) -> int:
    """Return a percentage of `total`, such as `1%` or `0.5%`, rounded down.

    Raises ValueError if `text` is not a percentage from 0% to 100%.
    """
    found = _PERCENT.fullmatch(text)
    share = fractions.Fraction(found[1]) if found else None
    if share is None or share > 100:
        raise ValueError("must be a percentage such as 1%, from 0% to 100%")
    return int(share * total / 100)


def seconds_to_live(spec: job.JobSpec, *, succeeded: bool) -> int:
    """Return for how many seconds a Job is kept after its end."""
    usual = spec.ttl_seconds_after_finished
    chosen = spec.ttl_seconds_after_failed if not succeeded else None
    if chosen is not None:
        return chosen
    return job.DEFAULT_TTL_S if usual is None else usual
