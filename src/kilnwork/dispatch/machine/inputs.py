"""Inputs of the machine: one frozen value for each thing that can happen.

Made by the hub from frames, calls and timers. A *link* is a number that the hub gave one connection
of a worker; numbers are never used twice.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.kit import ids


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Now, on both clocks, seconds: `wall` for records, `mono` for deadlines."""

    wall: float
    mono: float


class Past(msgspec.Struct, frozen=True):
    """The newest run that the journal has of a task which is not in memory."""

    run: int
    state: api_task.State


class Submit(msgspec.Struct, frozen=True):
    """Run a task; `past` is what the journal knows of it. `force`: even after a success.
    `earlier`: children that the run goes on with."""

    submission: model.Submission
    past: Past | None = None
    force: bool = False
    earlier: "Earlier | None" = None


class SubmitNew(msgspec.Struct, frozen=True):
    """Run tasks that neither memory nor the journal knows, each once, and none of them too large
    (`Machine.refusal`)."""

    submissions: Sequence[model.Submission]


class Earlier(msgspec.Struct, frozen=True, gc=False):
    """The children of an earlier run, for a run that goes on with them: how many there are in all
    and how they ended, and the ids of those that have not, as far as the journal knows."""

    run: int
    total: int
    succeeded: int
    failed: int
    unfinished: tuple[ids.TaskId, ...] = ()


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """Start a spawned task again whose run before `run` is over; all else is unchanged.

    `arguments` is None for a command. `values`: how those ended of `needs` that have. `key`: by
    which its driver finds it, or its parent's run if `of_family`. `earlier`: the children that
    the run goes on with; None: it makes its own. `of_family`: it is one of the children of
    `parent`, whose run is in memory. `digest`: of a command that is a child.
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
    """Run again what failed: in order, each after what it needs and after its parent. One that
    has been started again meanwhile is left as it is."""

    reruns: Sequence[Rerun]


class Kill(msgspec.Struct, frozen=True):
    """End a task and, recursively, its unfinished children."""

    task: ids.TaskId
    reason: str
    message: str = ""


class Suspend(msgspec.Struct, frozen=True):
    """Suspend a task, or resume it; an attempt that runs goes on."""

    task: ids.TaskId
    suspended: bool


class Release(msgspec.Struct, frozen=True):
    """The objects of these tasks are gone, and their runs are over: no controller follows them."""

    tasks: tuple[ids.TaskId, ...]


class Forget(msgspec.Struct, frozen=True):
    """These tasks are over, and need not be kept any more, nor need their end be written. One that
    is not over stays."""

    tasks: tuple[ids.TaskId, ...]


class Close(msgspec.Struct, frozen=True):
    """The server stops in order: nothing more starts, and what is lost from now on is excused."""


class CloseCluster(msgspec.Struct, frozen=True):
    """A TaskCluster was deleted: its unfinished tasks fail.

    `running`: False spares those that a worker has, and who waits for the end of one of them.
    """

    namespace: str
    cluster: str
    running: bool = True


class Drain(msgspec.Struct, frozen=True):
    """The workers in these Pods of a cluster, and no others, get nothing new: they are to go."""

    namespace: str
    cluster: str
    pods: frozenset[str]


class SetPortions(msgspec.Struct, frozen=True):
    """Which portions of a SyncSet's data nodes hold, where workers of a cluster are."""

    namespace: str
    cluster: str
    portions: Mapping[str, frozenset[int]]


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, or a process of an executor, was authenticated. `running`: what its Hello says it
    still has."""

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
    """Slots of this worker that live."""
    labels: Mapping[str, str] = {}
    """Of a process of an executor."""


class JoinExecutor(msgspec.Struct, frozen=True):
    """An executor of this process takes attempts from now on, `capacity` at once."""

    link: int
    executor: str
    capacity: int


class JoinAttempt(msgspec.Struct, frozen=True):
    """The sidecar of an attempt of an executor is connected: it speaks for that attempt alone."""

    link: int
    ref: attempts.AttemptRef


class JoinCall(msgspec.Struct, frozen=True):
    """The process that runs the call of an attempt of an executor is connected: it submits for that
    attempt and reports its end."""

    link: int
    ref: attempts.AttemptRef
    namespace: str


class Observed(msgspec.Struct, frozen=True):
    """An executor sees why an attempt is where it is; sent again whenever that changes."""

    link: int
    ref: attempts.AttemptRef
    observed: model.Observed
    parked: bool = False
    """It waits for something elsewhere, and takes no slot."""
    handover: bytes = b""
    """What the next attempt needs to go on with that, if this one is lost."""


class LinkClosed(msgspec.Struct, frozen=True):
    """A connection ended; the worker may come back until its lease ends."""

    link: int


class WorkerGone(msgspec.Struct, frozen=True):
    """A Pod is gone, and with it everything that ran in it: proof. `why`: if that is known.

    `ended`: it is not, but its container ended at that moment (wall clock of its machine) and has
    not begun again: proof for those that began before and are not connected. None: the Pod is gone.
    """

    pod_uid: str
    why: str = ""
    ended: float | None = None


class Renew(msgspec.Struct, frozen=True):
    """A worker is alive."""

    link: int


class Started(msgspec.Struct, frozen=True):
    """A worker executed the command of an attempt."""

    link: int
    serial: int
    ref: attempts.AttemptRef
    at: float


class Finished(msgspec.Struct, frozen=True):
    """A worker says that an attempt is over."""

    link: int
    serial: int
    ref: attempts.AttemptRef
    outcome: attempts.Outcome


class StoredChild(msgspec.Struct, frozen=True):
    """A child that the journal has and memory has not: it is final.

    `requested_by`: the newest attempt of its parent's run that requested it; 0: none, since it is
    a child of an earlier run which the parent's goes on with. `run`: its newest one, which ended
    as `state` says; `earlier`: the children of that, if it may be followed by another.
    """

    task: ids.TaskId
    digest: bytes
    requested_by: int
    state: api_task.State = api_task.State.SUCCESS
    run: int = 1
    earlier: Earlier | None = None

    @property
    def to_be_retried(self) -> bool:
        """Return whether it failed under an earlier run of its parent and runs again now."""
        return to_be_retried(self.state, self.requested_by)


def to_be_retried(state: api_task.State, requested_by: int) -> bool:
    """Return whether a child failed that no attempt of its parent's run has requested: an earlier
    run has, and this one goes on with what succeeded of it."""
    return requested_by == 0 and state.final and state is not api_task.State.SUCCESS


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt requests a child.

    `task`: the id that a new child would get. `child_key` is `=KEY`, or `#N` for the N-th unkeyed
    child of the attempt. `digest`: of spec and inputs as requested, in canonical form. `warning`:
    what the response says besides.
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


class Progress(msgspec.Struct, frozen=True):
    """A task says how far it is."""

    link: int
    ref: attempts.AttemptRef
    progress: model.Progress


class Attach(msgspec.Struct, frozen=True):
    """A driver was authenticated; or the same session is back on another link."""

    link: int
    session: bytes
    namespace: str


class Define(msgspec.Struct, frozen=True):
    """A submitter gives a template a number of its link."""

    link: int
    number: int
    spec: api_task.TaskSpec


class Undefine(msgspec.Struct, frozen=True):
    """A submitter will not name these templates any more."""

    link: int
    numbers: tuple[int, ...]


class Lookups(msgspec.Struct):
    """Names what is looked up in the journal before an input is applied; by the call's number.

    `calls`: is there a task of that id; `children`: parent, its run and a child key; `keys`: a
    driver's key (as a child key). `values`: tasks whose end is needed. `cached`: is there a result
    of that key, and how old it may be, in seconds. Only tasks of `namespace` count.
    """

    namespace: str
    calls: list[tuple[int, ids.TaskId]]
    children: list[tuple[int, ids.TaskId, int, str]]
    keys: list[tuple[int, str]]
    values: set[ids.TaskId]
    cached: list[tuple[int, bytes, float]] = []


class StoredCall(msgspec.Struct, frozen=True):
    """What the journal has of a call which memory has not: it is final.

    `arguments` (None: not a call) and `spec` show whether it is the same call. `requested_by`,
    `run`, `earlier`: as of `StoredChild`. `source`: whose turn that run took in the queue.
    """

    value: calls.Value
    arguments: attempts.Payload | None
    spec: api_task.TaskSpec
    requested_by: int
    run: int = 1
    earlier: Earlier | None = None
    source: bytes = b""


Values = Mapping[ids.TaskId, calls.Value]
"""How tasks ended, by task."""


class CachedResult(msgspec.Struct, frozen=True):
    """A success that will do for a call. `finished`: when it ended, wall clock, seconds."""

    task: ids.TaskId
    payload: attempts.Payload | None
    finished: float


class SubmitCalls(msgspec.Struct, frozen=True):
    """A submitter wants these calls run.

    `known`: by number of the item, calls that the journal has and memory has not (see
    `Machine.lookups`). `values`: by task, how tasks ended that the items need. `cached`: by number
    of the item, results that will do.
    """

    link: int
    items: tuple[calls.CallItem, ...]
    known: Mapping[int, StoredCall] = {}
    values: Mapping[ids.TaskId, calls.Value] = {}
    cached: Mapping[int, CachedResult] = {}


class WatchTasks(msgspec.Struct, frozen=True):
    """A submitter wants results. `values`: of tasks that are not in memory."""

    link: int
    items: tuple[calls.Watched, ...]
    values: Mapping[ids.TaskId, calls.Value] = {}


class CancelTasks(msgspec.Struct, frozen=True):
    """A submitter wants tasks killed."""

    link: int
    tasks: tuple[ids.TaskId, ...]
    recursive: bool = True


class SlotOpening(msgspec.Struct, frozen=True):
    """An agent is about to fork a slot."""

    link: int
    slot: bytes


class SlotJoined(msgspec.Struct, frozen=True):
    """A slot said Hello with the secret that its agent gave it; `running`: all that it has."""

    link: int
    slot: bytes
    running: tuple[attempts.AttemptRef, ...] = ()


class SlotGone(msgspec.Struct, frozen=True):
    """An agent says that a slot's process is over; see `messages.SlotGone`."""

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
    """A slot says that attempts are over. `values`: of delegates that are not in memory."""

    link: int
    serial: int
    ends: tuple[calls.CallEnd, ...]
    values: Mapping[ids.TaskId, calls.Value] = {}


class CallsReturned(msgspec.Struct, frozen=True):
    """A slot gives back attempts that it has not started."""

    link: int
    refs: tuple[attempts.AttemptRef, ...]


class Waiting(msgspec.Struct, frozen=True):
    """An attempt waits for other tasks, and its slot is free for others meanwhile.

    `first`: it goes on when any of them is over, not only when all are. `more`: it waits for others
    besides, so it is not known when it goes on.
    """

    link: int
    ref: attempts.AttemptRef
    tasks: tuple[ids.TaskId, ...]
    in_place: bool
    first: bool = False
    more: bool = False


class Resumed(msgspec.Struct, frozen=True):
    """An attempt that waited goes on."""

    link: int
    ref: attempts.AttemptRef


class Yielded(msgspec.Struct, frozen=True):
    """A generator has yielded a value; passed on, not kept."""

    link: int
    ref: attempts.AttemptRef
    index: int
    payload: attempts.Payload


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: what is due now happens now."""


class Stalled(msgspec.Struct, frozen=True):
    """The dispatcher itself was away for a while: every lease gets a full term."""


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
    | Observed
    | LinkClosed
    | WorkerGone
    | Renew
    | Started
    | Finished
    | Spawn
    | Progress
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
