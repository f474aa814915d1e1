"""What the machine wants done: sends that wait for the disk, and the rows that go there first.

Carried out by the hub (sends) and the journal (rows). A `Batch` is one transaction; none of its
sends leaves before its rows are on disk.
"""

from collections.abc import Iterable

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.dispatch.machine import records
from kilnwork.kit import ids

Value = str | int | float | bytes | None
Row = tuple[Value, ...]
"""Values of a statement of the store."""
Writes = Iterable[tuple[str, Iterable[Row]]]
"""Names of statements of the store, and rows for each."""


class RunAttempt(msgspec.Struct, frozen=True):
    """Give a reserved attempt to its worker."""

    link: int
    ref: attempts.AttemptRef
    task: records.Task


class StopAttempt(msgspec.Struct, frozen=True):
    """Ask a worker to end an attempt and prove it."""

    link: int
    ref: attempts.AttemptRef
    grace_s: float
    reason: str


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """Reports up to this serial are on disk, or were refused for good."""

    link: int
    serial: int


class Welcome(msgspec.Struct, frozen=True):
    """A worker is in. `keep`: attempts it goes on with; `unknown`: attempts it must end."""

    link: int
    keep: tuple[attempts.AttemptRef, ...]
    unknown: tuple[attempts.AttemptRef, ...]


class CloseLink(msgspec.Struct, frozen=True):
    """End a connection that a newer one has replaced."""

    link: int
    reason: str
    message: str


class Respond(msgspec.Struct, frozen=True):
    """Respond to a Spawn: 201 made, 200 found, both perhaps with a warning, or a refusal:
    `message`."""

    link: int
    serial: int
    status: int
    task: ids.TaskId | None
    message: str = ""


class AttachPeer(msgspec.Struct, frozen=True):
    """A driver or slot is in. `unknown`: attempts that a slot must drop."""

    link: int
    namespace: str
    cluster: str
    unknown: tuple[attempts.AttemptRef, ...] = ()


class OpenSlot(msgspec.Struct, frozen=True):
    """Ask an agent to fork a slot."""

    link: int
    slot: bytes


class KillSlot(msgspec.Struct, frozen=True):
    """Ask an agent to end a slot at once."""

    link: int
    slot: bytes


class TakeBack(msgspec.Struct, frozen=True):
    """Ask a slot for attempts that it has not started."""

    link: int
    count: int


class StopCall(msgspec.Struct, frozen=True):
    """Ask a slot to return or interrupt an attempt."""

    link: int
    ref: attempts.AttemptRef
    reason: str


class FoundCall(msgspec.Struct, frozen=True):
    """Inform a submitter that its call is a task which exists already."""

    link: int
    number: int
    task: ids.TaskId


class Stream(msgspec.Struct, frozen=True):
    """Pass a yielded value on to a submitter."""

    link: int
    number: int
    index: int
    payload: attempts.Payload


Send = (
    RunAttempt
    | StopAttempt
    | Acknowledge
    | Welcome
    | CloseLink
    | Respond
    | AttachPeer
    | OpenSlot
    | KillSlot
    | TakeBack
    | StopCall
    | FoundCall
    | Stream
)


class RunContainer(msgspec.Struct, frozen=True):
    """Run an attempt as a container that is added to the Pod of the worker that has it. Given by
    `hub.containers` when that worker asks for it."""

    link: int
    ref: attempts.AttemptRef
    task: records.Task
    pod: str
    pod_uid: str
    environment: tuple[tuple[str, str], ...]


ForExecutor = RunAttempt | StopAttempt | RunContainer
"""What an executor is asked: make sure that an attempt exists, or end it and prove it. Both may
come again."""


class Batch(msgspec.Struct):
    """One transaction and what follows it.

    `dirty`: tasks whose row is to be written, in order of first change; `past`: attempts that are
    over; `outputs`: row, attempt and what that has printed, where it is short and whole; `workers`:
    sessions with their first attempt; `cached`: results that may be used again: namespace, key,
    task and when it ended; `released`: tasks whose object is gone; `forgotten`: tasks all of whose
    rows are to be deleted, with the row of one that has no other, None: the journal looks for them.
    `published`: tasks whose view changed without a row (progress, children). `finals`: tasks that
    became final; memory drops them after the commit.

    For calls, by link, so that each link gets one frame: `runs` in order (after the templates that
    the link has not seen), each with the number of its attempt; `results`; `accepted` and
    `acknowledged` numbers, and the links whose peer waits for the former (`awaited`).
    `templates`: new ones.

    `taken_over`: task, an earlier run of it, and the run that goes on with the children of that.
    `superseded`: task and the run of it that is its parent's child from now on, instead of those
    before.

    `writes`: rows of tables that are a participant's (`hub.commits.Participant`), in order: the
    name of a statement of the store, and its rows, which may be read again after a failed commit.
    """

    dirty: dict[records.Task, None] = {}
    past: list[records.PastAttempt] = []
    outputs: list[tuple[int, int, bytes]] = []
    workers: list[records.Worker] = []
    cached: list[tuple[str, bytes, ids.TaskId, float]] = []
    released: list[ids.TaskId] = []
    forgotten: dict[ids.TaskId, int | None] = {}
    taken_over: list[tuple[ids.TaskId, int, int]] = []
    superseded: list[tuple[ids.TaskId, int]] = []
    sends: list[Send] = []
    published: set[ids.TaskId] = set()
    finals: list[records.Task] = []
    templates: list[records.Template] = []
    runs: dict[int, list[tuple[records.Task, int]]] = {}
    results: dict[int, list[calls.CallResult]] = {}
    accepted: dict[int, int] = {}
    acknowledged: dict[int, int] = {}
    awaited: set[int] = set()
    clusters: set[records.Cluster] = set()
    writes: list[tuple[str, Iterable[Row]]] = []

    @property
    def durable(self) -> bool:
        """True when there is something to write."""
        return bool(
            self.dirty
            or self.past
            or self.outputs
            or self.workers
            or self.released
            or self.forgotten
            or self.taken_over
            or self.superseded
            or self.templates
            or self.writes
        )

    @property
    def empty(self) -> bool:
        """True when there is nothing to do at all."""
        return not (
            self.durable
            or self.sends
            or self.published
            or self.clusters
            or self.runs
            or self.results
            or self.accepted
            or self.acknowledged
        )
