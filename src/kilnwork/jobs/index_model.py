"""The values that enter and leave `index_jobs`: new Jobs, views of what is known, ticks.

Used by controllers, server and CLI. All frozen; a view shows what is on disk, apart from which
indexes run at this moment.
"""

from enum import StrEnum
from typing import Any

import msgspec

from kilnwork.api import attempts
from kilnwork.api import job as api_job
from kilnwork.jobs import start_queue


class NewIndexJob(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A Job to be taken up, evaluated: what the engine keeps of it does not change any more."""

    uid: str
    """`metadata.uid` of the object, a UUID."""
    namespace: str
    name: str
    spec: api_job.JobSpec
    """Valid, with the template; its options, dependencies and time of killing are not read."""
    created: float
    """Wall clock, seconds."""
    variables: dict[str, Any] = {}
    """Values of `job.*`, `jobconfig.*`, `option.*`, and substitutions, by their whole names."""
    inputs: dict[str, Any] | None = None
    """Inputs of every index by name, resolved; None: it has none, or `provide` will give them."""
    group: start_queue.Group | None = None
    """Its JobConfig; None: it has none."""
    tick: int | None = None
    """Seconds since the epoch, if the schedule of its JobConfig has made it."""
    start_after: float | None = None
    """Wall clock, seconds, before which it does not start."""
    hold: start_queue.Hold | None = None
    """Why it does not start before `set_hold`."""


class IndexState(StrEnum):
    """Where an index is. The last three do not change but by a higher run."""

    WAITING = "Waiting"
    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class IndexCounts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How many indexes are where."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    running: int = 0
    created: int = 0
    """Indexes that got a task, in all runs."""
    retries: int = 0
    """Attempts after the first of a task."""


class IndexView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One index. What has no comment is of its newest attempt, empty before there is one or when
    the journal has its task no more."""

    number: int
    """From 0."""
    label: str
    """What users call it: its number, key, values or item."""
    state: IndexState
    task: str
    """Id of its task."""
    name: str
    """Name of its task."""
    run: int
    attempt: int = 0
    worker: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    created: float | None = None
    """When its task was made; wall clock, seconds, as the others."""
    started: float | None = None
    finished: float | None = None
    result: attempts.Payload | None = None


class IndexJobView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A Job. Times are wall clock, seconds."""

    uid: str
    namespace: str
    name: str
    version: int
    """Rises with each change, also over restarts."""
    phase: api_job.Phase
    reason: str
    message: str
    run: int
    created: float
    started: float | None
    """When its turn came, in this run: it is counted and holds its locks from then on."""
    finished: float | None
    counts: IndexCounts
    failed_indexes: str
    """Numbers of those that failed, as ranges, at most 4,096 characters."""
    newest: tuple[IndexView, ...]
    """At most 20 indexes: all if there are no more, else those that failed, then those that run."""
    result: attempts.Payload | None
    """Of its finalizer, or of its only task; only when it has succeeded."""
    stopped: bool | None
    """Of one that is over, whether there is proof that nothing of it runs; None: it may run."""
    waiting_for: start_queue.Hold | None
    """Why it has not started."""
    suspended: bool
    priority: int
    max_in_flight: int | None
    group: str
    """`metadata.uid` of its JobConfig, "" for none."""


class GroupView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The Jobs of one JobConfig by uid."""

    active: tuple[str, ...]
    """Started and not over, in the order of their starts."""
    queued: tuple[str, ...]
    """Those that wait, in the order of their turns."""


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What was decided about ticks of a JobConfig's schedule; seconds since the epoch."""

    config: str
    """`metadata.uid` of the JobConfig."""
    namespace: str
    name: str
    tick: int
    """The latest tick that is decided; later than all before."""
    fingerprint: str = ""
    """Of the schedule: another one marks an edit."""
    run: tuple[int, ...] = ()
    """Ticks up to `tick` that are to run."""
    abandon: tuple[int, ...] = ()
    """Ticks that were to run, and do not: none will make a Job, or its Job was refused."""
    dropped: dict[str, int] = {}
    """How many more were dropped, by reason."""
    latest_dropped: int | None = None
    latest_reason: str = ""


class ScheduleRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the journal has about the ticks of a JobConfig's schedule."""

    config: str
    namespace: str
    name: str
    tick: int
    """The latest that was decided."""
    fingerprint: str = ""
    """Of the schedule for which it was decided."""
    pending: tuple[int, ...] = ()
    """Those that are to run and of which no Job was taken up yet."""
    taken: dict[int, str] = {}
    """The newest that have run, with the uid of the Job."""
    refused: tuple[int, ...] = ()
    """Which of them did not run in the end, and are counted in `dropped`."""
    dropped: dict[str, int] = {}
    """How many were dropped, by reason."""
    latest_dropped: int | None = None
    latest_reason: str = ""
