"""What a job wants done next: the instructions of `plan`, carried out by the engine.

All may be repeated: a step that a crash cut off is asked for again, and finds what it has done.
"""

from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.api import job as api_job


class Prepare(NamedTuple):
    """Make ready what the tasks of this run need."""


class Recover(NamedTuple):
    """Find out what an earlier service has left: results, and tasks that are not over."""


class Submit(NamedTuple):
    """Give these items tasks; 0 is the finalizer."""

    items: tuple[int, ...]


class Suspend(NamedTuple):
    """Let no attempt of these items' tasks start, or let them start again."""

    items: tuple[int, ...]
    suspended: bool


class Kill(NamedTuple):
    """End the tasks of these items."""

    items: tuple[int, ...]
    message: str


class Settle(NamedTuple):
    """Find how a run of an item ended; 0: the job's run."""

    item: int
    run: int
    outcome: filejobs.PartOutcome | None
    """None: its task succeeded; look what that proves. Otherwise the run ends so, unless it has
    ended otherwise already; `SUCCEEDED` (item 0): without a finalizer, nothing is left to do."""
    message: str


class Purge(NamedTuple):
    """Delete all that the job has stored, then its rows."""


class Gather(NamedTuple):
    """Collect the results of all items for the finalizer."""


class Follow(NamedTuple):
    """Submit the tasks that follow a change of the job's phase."""

    event: api_job.HookEvent


Step = Prepare | Recover | Submit | Suspend | Kill | Settle | Purge | Gather | Follow
