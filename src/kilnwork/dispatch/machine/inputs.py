"""Inputs of the machine: one frozen value for each kind of event.

The hub makes them from frames, calls and timers. A *link* is the number that the hub gave to a
connection; numbers are never reused.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.kit import ids


class Moment(msgspec.Struct, frozen=True, gc=False):
    """The current time on both clocks, in seconds: `wall` for records, `mono` for deadlines."""

    wall: float
    mono: float


class Past(msgspec.Struct, frozen=True):
    """The newest run of a task that is in the journal but not in memory."""

    run: int
    state: api_task.State


class Submit(msgspec.Struct, frozen=True):
    """Run a task.

    `past`: its newest run in the journal. `force`: run it even after a success. `earlier`: the
    children that the run continues with.
    """

    submission: model.Submission
    past: Past | None = None
    force: bool = False
    earlier: "Earlier | None" = None


class SubmitNew(msgspec.Struct, frozen=True):
    """Run tasks that are neither in memory nor in the journal.

    Each task is submitted once, and none is too large (`Machine.refusal`).
    """

    submissions: Sequence[model.Submission]


class Earlier(msgspec.Struct, frozen=True, gc=False):
    """The children of an earlier run, for a run that continues with them.

    It has the number of children in each state, and the ids of the unfinished children that the
    journal knows.
    """

    run: int
    total: int
    succeeded: int
    failed: int
    unfinished: tuple[ids.TaskId, ...] = ()


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """Start a finished spawned task again as run `run`; everything else is unchanged.

    `arguments`: None for a command. `values`: the ends of those tasks among `needs` that have
    finished. `key`: its driver's key, or the key within its parent's run if `of_family`. `earlier`:
    the children that the run continues with; None: it makes its own. `of_family`: the task is a
    child of `parent`, whose run is in memory. `digest`: the digest of a command that is a child.
    """

    task: ids.TaskId
    run: int
    namespace: str
    name: str | None
    spec: api_task.TaskSpec
    inputs: bytes | None
    arguments: attempts.Payload | None
    needs: tuple[ids.TaskId, ...]
    values: Mapping[ids.TaskId, calls.Value]
    parent: attempts.AttemptRef | None
    key: str | None
    source: bytes
    digest: bytes | None = None
    earlier: Earlier | None = None
    of_family: bool = False


class RetryFailed(msgspec.Struct, frozen=True):
    """Run failed tasks again, each after its parent and after the tasks that it needs.

    A task that was started again meanwhile is not changed.
    """

    reruns: Sequence[Rerun]


class Kill(msgspec.Struct, frozen=True):
    """Kill a task and, recursively, its unfinished children."""

    task: ids.TaskId
    reason: str
    message: str = ""


class Suspend(msgspec.Struct, frozen=True):
    """Suspend or resume a task; a running attempt continues."""

    task: ids.TaskId
    suspended: bool


class Release(msgspec.Struct, frozen=True):
    """The Task objects of these tasks are deleted and their runs finished: no controller follows
    them.
    """

    tasks: tuple[ids.TaskId, ...]


class Forget(msgspec.Struct, frozen=True):
    """Forget these finished tasks, even if the current batch has their end.

    A task stays if it is unfinished, if its first row is in the current batch, or if its end is
    being written.
    """

    tasks: tuple[ids.TaskId, ...]


class Close(msgspec.Struct, frozen=True):
    """Start no more tasks and excuse all losses, since the server is stopping in order."""


class CloseCluster(msgspec.Struct, frozen=True):
    """Fail the unfinished tasks of a deleted TaskCluster.

    `running`: False spares the tasks that a worker has, and the tasks that have delegated to
    another task.
    """

    namespace: str
    cluster: str
    running: bool = True


class Drain(msgspec.Struct, frozen=True):
    """Assign no more tasks to the workers in these Pods of a cluster, since they will be removed.

    Other workers of the cluster get tasks again.
    """

    namespace: str
    cluster: str
    pods: frozenset[str]


class SetPortions(msgspec.Struct, frozen=True):
    """Set which portions of a SyncSet's data are on which nodes, for the workers of a cluster."""

    namespace: str
    cluster: str
    portions: Mapping[str, frozenset[int]]


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A worker or executor process was authenticated. `running`: the attempts in its Hello."""

    link: int
    session: bytes
    namespace: str
    cluster: str
    name: str
    pod_uid: str
    node: str
    slots: int
    running: tuple[attempts.AttemptRef, ...] = ()
    processes: tuple[bytes, ...] = ()
    """Ids of the living slots of this worker."""
    labels: Mapping[str, str] = {}
    """Labels of an executor process."""


class JoinExecutor(msgspec.Struct, frozen=True):
    """An executor in this process takes attempts from now on, up to `capacity` at a time."""

    link: int
    executor: str
    capacity: int


class JoinAttempt(msgspec.Struct, frozen=True):
    """The sidecar of an executor's attempt is connected, and speaks for that attempt alone."""

    link: int
    ref: attempts.AttemptRef


