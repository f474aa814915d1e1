"""What memory has of a job that is not over: parts, seats, counts.

Mutable and small; changed by `facts` and `plan`, and by the engine as to what is under way. A
*seat* is a task in the journal that works on a part (part 0: the reducer). `rows` makes rows and
views.
"""

from array import array
from collections import deque
from enum import IntEnum
from typing import NamedTuple

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.jobs import model

_P = filejobs.Phase
_O = filejobs.Outcome


class Stage(IntEnum):
    """Which rules move a job. The tables have the numbers."""

    MAPPING = 1
    REDUCING = 2
    STOPPING = 3
    OVER = 4


class State(IntEnum):
    """Of a part: `OPEN` waits for a seat, `SEATED` has a task, the others are closed for good."""

    OPEN = 0
    SEATED = 1
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4


BY_OUTCOME = {
    _O.SUCCEEDED: State.SUCCEEDED,
    _O.FAILED: State.FAILED,
    _O.CANCELLED: State.CANCELLED,
}
_PHASES = {_O.SUCCEEDED: _P.SUCCEEDED, _O.FAILED: _P.FAILED, _O.CANCELLED: _P.CANCELLED}


class Ended(NamedTuple):
    """How the task of a seat ended; proves nothing about its part."""

    state: api_task.State
    reason: str
    message: str


class Seat:
    """A task that works on a part. `held`: no attempt of it starts; `killed`: we have asked for its
    end; `ended`: it is over. The rest is of its newest attempt."""

    __slots__ = (
        "active", "attempt", "ended", "failures", "held", "killed", "losses", "message", "started",
        "worker",
    )  # fmt: skip

    def __init__(self) -> None:
        self.active = False
        self.attempt = 0
        self.ended: Ended | None = None
        self.failures = 0
        self.held = False
        self.killed = False
        self.losses = 0
        self.message = ""
        self.started: float | None = None
        self.worker = ""


class Counts:
    """Of closed parts, and of records of those that succeeded."""

    __slots__ = ("bytes", "cancelled", "failed", "failed_records", "skipped_records", "succeeded",
                 "succeeded_records")  # fmt: skip

    def __init__(self) -> None:
        self.succeeded = self.failed = self.cancelled = 0
        self.succeeded_records = self.failed_records = self.skipped_records = 0
        self.bytes = 0

    @property
    def closed(self) -> int:
        """Parts that are over."""
        return self.succeeded + self.failed + self.cancelled

    @property
    def records(self) -> filejobs.Records:
        """They add up."""
        return filejobs.Records.of(
            self.succeeded_records, self.failed_records, self.skipped_records
        )


class Job:
    """A job in memory: one that is not over, or that is being changed or deleted.

    `row`: in the tables. `ttl_s`: if its spec names none. `source`: key of its input in the whole
    store, None: its own. `stored`: its folder has its input and a `job.json` of this run; `fresh`:
    it was made by this service; `recovered`: what an earlier service has left of it is known.
    `run`: of the reducer, never below that of any part; `base_run`: of parts that have none of
    their own in `runs`. `verdict`: how it is to end, while it stops, or has ended; `concluded`: the
    record `commits/0-RUN`. `slots`: of its cluster, when somebody last looked.

    `states`: by number of the part (0 is not used). `waiting`: numbers of open parts in the order
    in which they get seats, with some that are not open any more. `seats` by number; how many are
    `active`, which ones are `held`, and of which the task is `over`. `reopened`: how often parts
    were, without their fault. `first_failure`: of a part. `busy`: steps that are under way.
    `dirty`, `dirty_parts`: what the tables have not got yet; `trouble`: why the newest step did not
    work.
    """

    __slots__ = (
        "active", "base_run", "busy", "concluded", "counts", "created", "deleting", "dirty",
        "dirty_parts", "errors", "expires", "failures", "finished", "first_failure", "fresh",
        "held", "id", "loss_count", "manifest", "message", "namespace", "output", "over", "reason",
        "recovered", "reopened", "row", "run", "runs", "seats", "slots", "source", "spec",
        "stage", "started", "states", "stored", "successes", "trouble", "ttl_s", "user", "verdict",
        "version", "view", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        new: model.JobId,
        *,
        row: int,
        namespace: str,
        spec: filejobs.JobSpec,
        manifest: filejobs.Manifest,
        created: float,
    ) -> None:
        many = len(manifest.parts)
        self.id = new
        self.row = row
        self.namespace = namespace
        self.spec = spec
        self.manifest = manifest
        self.created = created
        self.user = ""
        self.source: str | None = None
        self.stage = Stage.MAPPING
        self.stored = False
        self.recovered = False
        self.fresh = False
        self.run = self.base_run = 1
        self.verdict: filejobs.Outcome | None = None
        self.reason = self.message = self.trouble = self.first_failure = ""
        self.concluded: filejobs.Commit | None = None
        self.started: float | None = None
        self.finished: float | None = None
        self.expires: float | None = None
        self.ttl_s: float | None = None
        self.output: filejobs.StoredFile | None = None
        self.errors: filejobs.StoredFile | None = None
        self.failures = self.loss_count = self.successes = 0
        self.deleting = False
        self.version = 0
        self.slots = 0
        self.states = bytearray(many + 1)
        self.runs: dict[int, int] = {}
        self.counts = Counts()
        self.waiting: deque[int] = deque(array("i", range(1, many + 1)))
        self.seats: dict[int, Seat] = {}
        self.active = 0
        self.held: set[int] = set()
        self.over: set[int] = set()
        self.reopened: dict[int, int] = {}
        self.busy: set[tuple[str, int]] = set()
        self.dirty = True
        self.dirty_parts: dict[int, filejobs.Commit | None] = {}
        self.view: model.JobView | None = None

    @property
    def folder(self) -> str:
        """Prefix of its objects in the store, without a slash at the end."""
        return f"{self.namespace}/{self.id.dashed}"

    @property
    def size(self) -> int:
        """How many parts it has."""
        return len(self.states) - 1

    @property
    def alone(self) -> bool:
        """There is nothing to merge: the result of its one part, or none, is that of the job."""
        return self.size <= 1 and self.spec.reducer is None

    @property
    def phase(self) -> filejobs.Phase:
        """What people see."""
        if self.stage is Stage.OVER:
            return _PHASES[self.verdict or _O.SUCCEEDED]
        if self.stage is Stage.STOPPING:
            return _P.CANCELLING if self.verdict is _O.CANCELLED else _P.RUNNING
        if self.stage is Stage.REDUCING:
            return _P.REDUCING
        if self.spec.suspend:
            return _P.PAUSED
        return _P.PENDING if self.started is None else _P.RUNNING

    def end(self, finished: float) -> None:
        """It is over; from then on its time to live counts."""
        ttl = self.spec.ttl_seconds_after_finished
        keep_s = self.ttl_s if ttl is None else ttl
        self.finished = finished
        self.expires = None if keep_s is None else finished + keep_s
        self.dirty = True

    def run_of(self, part: int) -> int:
        """The run in which a part is; 0: the reducer."""
        return self.runs.get(part, self.base_run) if part else self.run

    def part(self, number: int) -> filejobs.Part:
        """By number, from 1."""
        return self.manifest.parts[number - 1]

    def changed(self, now: float) -> None:
        """Something that people see is different: rising over restarts, as time does."""
        self.version = max(self.version + 1, int(now * 1000))
        self.view = None
