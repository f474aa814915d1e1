"""Steps of a job: instructions returned by `step_planning`, and executed by the engine and its
`effect_runner`.

All steps may be repeated: a step that was interrupted by a crash is returned again, and continues
from the work that it has done.
"""

from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.api import job as api_job


class Prepare(NamedTuple):
    """Step: prepare everything that the tasks of this run need."""


class Recover(NamedTuple):
    """Step: find the results and unfinished tasks of a job that an earlier process has started."""


class Submit(NamedTuple):
    """Step: submit tasks for these items; 0 is the finalizer."""

    items: tuple[int, ...]


class Suspend(NamedTuple):
    """Step: suspend the tasks of these items, so that no attempt starts, or resume them."""

    items: tuple[int, ...]
    suspended: bool


class Kill(NamedTuple):
    """Step: kill the tasks of these items."""

    items: tuple[int, ...]
    message: str


class Settle(NamedTuple):
    """Step: find or create the result of a run of an item; item 0 stands for the job's run."""

    item: int
    run: int
    outcome: filejobs.PartOutcome | None
    """None: the task succeeded, and its record is to be read. Otherwise the run ends with this
    outcome, unless a record says otherwise already. `SUCCEEDED` with item 0: there is no finalizer,
    and the source publishes the result itself."""
    message: str


class Purge(NamedTuple):
    """Step: delete everything that the job has stored, then its rows."""


class Gather(NamedTuple):
    """Step: gather the results of all items for the finalizer."""


class Follow(NamedTuple):
    """Step: submit the hook tasks for a change of the job's phase."""

    event: api_job.HookEvent


Step = Prepare | Recover | Submit | Suspend | Kill | Settle | Purge | Gather | Follow
