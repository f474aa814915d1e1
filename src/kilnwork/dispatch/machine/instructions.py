"""Instructions of the machine: messages to send once rows are on disk, and these rows.

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
"""The values of one statement of the store."""
Writes = Iterable[tuple[str, Iterable[Row]]]
"""Names of statements of the store, each with its rows."""


class RunAttempt(msgspec.Struct, frozen=True):
    """Send an attempt to its worker or executor, or to its sidecar, which needs the inputs."""

    link: int
    ref: attempts.AttemptRef
    task: records.Task


class StopAttempt(msgspec.Struct, frozen=True):
    """Tell a worker to end an attempt and prove its end."""

    link: int
    ref: attempts.AttemptRef
    grace_s: float
    reason: str


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """Acknowledge a peer's reports up to this serial, which are on disk or were refused for
    good.
    """

    link: int
    serial: int


class Welcome(msgspec.Struct, frozen=True):
    """Accept a worker. `keep`: attempts that it continues; `unknown`: attempts that it must end."""

    link: int
    keep: tuple[attempts.AttemptRef, ...]
    unknown: tuple[attempts.AttemptRef, ...]


class CloseLink(msgspec.Struct, frozen=True):
    """Close a connection: a newer one of the same peer has replaced it, its worker is lost, its
    lease has ended, or the peer has sent something invalid.
    """

    link: int
    reason: str
    message: str


class Respond(msgspec.Struct, frozen=True):
    """Respond to a Spawn: 201 created, 200 found, or another status with the `message` of a
    refusal.

    A response that is no refusal may have a warning.
    """

    link: int
    serial: int
    status: int
    task: ids.TaskId | None
    message: str = ""


class AttachPeer(msgspec.Struct, frozen=True):
    """Accept a driver, a slot or the process of a call. `unknown`: attempts that the peer must
    drop.
    """

    link: int
    namespace: str
    cluster: str
    unknown: tuple[attempts.AttemptRef, ...] = ()


class OpenSlot(msgspec.Struct, frozen=True):
    """Tell an agent to fork a slot."""

    link: int
    slot: bytes


class KillSlot(msgspec.Struct, frozen=True):
    """Tell an agent to kill a slot at once."""

    link: int
    slot: bytes


class TakeBack(msgspec.Struct, frozen=True):
    """Tell a slot to return attempts that it has not started."""

    link: int
    count: int


class StopCall(msgspec.Struct, frozen=True):
    """Tell a slot to give an attempt back unstarted, or to interrupt it if it has started."""

    link: int
    ref: attempts.AttemptRef
    reason: str


class FoundCall(msgspec.Struct, frozen=True):
    """Tell a submitter that the call it submitted is an existing task."""

    link: int
    number: int
    task: ids.TaskId


class Stream(msgspec.Struct, frozen=True):
    """Send a value that a generator has yielded to a submitter."""

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
    """Run an attempt as a container that is added to the Pod of its worker.

    `hub.container_requests` makes this instruction when that worker asks for the container.
    """

    link: int
    ref: attempts.AttemptRef
    task: records.Task
    pod: str
    pod_uid: str
    environment: tuple[tuple[str, str], ...]


ForExecutor = RunAttempt | StopAttempt | RunContainer
"""An instruction to an executor: make sure that an attempt exists, or end it and prove its end.
Each may be repeated.
"""


class Batch(msgspec.Struct):
    """The rows of one transaction, and the messages to send once it is on disk.

    `dirty`: tasks whose row is to be written, in order of first change. `past`: attempts that have
    ended without success. `outputs`: row, attempt and its output, where that is short and complete.
    `workers`: sessions with their first attempt. `cached`: results that may be reused: namespace,
    key, task, time of end. `released`: tasks whose object is deleted. `forgotten`: tasks to delete
    with all their rows, each with its row if it has no other; None: the journal looks for the rows.
    `published`: tasks whose view changed without a row (progress, children). `finals`: tasks that
    became final; memory drops them after the commit.

    For calls, by link, so that each link gets one frame: `runs` in order (after the templates that
    the link has not seen), each with its attempt number; `results`; `accepted`: the highest number
    of a call that is accepted; `acknowledged`: the highest serial of a report. `awaited`: links
    whose `accepted` is sent at once, since the peer waits for it. `templates`: new templates.

    `taken_over`: task, an earlier run of it, and the run that continues with that run's children.
    `superseded`: task, and the run of it that is its parent's child from now on in place of earlier
    runs.

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
        """Return whether the batch has anything to write to the store."""
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
        """Return whether the batch has nothing to write, send or publish."""
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
