"""Decides whether another attempt of a task follows, and when. Does no I/O and reads no clock.

Used by `task_ends` and `journal.restore`. There are two budgets: failures of user code count
against `retry.maxAttempts`, losses that are not its fault against `retry.maxLosses`. An attempt
that was taken back unstarted counts against neither. Nor do up to `MAX_EXCUSED` losses that are
excused, such as losses before the start, or while the dispatcher was away.
"""

from kilnwork.api import reasons
from kilnwork.api import task as api_task
from kilnwork.kit import backoff, ids

MAX_EXCUSED = 20
"""Maximum number of losses of one task that are excused. With more, something is wrong with the
task or its workers, and each further one counts, so that the task cannot go on for ever.
"""


def retries_failure(
    retry: api_task.Retry,
    *,
    failures: int,
    reason: str,
    exit_code: int | None,
    requested: bool,
) -> bool:
    """Return whether another attempt follows after `failures` failures.

    `requested`: the attempt exited with 75, which no `on` list excludes (EX_TEMPFAIL, sysexits.h).
    """
    # First: a task that asks for a retry gets no more than its budget, either.
    if failures >= retry.max_attempts:
        return False
    if requested or not retry.on:
        return True
    if reason in (reasons.Reason.TIMED_OUT, reasons.Reason.REQUEST_TIMED_OUT):
        return "timeout" in retry.on
    return exit_code is not None and f"exit:{exit_code}" in retry.on


def retries_loss(retry: api_task.Retry, *, losses: int) -> bool:
    """Return whether another attempt follows after `losses` losses."""
    return losses <= retry.max_losses


def failure_delay_s(retry: api_task.Retry, failures: int, entropy: ids.Entropy) -> float:
    """Return the delay before the attempt that follows `failures` failures, with jitter.

    It is `delaySeconds * factor ** (failures - 1)`, capped.
    """
    return _backoff(retry).delay_s(failures, entropy=entropy)


def loss_delay_s(retry: api_task.Retry, losses: int, entropy: ids.Entropy) -> float:
    """Return the delay before the attempt that follows `losses` losses.

    It is 0 after the first loss, since one loss is no reason to wait; then as after failures.
    """
    return _backoff(retry).delay_s(losses - 1, entropy=entropy)


def longest_delay_s(retry: api_task.Retry) -> float:
    """Return an upper bound of all delays of this policy."""
    return retry.max_delay_seconds * (1 + retry.jitter)


def _backoff(retry: api_task.Retry) -> backoff.Backoff:
    return backoff.Backoff(
        base_s=retry.delay_seconds,
        max_s=retry.max_delay_seconds,
        factor=retry.factor,
        jitter=retry.jitter,
    )
