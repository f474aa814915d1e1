"""Records of jobs in memory: their items, the tasks of the items, and counts.

Mutable and small. Changed by `transitions` and `step_planning`; the engine and `effect_runner`
set a few more fields, such as `view`, `slots` and `trouble`. `rows` converts records to rows and
views.
"""

from enum import IntEnum
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import file_job_types, item_source, item_states
from kilnwork.kit import ids

_P = filejobs.FileJobPhase
_O = filejobs.PartOutcome


class Stage(IntEnum):
    """Stage of a job, which selects the rules that advance it. The numbers are stored in the
    journal."""

    RUNNING = 1
    """Items are unfinished."""
    FINALIZING = 2
    """Enough items have succeeded."""
    STOPPING = 3
    """The job ends without a result: all running tasks are being stopped."""
    FINISHED = 4


RUNNING, FINALIZING, STOPPING, FINISHED = Stage
"""Aliases for code that runs for each job: access through the class takes ten times as long."""

STATES = {
    _O.SUCCEEDED: item_states.ItemState.SUCCEEDED,
    _O.FAILED: item_states.ItemState.FAILED,
    _O.CANCELLED: item_states.ItemState.CANCELLED,
}
EVENTS = {
    _O.SUCCEEDED: api_job.HookEvent.SUCCEEDED,
    _O.FAILED: api_job.HookEvent.FAILED,
    _O.CANCELLED: api_job.HookEvent.KILLED,
}
"""Hook event by outcome of a job."""

_PAUSED, _PENDING = _P.PAUSED, _P.PENDING
_PHASES = {_O.SUCCEEDED: _P.SUCCEEDED, _O.FAILED: _P.FAILED, _O.CANCELLED: _P.CANCELLED}


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Outcome of a task. It is that of the task's item only for sources with `ends_with_task`."""

    state: api_task.State
    reason: str
    message: str
    stopped: bool | None = None
    """Whether it is certain that no process of the task is running; None if nothing is known."""


class ItemTask(msgspec.Struct, eq=False, gc=False):
    """A task that works on an item. Fields without a comment describe the task's newest attempt."""

    active: bool = False
    """Whether a worker has the task."""
    attempt: int = 0
    ended: Ended | None = None
    """How the task ended; None until then."""
    failures: int = 0
    """Number of failed attempts of the task."""
    id: ids.TaskId | None = None
    """Id of the task, set once the dispatcher has reported the task's state."""
    killed: bool = False
    """Whether the engine has requested the end of the task."""
    losses: int = 0
    """Number of lost attempts of the task."""
    message: str = ""
    parent: bool = False
    """Whether the task has submitted children."""
    started: float | None = None
    state: api_task.State = api_task.State.PENDING
    suspended: bool = False
    """Whether the start of attempts is suspended."""
    worker: str = ""