class JoinCall(msgspec.Struct, frozen=True):
    """The process that runs the call of an executor's attempt is connected.

    It submits for that attempt and reports its end.
    """

    link: int
    ref: attempts.AttemptRef
    namespace: str


class AttemptObserved(msgspec.Struct, frozen=True):
    """An executor's observation of an attempt; sent again whenever the observation changes."""

    link: int
    ref: attempts.AttemptRef
    observed: model.Observed
    parked: bool = False
    """Whether the attempt waits for something outside the executor, and takes no slot."""
    handover: bytes = b""
    """Data with which the next attempt can continue the work that this attempt has begun outside,
    if this attempt is lost.
    """


class LinkClosed(msgspec.Struct, frozen=True):
    """A connection was closed; its worker may come back until its lease ends."""

    link: int


class WorkerGone(msgspec.Struct, frozen=True):
    """A Pod is gone, which proves that everything that ran in it has ended.

    `why`: the reason, if known. `ended`: if not None, the Pod still exists, but its container ended
    at that time (wall clock of its machine) and was not started again: proof for sessions that
    began earlier and are not connected.
    """

    pod_uid: str
    why: str = ""
    ended: float | None = None


class Renew(msgspec.Struct, frozen=True):
    """A worker renews its lease."""

    link: int


class Started(msgspec.Struct, frozen=True):
    """A worker, executor or slot has started an attempt. Slots report only the start of long
    calls.
    """

    link: int
    serial: int
    ref: attempts.AttemptRef
    at: float


class Finished(msgspec.Struct, frozen=True):
    """A worker reports that an attempt has ended."""

    link: int
    serial: int
    ref: attempts.AttemptRef
    outcome: attempts.Outcome


class StoredChild(msgspec.Struct, frozen=True):
    """A child as the journal has it, usually not in memory and therefore final.

    `child_spawning` also makes one from the record of a child in memory, which need not be final.
    `requested_by`: the newest attempt of its parent's run that requested it; 0 if it is a child of
    an earlier run which the parent's run continues with. `run`: its newest run, which is in
    `state`. `earlier`: the children of that run, if another run may follow.
    """

    task: ids.TaskId
    digest: bytes
    requested_by: int
    state: api_task.State = api_task.State.SUCCESS
    run: int = 1
    earlier: Earlier | None = None

    @property
    def to_be_retried(self) -> bool:
        """Return whether the child failed under an earlier run of its parent.

        Such a child runs again when it is requested.
        """
        return to_be_retried(self.state, self.requested_by)


