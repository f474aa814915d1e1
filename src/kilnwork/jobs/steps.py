"""What a job wants done next: the instructions of `plan`, carried out by the service.

All may be repeated: a step that a crash cut off is asked for again, and finds what it has done.
"""

from typing import NamedTuple

from kilnwork.api import filejobs


class Store(NamedTuple):
    """Write input (if it is in the journal) and `job.json` to the job's folder."""


class Recover(NamedTuple):
    """Find out what an earlier service has left: commit records, and tasks that are not over."""


class Submit(NamedTuple):
    """Give these parts seats; 0 is the reducer."""

    parts: tuple[int, ...]


class Hold(NamedTuple):
    """Let no attempt of these seats start, or let them go."""

    parts: tuple[int, ...]
    held: bool


class Kill(NamedTuple):
    """End the tasks of these seats."""

    parts: tuple[int, ...]
    message: str


class Settle(NamedTuple):
    """Read how a run of a part ended. `outcome`: if there is no record, make one that says so;
    None: only look."""

    part: int
    run: int
    outcome: filejobs.Outcome | None
    message: str


class Publish(NamedTuple):
    """Make the result of the only part that of the job."""


class Conclude(NamedTuple):
    """Say that the job ends so, unless it has ended otherwise already."""

    outcome: filejobs.Outcome
    message: str


class Purge(NamedTuple):
    """Delete all that the job has stored, then its rows."""


Step = Store | Recover | Submit | Hold | Kill | Settle | Publish | Conclude | Purge