class ItemCounts:
    """Number of ended items by outcome."""

    __slots__ = ("cancelled", "failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.cancelled = 0

    @property
    def closed(self) -> int:
        """Number of ended items."""
        return self.succeeded + self.failed + self.cancelled


class Job:
    """A job in memory, because it is unfinished, or is being changed or deleted."""

    __slots__ = (
        "active", "admitted", "base_run", "busy", "concluded", "counts", "created", "deleting",
        "dirty", "dropped", "ended", "expires", "failures", "finished", "first_failure", "followed",
        "fresh", "id", "items", "loss_count", "message", "namespace", "prepared", "reason",
        "recovered", "refused", "reopened", "row", "run", "slots", "source", "spec", "stage",
        "started", "successes", "suspended", "tasks", "trouble", "ttl_s", "user", "verdict",
        "version", "view", "waits",
    )  # fmt: skip

    row: int
    """Row number in the journal."""
    waits: bool
    """Whether the job waits for its turn: see `start_admission`."""
    admitted: float | None
    """When the job's turn came in this run; None for sources without turns."""
    refused: bool
    """Whether the job was refused instead of admitted."""
    followed: set[api_job.HookEvent]
    """Events of this run whose hooks are submitted."""
    prepared: bool
    """Whether the source has prepared what the tasks of this run need."""
    recovered: bool
    """Whether the results and tasks that an earlier process has left are known."""
    fresh: bool
    """Whether the job was created by this process."""
    run: int
    base_run: int
    """`run`: number of the job's run, in which the finalizer runs; never below the run of any item.
    `base_run`: run of the items that have no run of their own."""
    verdict: filejobs.PartOutcome | None
    """Outcome of the job while it is being stopped, or once it has ended."""
    trouble: str
    """Why the newest step failed; "" if it did not."""
    first_failure: str
    """Message of the first item that failed."""
    concluded: item_source.ItemResult | None
    """Result of the job's run; None until it is known."""
    ttl_s: float | None
    """Default time to live, in seconds, if the spec has none."""
    failures: int
    loss_count: int
    """`failures`: number of failed attempts of items; `loss_count`: of lost attempts."""
    successes: int
    """Number of items that have succeeded since the last redrive."""
    slots: int
    """Number of slots of the job's TaskCluster when it was last looked up."""
    tasks: dict[int, ItemTask]
    """Tasks by item number."""
    active: int
    """Number of `tasks` that a worker has."""
    suspended: set[int]
    """Items whose tasks are suspended."""
    ended: set[int]
    """Items whose tasks have ended."""
    dropped: dict[int, ItemTask]
    """Tasks that need not be followed any more, by item number."""
    reopened: dict[int, int]
    """How often an item was reopened because its task left no result or its result was damaged, by
    item number."""
    busy: set[tuple[str, int]]
    """Steps that are being carried out: name of the step and item."""
    dirty: bool
    """Whether the job has changes that are not in the journal."""

    def __init__(
        self,
        new: file_job_types.JobId,
        *,
        row: int,
        namespace: str,
        spec: item_source.Policy,
        source: item_source.ItemSource,
        created: float,
    ) -> None:
        self.id = new
        self.row = row
        self.namespace = namespace
        self.spec = spec
        self.source = source
        self.created = created
        self.user = ""
        self.stage = RUNNING
        self.prepared = self.recovered = source.ends_with_task
        self.fresh = self.deleting = self.waits = self.refused = False
        self.admitted: float | None = None
        self.followed = set()
        self.run = self.base_run = 1
        self.verdict = None
        self.reason = self.message = self.trouble = self.first_failure = ""
        self.concluded = None
        self.started: float | None = None
        self.finished: float | None = None
        self.expires: float | None = None
        self.ttl_s = None
        self.failures = self.loss_count = self.successes = 0
        self.version = self.slots = self.active = 0
        self.items = item_states.Items(source.size)
        self.counts = ItemCounts()
        self.tasks = {}
        self.suspended = set()
        self.ended = set()
        self.dropped = {}
        self.reopened = {}
        self.busy = set()
        self.dirty = True
        self.view: file_job_types.GenericJobView[Any, Any] | None = None
        """View of the last batch that is known to be on disk; None if there was none, or the job is
        deleted."""

    @property
    def directory(self) -> str:
        """Prefix of the job's objects in the store, without a slash at the end."""
        return f"{self.namespace}/{self.id.dashed}"

    @property
    def size(self) -> int:
        """Number of items of the job."""
        return self.items.size

    @property
    def phase(self) -> filejobs.FileJobPhase:
        """Phase of the job that users see."""
        if self.stage is FINISHED:
            return _PHASES[self.verdict or _O.SUCCEEDED]
        if self.stage is STOPPING:
            return _P.CANCELLING if self.verdict is _O.CANCELLED else _P.RUNNING
        if self.stage is FINALIZING:
            return _P.REDUCING
        if self.spec.suspend:
            return _PAUSED
        return _PENDING if self.started is None else _P.RUNNING

    def end(self, finished: float) -> None:
        """Record the time when the job ended, from which its time to live counts."""
        ttl = self.spec.ttl_seconds_after_finished
        keep_s = self.ttl_s if ttl is None else ttl
        self.finished = finished
        self.expires = None if keep_s is None else finished + keep_s
        self.dirty = True

    def run_of(self, item: int) -> int:
        """Return the run of an item; 0 stands for the finalizer."""
        return self.items.runs[item] or self.base_run if item else self.run

    def changed(self, now: float) -> None:
        """Increase the version of the job, since something that users see has changed.

        Versions increase across restarts because time does.
        """
        self.version = max(self.version + 1, int(now * 1000))
