"""Steps of a job: instructions returned by `plan` and executed by the engine.

All may be repeated: a step that was interrupted by a crash is returned again, and finds what it has
done.
"""

from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.api import job as api_job


class Prepare(NamedTuple):
    """Prepare what the tasks of this run need."""


class Recover(NamedTuple):
    """Find what an earlier service has left: results, and unfinished tasks."""


class Submit(NamedTuple):
    """Submit tasks for these items; 0 is the finalizer."""

    items: tuple[int, ...]


class Suspend(NamedTuple):
    """Suspend the tasks of these items, so that no attempt of them starts; or resume them."""

    items: tuple[int, ...]
    suspended: bool


class Kill(NamedTuple):
    """Kill the tasks of these items."""

    items: tuple[int, ...]
    message: str


class Settle(NamedTuple):
    """Find how a run of an item ended; item 0 stands for the job's run."""

    item: int
    run: int
    outcome: filejobs.PartOutcome | None
    """None: the task succeeded, and its record is to be read. Otherwise the run ends with this
    outcome, unless a record says otherwise already. `SUCCEEDED` with item 0: there is no finalizer
    and nothing left to do."""
    message: str


class Purge(NamedTuple):
    """Delete everything that the job has stored, then its rows."""


class Gather(NamedTuple):
    """Gather the results of all items for the finalizer."""


class Follow(NamedTuple):
    """Submit the hook tasks for a change of the job's phase."""

    event: api_job.HookEvent


Step = Prepare | Recover | Submit | Suspend | Kill | Settle | Purge | Gather | Follow
