"""Values of the API of `index_job_service`: new Jobs, views of Jobs and indexes, decisions about
ticks.

Used by controllers, server and CLI. All are frozen. A view shows what is on disk, except for which
indexes are running, which is current.
"""

from enum import StrEnum
from typing import Any

import msgspec

from kilnwork.api import attempts
from kilnwork.api import job as api_job
from kilnwork.jobs import job_start_queue


class NewIndexJob(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Definition of a new Job with all references resolved. Once the engine has stored it, only
    `IndexJobs.provide` adds to it.
    """

    uid: str
    """`metadata.uid` of the object, a UUID."""
    namespace: str
    name: str
    spec: api_job.JobSpec
    """Valid spec of the Job, with the template. Its options, dependencies and `killTimestamp` are
    not read."""
    created: float
    """When the object was created, in wall clock seconds."""
    variables: dict[str, Any] = {}
    """Values of `job.*`, `jobconfig.*`, `option.*` and substitutions, by their full names."""
    inputs: dict[str, Any] | None = None
    """Resolved inputs of every index by name; None if there are none, or if `provide` will set
    them."""
    group: job_start_queue.ConcurrencyGroup | None = None
    """Concurrency group of the Job's JobConfig; None if it has no JobConfig."""
    tick: int | None = None
    """Tick for which a schedule created the Job, in seconds since the epoch; None if no schedule
    created it."""
    start_after: float | None = None
    """Earliest start, in wall clock seconds."""
    hold: job_start_queue.Hold | None = None
    """Why the Job does not start until `set_hold` is called."""


class IndexState(StrEnum):
    """State of an index. The last three states are final within a run: only a new run of the index
    changes them.
    """

    WAITING = "Waiting"
    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class IndexCounts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Counts of a Job's indexes by state, and of their tasks and retries."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    running: int = 0
    created: int = 0
    """Number of tasks created for indexes, in all runs."""
    retries: int = 0
    """Number of attempts, not counting the first of each task."""


class IndexView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """View of one index of a Job.

    Fields without a comment describe the index's newest attempt; they are empty before the first
    attempt, and after the journal has deleted the index's task.
    """

    number: int
    """Number of the index, from 0."""
    label: str
    """Label for users: number, key, values or item of the index."""
    state: IndexState
    task: str
    """Id of the index's task."""
    name: str
    """Name of the index's task."""
    run: int
    attempt: int = 0
    worker: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    created: float | None = None
    """When the index's task was created, in wall clock seconds like the other times."""
    started: float | None = None
    finished: float | None = None
    result: attempts.Payload | None = None


class IndexJobView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """View of a Job. Times are wall clock seconds."""

    uid: str
    namespace: str
    name: str
    version: int
    """Version of the view, which increases with each change, also across restarts."""
    phase: api_job.Phase
    reason: str
    message: str
    run: int
    created: float
    started: float | None
    """When the turn of the Job came in this run: from then on it counts as running and holds its
    locks."""
    finished: float | None
    counts: IndexCounts
    failed_indexes: str
    """Ranges of the failed indexes, at most 4,096 characters."""
    newest: tuple[IndexView, ...]
    """At most 20 indexes: all of them if the Job has no more than 20, else the failed indexes
    followed by running indexes."""
    result: attempts.Payload | None
    """Result of the Job's finalizer, or of its only task; set once the Job has succeeded."""
    stopped: bool | None
    """Whether it is certain that no process of the Job is running; None until the Job has ended."""
    waiting_for: job_start_queue.Hold | None
    """Why the Job has not started; None once it has started."""
    suspended: bool
    priority: int
    max_in_flight: int | None
    group: str
    """`metadata.uid` of the Job's JobConfig; "" for none."""


class GroupView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Uids of the running and of the waiting Jobs of one JobConfig."""

    active: tuple[str, ...]
    """Jobs that have started and not ended, in the order of their starts."""
    queued: tuple[str, ...]
    """Jobs that wait, in the order of their turns."""


class TickDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A decision about ticks of a JobConfig's schedule. Ticks are seconds since the epoch."""

    config: str
    """`metadata.uid` of the JobConfig."""
    namespace: str
    name: str
    tick: int
    """The latest tick decided: later than all ticks decided before, or the same as the latest of
    them if the fingerprint differs or `abandon` is not empty."""
    fingerprint: str = ""
    """Fingerprint of the schedule; a different fingerprint means that the schedule was edited."""
    run: tuple[int, ...] = ()
    """Ticks up to `tick` that will make a Job."""
    abandon: tuple[int, ...] = ()
    """Ticks that were to make a Job and will not: no Job was made, or the Job was refused."""
    dropped: dict[str, int] = {}
    """Number of further dropped ticks, by reason."""
    latest_dropped: int | None = None
    latest_reason: str = ""


class ScheduleRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A row of the journal with the decisions about the ticks of a JobConfig's schedule."""

    config: str
    namespace: str
    name: str
    tick: int
    """The latest tick decided."""
    fingerprint: str = ""
    """Fingerprint of the schedule at that decision."""
    pending: tuple[int, ...] = ()
    """Ticks that will make a Job and have not done so yet."""
    taken: dict[int, str] = {}
    """The newest ticks that have made a Job, with the uid of the Job."""
    refused: tuple[int, ...] = ()
    """Ticks of `taken` whose Job was refused later; they are counted in `dropped`."""
    dropped: dict[str, int] = {}
    """Number of dropped ticks, by reason."""
    latest_dropped: int | None = None
    latest_reason: str = ""
