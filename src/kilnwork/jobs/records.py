"""What memory has of a job that is not over: its items, their tasks, counts.

Mutable and small; changed by `transitions` and `plan`, and by the engine as to what is under way.
`rows` makes rows and views.
"""

from enum import IntEnum
from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import item_source, items, model
from kilnwork.kit import ids

_P = filejobs.FileJobPhase
_O = filejobs.PartOutcome


class Stage(IntEnum):
    """Which rules move a job. The journal has the numbers."""

    RUNNING = 1
    """Items are open."""
    FINALIZING = 2
    """All items have succeeded."""
    STOPPING = 3
    """It ends without a result: nothing of it may run on."""
    FINISHED = 4


RUNNING, FINALIZING, STOPPING, FINISHED = Stage
"""For what each job passes: a member by way of its class takes ten times as long to look up."""

STATES = {
    _O.SUCCEEDED: items.ItemState.SUCCEEDED,
    _O.FAILED: items.ItemState.FAILED,
    _O.CANCELLED: items.ItemState.CANCELLED,
}
EVENTS = {
    _O.SUCCEEDED: api_job.HookEvent.SUCCEEDED,
    _O.FAILED: api_job.HookEvent.FAILED,
    _O.CANCELLED: api_job.HookEvent.KILLED,
}
"""What hooks follow, by how a job ended."""

_PAUSED, _PENDING = _P.PAUSED, _P.PENDING
_PHASES = {_O.SUCCEEDED: _P.SUCCEEDED, _O.FAILED: _P.FAILED, _O.CANCELLED: _P.CANCELLED}


class Ended(msgspec.Struct, frozen=True, gc=False):
    """How a task ended; proves nothing about its item."""

    state: api_task.State
    reason: str
    message: str
    stopped: bool | None = None
    """Whether there is proof that nothing of it runs."""


class ItemTask(msgspec.Struct, eq=False, gc=False):
    """A task in the journal that works on an item. What has no comment is of its newest attempt."""

    active: bool = False
    """A worker has it."""
    attempt: int = 0
    ended: Ended | None = None
    """The task is over."""
    failures: int = 0
    """Of all its attempts."""
    id: ids.TaskId | None = None
    """Known when the dispatcher has said something of it."""
    killed: bool = False
    """We have asked for its end."""
    losses: int = 0
    """Of all its attempts."""
    message: str = ""
    parent: bool = False
    """It has asked for children."""
    started: float | None = None
    state: api_task.State = api_task.State.PENDING
    suspended: bool = False
    """No attempt of it starts."""
    worker: str = ""


class Counts:
    """How many items have ended, by outcome."""

    __slots__ = ("cancelled", "failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.cancelled = 0

    @property
    def closed(self) -> int:
        """Items that have ended."""
        return self.succeeded + self.failed + self.cancelled


class Job:
    """A job in memory: one that is not over, or that is being changed or deleted."""

    __slots__ = (
        "active", "admitted", "base_run", "busy", "concluded", "counts", "created", "deleting",
        "dirty", "dropped", "ended", "expires", "failures", "finished", "first_failure", "followed",
        "fresh", "id", "items", "loss_count", "message", "namespace", "prepared", "reason",
        "recovered", "refused", "reopened", "row", "run", "slots", "source", "spec", "stage",
        "started", "successes", "suspended", "tasks", "trouble", "ttl_s", "user", "verdict",
        "version", "view", "waits",
    )  # fmt: skip

    row: int
    """In the journal."""
    waits: bool
    """Its turn has not come: see `admission`."""
    admitted: float | None
    """When its turn came, in this run; None for sources without turns."""
    refused: bool
    """It was never accepted."""
    followed: set[api_job.HookEvent]
    """Changes of its phase in this run whose hooks are submitted."""
    prepared: bool
    """The source has all that tasks of this run need."""
    recovered: bool
    """It is known what an earlier service has left of it."""
    fresh: bool
    """It was made by this service."""
    run: int
    base_run: int
    """`run`: of the finalizer, never below that of any item; `base_run`: of items that have
    none of their own."""
    verdict: filejobs.PartOutcome | None
    """How it is to end, while it stops, or has ended."""
    trouble: str
    """Why the newest step did not work."""
    first_failure: str
    """Of an item."""
    concluded: item_source.ItemResult | None
    """The record of how this run ended."""
    ttl_s: float | None
    """If its spec names none."""
    failures: int
    loss_count: int
    """Of attempts."""
    successes: int
    """Items that have succeeded since the last redrive."""
    slots: int
    """Of its cluster, when it was last looked at."""
    tasks: dict[int, ItemTask]
    """By number of the item, of those that have one."""
    active: int
    """How many of `tasks` a worker has."""
    suspended: set[int]
    """Which of `tasks` are suspended."""
    ended: set[int]
    """Which of `tasks` are over."""
    dropped: dict[int, ItemTask]
    """Tasks that need not be followed any more, by item."""
    reopened: dict[int, int]
    """How often items were, without their fault."""
    busy: set[tuple[str, int]]
    """Steps that are under way."""
    dirty: bool
    """The journal has not got all of it yet."""

    def __init__(
        self,
        new: model.JobId,
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
        self.items = items.Items(source.size)
        self.counts = Counts()
        self.tasks = {}
        self.suspended = set()
        self.ended = set()
        self.dropped = {}
        self.reopened = {}
        self.busy = set()
        self.dirty = True
        self.view: model.GenericJobView[Any, Any] | None = None
        """As of the last batch that is known to be on disk, as views of its tasks are; None: there
        was none, or it is gone."""

    @property
    def directory(self) -> str:
        """Prefix of its objects in the store, without a slash at the end."""
        return f"{self.namespace}/{self.id.dashed}"

    @property
    def size(self) -> int:
        """How many items it has."""
        return self.items.size

    @property
    def phase(self) -> filejobs.FileJobPhase:
        """Return the phase that users see."""
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
        """Note when it ended; from then on its time to live counts."""
        ttl = self.spec.ttl_seconds_after_finished
        keep_s = self.ttl_s if ttl is None else ttl
        self.finished = finished
        self.expires = None if keep_s is None else finished + keep_s
        self.dirty = True

    def run_of(self, item: int) -> int:
        """Return the run in which an item is; 0: the finalizer."""
        return self.items.runs[item] or self.base_run if item else self.run

    def changed(self, now: float) -> None:
        """Note that something users see is different. Versions rise over restarts, as time does."""
        self.version = max(self.version + 1, int(now * 1000))
