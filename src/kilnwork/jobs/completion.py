"""When a job is decided before all of its items are over. Pure; used by `plan`."""

from enum import IntEnum

from kilnwork.api import job_settings
from kilnwork.jobs import records


class Verdict(IntEnum):
    """Says what the ends of items so far come to."""

    OPEN = 0
    ENOUGH = 1
    """It succeeds, whatever becomes of the rest."""
    LOST = 2
    """It cannot succeed any more."""


def verdict(wanted: job_settings.Completion, counts: records.Counts, size: int) -> Verdict:
    """Return what `counts` of `size` items come to; a job without items succeeds."""
    least, most = wanted.min_successful, wanted.max_failed
    if least is not None and size:
        if counts.succeeded >= least:
            return Verdict.ENOUGH
        if size - counts.failed - counts.cancelled < least:
            return Verdict.LOST
    if most is not None and counts.failed > most:
        return Verdict.LOST
    return Verdict.ENOUGH if counts.closed >= size else Verdict.OPEN


def message(
    wanted: job_settings.Completion, counts: records.Counts, size: int, *, nouns: str = "indexes"
) -> str:
    """Return why a job is lost, without the first failure. `nouns`: what its items are called."""
    if wanted.min_successful is not None:
        return (
            f"{counts.failed + counts.cancelled} of {size} {nouns} failed, and "
            f"{wanted.min_successful} must succeed"
        )
    return f"{counts.failed} of {size} {nouns} failed, and {wanted.max_failed} may"
