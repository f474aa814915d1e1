"""What the machine wants done: messages to send once the disk has the rows, and these rows.

The hub sends the messages, the journal writes the rows. A `Batch` is one transaction; none of its
messages is sent before its rows are on disk.
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
    """Send a reserved attempt to its worker."""

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
    """Acknowledge reports up to this serial: they are on disk, or were refused for good."""

    link: int
    serial: int


class Welcome(msgspec.Struct, frozen=True):
    """Accept a worker. `keep`: attempts that it continues; `unknown`: attempts that it must end."""

    link: int
    keep: tuple[attempts.AttemptRef, ...]
    unknown: tuple[attempts.AttemptRef, ...]


class CloseLink(msgspec.Struct, frozen=True):
    """Close a connection that a newer one has replaced."""

    link: int
    reason: str
    message: str


class Respond(msgspec.Struct, frozen=True):
    """Respond to a Spawn: 201 created, 200 found, both perhaps with a warning; or a refusal:
    `message`.
    """

    link: int
    serial: int
    status: int
    task: ids.TaskId | None
    message: str = ""


class AttachPeer(msgspec.Struct, frozen=True):
    """Accept a driver or slot. `unknown`: attempts that a slot must drop."""

    link: int
    namespace: str
    cluster: str
    unknown: tuple[attempts.AttemptRef, ...] = ()


class OpenSlot(msgspec.Struct, frozen=True):
    """Ask an agent to fork a slot."""

    link: int
    slot: bytes


class KillSlot(msgspec.Struct, frozen=True):
    """Ask an agent to kill a slot at once."""

    link: int
    slot: bytes


class TakeBack(msgspec.Struct, frozen=True):
    """Ask a slot to return attempts that it has not started."""

    link: int
    count: int


class StopCall(msgspec.Struct, frozen=True):
    """Ask a slot to return or interrupt an attempt."""

    link: int
    ref: attempts.AttemptRef
    reason: str


class FoundCall(msgspec.Struct, frozen=True):
    """Tell a submitter that its call is an existing task."""

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
    """Run an attempt as a container that is added to the Pod of its worker. `hub.containers` makes
    this instruction when that worker asks for it.
    """

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
    """One transaction, and what follows it.

    `dirty`: tasks whose row is to be written, in order of first change. `past`: attempts that have
    ended. `outputs`: row, attempt and its output, where that is short and complete. `workers`:
    sessions with their first attempt. `cached`: results that may be reused: namespace, key, task,
    time of end. `released`: tasks whose object is deleted. `forgotten`: tasks to delete with all
    their rows, with the row of one that has no other; None: the journal looks for them.
    `published`: tasks whose view changed without a row (progress, children). `finals`: tasks that
    became final; memory drops them after the commit.

    For calls, by link, so that each link gets one frame: `runs` in order (after the templates that
    the link has not seen), each with its attempt number; `results`; `accepted` and `acknowledged`
    numbers, and the links whose peer waits for the former (`awaited`). `templates`: new ones.

    `taken_over`: task, an earlier run of it, and the run that continues with that one's children.
    `superseded`: task, and the run of it that is its parent's child from now on in place of earlier
    ones.

    `writes`: rows of a participant's tables (`hub.commits.Participant`), in order: the name of a
    statement of the store, and its rows, which may be read again after a failed commit.
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
        """Return whether there is something to write."""
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
        """Return whether there is nothing to do at all."""
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
