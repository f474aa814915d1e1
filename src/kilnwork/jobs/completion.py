"""Completion rules: decide whether a job succeeds or fails before all of its items have ended.
No I/O. Used by `step_planning`, `index_item_source` and `testing.inline_flows`.
"""

from enum import IntEnum

from kilnwork.api import resolved_job_settings
from kilnwork.jobs import live_job_state


class Verdict(IntEnum):
    """Conclusion from the item counts: whether the job is still open, has succeeded, or cannot
    succeed.
    """

    OPEN = 0
    ENOUGH = 1
    """The job succeeds, whatever happens to the remaining items."""
    LOST = 2
    """The job cannot succeed any more."""


def decide(
    wanted: resolved_job_settings.Completion, counts: live_job_state.ItemCounts, size: int
) -> Verdict:
    """Return the verdict on a job of `size` items, given the `counts` of its ended items. A job
    without items succeeds.
    """
    least, most = wanted.min_successful, wanted.max_failed
    if least is not None and size:
        if counts.succeeded >= least:
            return Verdict.ENOUGH
        if size - counts.failed - counts.cancelled < least:
            return Verdict.LOST
    if most is not None and counts.failed > most:
        return Verdict.LOST
    return Verdict.ENOUGH if counts.closed >= size else Verdict.OPEN


def failure_message(
    wanted: resolved_job_settings.Completion,
    counts: live_job_state.ItemCounts,
    size: int,
    *,
    nouns: str = "indexes",
) -> str:
    """Return the reason why a job cannot succeed, without the text of the first failure. `nouns`:
    what the job's items are called, in the plural.
    """
    if wanted.min_successful is not None:
        return (
            f"{counts.failed + counts.cancelled} of {size} {nouns} failed, and "
            f"{wanted.min_successful} must succeed"
        )
    return f"{counts.failed} of {size} {nouns} failed, and {wanted.max_failed} may"