def to_be_retried(state: api_task.State, requested_by: int) -> bool:
    """Return whether a child has failed and no attempt of its parent's current run has requested
    it.

    An earlier run requested it; the current run continues with the children that succeeded and runs
    the others again.
    """
    return requested_by == 0 and state.final and state is not api_task.State.SUCCESS


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt requests a child.

    `task`: the id for a new child. `child_key`: `=KEY`, or `#N` for the N-th child of the attempt
    without a key. `digest`: digest of spec and inputs as requested, in canonical form. `warning`: a
    warning to be added to the response.
    """

    link: int
    serial: int
    parent: attempts.AttemptRef
    child_key: str
    task: ids.TaskId
    name: str
    spec: api_task.TaskSpec
    inputs: bytes | None
    digest: bytes
    found: StoredChild | None = None
    warning: str = ""


class AttemptProgress(msgspec.Struct, frozen=True):
    """A task reports its progress."""

    link: int
    ref: attempts.AttemptRef
    progress: model.Progress


class Attach(msgspec.Struct, frozen=True):
    """A driver was authenticated, for a new session or to reconnect to its session."""

    link: int
    session: bytes
    namespace: str


class Define(msgspec.Struct, frozen=True):
    """A submitter defines a template under a number of its link."""

    link: int
    number: int
    spec: api_task.TaskSpec


class Undefine(msgspec.Struct, frozen=True):
    """A submitter will no longer use the templates with these numbers."""

    link: int
    numbers: tuple[int, ...]


class Lookups(msgspec.Struct):
    """The values to look up in the journal before an input is applied, by number of the call.

    `calls`: ids of calls that may exist already. `children`: parent, its run and a child key.
    `keys`: a driver's key (as a child key). `values`: tasks whose end is needed. `cached`: key of a
    cached result, and its greatest age in seconds. Only tasks of `namespace` count.
    """

    namespace: str
    calls: list[tuple[int, ids.TaskId]]
    children: list[tuple[int, ids.TaskId, int, str]]
    keys: list[tuple[int, str]]
    values: set[ids.TaskId]
    cached: list[tuple[int, bytes, float]] = []


class StoredCall(msgspec.Struct, frozen=True):
    """A call as the journal has it, usually not in memory and therefore final.

    `submissions` also makes one from the record of a call in memory, which need not be final.
    `arguments` (None: not a call) and `spec` show whether it is the same call. `requested_by`,
    `run`, `earlier`: as in `StoredChild`. `source`: the queue source of that run.
    """

    value: calls.Value
    arguments: attempts.Payload | None
    spec: api_task.TaskSpec
    requested_by: int
    run: int = 1
    earlier: Earlier | None = None
    source: bytes = b""


Values = Mapping[ids.TaskId, calls.Value]
"""The values of finished tasks, by task."""


class CachedResult(msgspec.Struct, frozen=True):
    """A cached result that may be used for a call. `finished`: wall clock, in seconds, of its
    end.
    """

    task: ids.TaskId
    payload: attempts.Payload | None
    finished: float


class SubmitCalls(msgspec.Struct, frozen=True):
    """A submitter submits calls.

    `known`: by number of the call, calls that are in the journal and not in memory (see
    `Machine.lookups`). `values`: by task, the ends of tasks that the calls need. `cached`: by
    number of the call, cached results that may be used.
    """

    link: int
    items: tuple[calls.CallItem, ...]
    known: Mapping[int, StoredCall] = {}
    values: Mapping[ids.TaskId, calls.Value] = {}
    cached: Mapping[int, CachedResult] = {}


class WatchTasks(msgspec.Struct, frozen=True):
    """A submitter watches tasks for their results.

    `values`: the ends of those tasks that are not in memory.
    """

    link: int
    items: tuple[calls.Watched, ...]
    values: Mapping[ids.TaskId, calls.Value] = {}


class CancelTasks(msgspec.Struct, frozen=True):
    """A submitter cancels tasks."""

    link: int
    tasks: tuple[ids.TaskId, ...]
    recursive: bool = True


class SlotOpening(msgspec.Struct, frozen=True):
    """An agent is about to fork a slot."""

    link: int
    slot: bytes


class SlotJoined(msgspec.Struct, frozen=True):
    """A slot connected with the secret that its agent gave it. `running`: all attempts that it
    holds.
    """

    link: int
    slot: bytes
    running: tuple[attempts.AttemptRef, ...] = ()


class SlotGone(msgspec.Struct, frozen=True):
    """An agent reports that a slot's process has ended; see `messages.SlotGone`."""

    link: int
    serial: int
    slot: bytes
    running: attempts.AttemptRef | None
    code: int | None
    asked: bool
    message: str
    proof: bool
    reason: str = ""


class CallsEnded(msgspec.Struct, frozen=True):
    """A slot, or the process of a call in a Pod, reports that attempts have ended.

    `values`: the ends of those tasks to which the attempts delegated that are not in memory.
    """

    link: int
    serial: int
    ends: tuple[calls.CallEnd, ...]
    values: Mapping[ids.TaskId, calls.Value] = {}


class CallsReturned(msgspec.Struct, frozen=True):
    """A slot returns attempts that it has not started."""

    link: int
    refs: tuple[attempts.AttemptRef, ...]


class Waiting(msgspec.Struct, frozen=True):
    """An attempt waits for other tasks, and its slot is free for other attempts meanwhile.

    `first`: the attempt resumes when any of the tasks has ended, rather than all. `more`: it waits
    for other tasks as well, so it is unknown when it resumes.
    """

    link: int
    ref: attempts.AttemptRef
    tasks: tuple[ids.TaskId, ...]
    in_place: bool
    first: bool = False
    more: bool = False


class Resumed(msgspec.Struct, frozen=True):
    """An attempt that waited resumes."""

    link: int
    ref: attempts.AttemptRef


class Yielded(msgspec.Struct, frozen=True):
    """A generator has yielded a value, which is passed on but not stored."""

    link: int
    ref: attempts.AttemptRef
    index: int
    payload: attempts.Payload


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: handle the deadlines that are due."""


class Stalled(msgspec.Struct, frozen=True):
    """The dispatcher itself was suspended for a while, so every lease gets a full term."""


Input = (
    Submit
    | SubmitNew
    | Rerun
    | RetryFailed
    | Kill
    | Suspend
    | Release
    | Forget
    | Close
    | CloseCluster
    | Drain
    | SetPortions
    | Join
    | JoinExecutor
    | JoinAttempt
    | JoinCall
    | AttemptObserved
    | LinkClosed
    | WorkerGone
    | Renew
    | Started
    | Finished
    | Spawn
    | AttemptProgress
    | Attach
    | Define
    | Undefine
    | SubmitCalls
    | WatchTasks
    | CancelTasks
    | SlotOpening
    | SlotJoined
    | SlotGone
    | CallsEnded
    | CallsReturned
    | Waiting
    | Resumed
    | Yielded
    | Tick
    | Stalled
)
