"""Every message of the channel, as tagged array-like structs whose fields are only ever appended.

A frame is a u32 big-endian length (at most `MAX_FRAME_BYTES`) and a msgpack array `[tag, field,
…]`. A peer sends its Hello first; the dispatcher responds with `Welcome` or `Attached`, or with
`Refused`.

There are six kinds of peers: agents (`Hello`) and their slots (`SlotHello`), drivers
(`DriverHello`), the sidecar or call process of an attempt in a Pod of its own (`AttemptHello`), and
executor processes (`Hello` with role `executor`), which hold a lease as agents do. Drivers, slots
and call processes are *submitters*: they define templates, submit calls in batches, and are pushed
the results. `Submit` is acknowledged by `Accepted` once it is on disk; until then the submitter
keeps the items, and sends them again after a reconnect.

Reports (`Started`, `Finished`, `CallsEnded`, `SlotGone`) carry a `serial` that rises by one within
a session. The dispatcher acknowledges a report (`Acknowledged`) once it is in the journal on disk;
until then the peer keeps it, and sends it again after a reconnect. Requests (`Spawn`, `GetTask`,
`GetVariables`) carry a serial of the same sequence and get one `Response` each. A repeated `Spawn`
(same parent, run, and ordinal or key) changes nothing.
"""

from enum import IntEnum

import msgspec

from kilnwork.api import attempts, calls, task
from kilnwork.kit import digests

VERSION = 1
MAX_FRAME_BYTES = 1 << 20


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


class Running(_Message, frozen=True):
    """One attempt that a reconnecting worker still runs, or of which it has unacknowledged
    reports.
    """

    ref: attempts.AttemptRef


class Hello(_Message, frozen=True, tag="hello"):
    """First frame of a worker or executor process.

    `session`: 16 bytes, new for each process; if a UUIDv7, it also tells when the process started,
    by its machine's clock. `pod_uid` distinguishes Pods of the same name. A new session of the same
    `pod_uid` proves that everything of the old session is gone: the container runtime ends a
    container's processes before it starts the next one. `epoch`: the highest seen, 0 at first.
    `role`: `worker` or `executor`. For an executor, `cluster` is the queue
    (`api.task.executor_queue`), `namespace` is empty, and `labels` say what it can reach.
    """

    version: int
    role: str
    session: bytes
    credential: str
    namespace: str
    cluster: str
    worker: str
    pod_uid: str
    node: str
    slots: int
    epoch: attempts.Count
    running: tuple[Running, ...]
    # Fields with a default may be missing: msgspec accepts arrays that end before them.
    processes: tuple["SlotOpening", ...] = ()
    labels: tuple[tuple[attempts.Label, attempts.Label], ...] = ()


class SlotOpening(_Message, frozen=True, tag="slotopening"):
    """The agent is about to fork slot `slot` (16 bytes); `digest`: SHA-256 of its secret.

    Sent before the slot can connect. In a Hello it names the living slots.
    """

    slot: bytes
    digest: bytes


class DriverHello(_Message, frozen=True, tag="driver"):
    """First frame of a driver. `session`: 16 random bytes, new for each session that a user
    opens.
    """

    version: int
    session: bytes
    credential: str
    namespace: str
    epoch: attempts.Count


class SlotHello(_Message, frozen=True, tag="slot"):
    """First frame of a slot.

    `running`: every attempt that it holds: the running ones (bottom of the stack first), the queued
    ones, and those that have ended but are not acknowledged.
    """

    version: int
    slot: bytes
    credential: str
    epoch: attempts.Count
    running: tuple[attempts.AttemptRef, ...]


class AttemptHello(_Message, frozen=True, tag="attempt"):
    """First frame of the sidecar of an attempt. The response is `Welcome`, then `Run` if the task
    has inputs.

    `credential`: a token that Kubernetes has bound to Pod `pod` of `namespace`. `runs_call`: the
    sender is instead the process that runs the attempt's call. Then the response is `Attached` and
    `Calls`, and the peer acts as a slot does, for one call: it submits, and reports `CallsEnded`.
    """

    version: int
    ref: attempts.AttemptRef
    credential: str
    namespace: str
    pod: str
    epoch: attempts.Count
    runs_call: bool = False


class Attached(_Message, frozen=True, tag="attached"):
    """Accepts a driver, slot or call process.

    The peer then defines its templates again, submits again what is not accepted (as `again`),
    watches again what it waits for, and reports again what is not acknowledged. `unknown`: attempts
    that it must drop without a report. `blobs`: directory of the namespace's blobs. `namespace`,
    `cluster`: the slot's; for a driver, its namespace and the default cluster.
    """

    epoch: attempts.Count
    unknown: tuple[attempts.AttemptRef, ...]
    blobs: str
    namespace: str
    cluster: str


class Verdict(IntEnum):
    """What a worker must do with an attempt after a reconnect."""

    KEEP = 1
    STOP = 2
    UNKNOWN = 3


class Decision(_Message, frozen=True):
    """The verdict on one attempt of `Hello.running`. STOP and UNKNOWN: end it without a report."""

    ref: attempts.AttemptRef
    verdict: Verdict
    log_offset: int


class Welcome(_Message, frozen=True, tag="welcome"):
    """Accepts a worker. The lease lasts `lease_s` from the time at which the worker *sent* its
    renewal.
    """

    epoch: attempts.Count
    lease_s: float
    renew_s: float
    decisions: tuple[Decision, ...]


LEAVING = "Leaving"
"""Reason of the last word of a dispatcher that ends for good: its peers need not wait for one."""


class Refused(_Message, frozen=True, tag="refused"):
    """Refuses the link; `retry` says whether to try again later."""

    reason: str
    message: str
    retry: bool


class Renew(_Message, frozen=True, tag="renew"):
    """Renews the lease: the worker is alive. The response is `Renewed` with the same number."""

    number: attempts.Count


class Renewed(_Message, frozen=True, tag="renewed"):
    """Extends the lease, counted from when `Renew(number)` was sent, by the worker's monotonic
    clock.
    """

    number: attempts.Count


class Run(_Message, frozen=True, tag="run"):
    """Run this attempt.

    `inputs`: a JSON object by input name; None if the task has none. `callback`: URL at which the
    manager accepts its result, if its spec asks for one. `handover`: as in `Observed`, of an
    earlier attempt that was lost.
    """

    ref: attempts.AttemptRef
    namespace: str
    name: str
    spec: task.TaskSpec
    inputs: bytes | None
    callback: str = ""
    handover: bytes = b""


class Stop(_Message, frozen=True, tag="stop"):
    """Send SIGTERM to everything the attempt started, SIGKILL after `grace_s`; then `Finished` with
    proof.
    """

    ref: attempts.AttemptRef
    grace_s: float
    reason: str


class Started(_Message, frozen=True, tag="started"):
    """The command was started. `at`: wall clock of the worker, in seconds."""

    serial: attempts.Count
    ref: attempts.AttemptRef
    at: attempts.Seconds


class Finished(_Message, frozen=True, tag="finished"):
    """The attempt has ended; all its `Log` messages were sent before this one.

    `callback`: digest of the `Callback` that says how it ended; b"" if none does.
    """

    serial: attempts.Count
    ref: attempts.AttemptRef
    outcome: attempts.Outcome
    callback: bytes = b""


class Observed(_Message, frozen=True, tag="seen"):
    """What an executor observes of an attempt that has not ended; sent again on each new link.

    `parked`: it waits for something elsewhere, and its slot is free for others. `handover`: what
    the executor of the next attempt needs to continue, should this one be lost; it is stored.
    """

    ref: attempts.AttemptRef
    reason: attempts.Label
    message: str = ""
    parked: bool = False
    handover: bytes = b""


class Callback(_Message, frozen=True, tag="callback"):
    """The result of an attempt, as sent to its callback URL."""

    ref: attempts.AttemptRef
    media_type: str
    body: bytes

    def digest(self) -> bytes:
        """Return a digest that distinguishes this callback from others of the same attempt."""
        return digests.sha256_of([self.media_type.encode(), b"\0", self.body])


# Agent and dispatcher, about attempts in ephemeral containers of the worker's Pod.


class StartContainer(_Message, frozen=True, tag="startcontainer"):
    """Have the command of this attempt run in its own container, added to the Pod of this worker,
    which has the attempt's files. Sent again on each new link until its end is known.

    `environment`: variables of the container besides the Task's own `env`.
    """

    ref: attempts.AttemptRef
    environment: tuple[tuple[str, str], ...]


class StopContainer(_Message, frozen=True, tag="stopcontainer"):
    """End the container, or do not create it if it does not exist yet; the worker ends its
    processes.
    """

    ref: attempts.AttemptRef
    grace_s: float
    reason: str


class ContainerSeen(_Message, frozen=True, tag="containerseen"):
    """The status of an attempt's container, as Kubernetes reports it.

    `container`: its id. `started`: wall clock of its node. `outcome`: how it ended, without the
    result; None while it has not.
    """

    ref: attempts.AttemptRef
    container: str
    started: attempts.Seconds | None
    outcome: attempts.Outcome | None


class KillContainer(_Message, frozen=True, tag="killcontainer"):
    """Send SIGKILL to a container in the worker's Pod whose attempt is settled."""

    ref: attempts.AttemptRef
    container: str


class Acknowledged(_Message, frozen=True, tag="acknowledged"):
    """Reports up to and including `serial` are on disk."""

    serial: attempts.Count


class Log(_Message, frozen=True, tag="log"):
    """Output of an attempt: `data` begins at byte `offset` of all that it has printed (both
    streams).
    """

    ref: attempts.AttemptRef
    offset: attempts.Count
    data: bytes


class LogKept(_Message, frozen=True, tag="logkept"):
    """Output below `offset` need not be sent again."""

    ref: attempts.AttemptRef
    offset: attempts.Count


class Progress(_Message, frozen=True, tag="progress"):
    """The progress that a task reports; not durable, the last report counts."""

    ref: attempts.AttemptRef
    fraction: float | None
    message: str


class Spawn(_Message, frozen=True, tag="spawn"):
    """A running attempt asks for a child. Whichever process sends it, the attempt is the parent.

    A child is identified by `key`, or by being the `ordinal`-th (from 1) child without a key that
    the parent's run asked for, so that a repeated attempt finds it again. Namespace and, unless the
    spec names one, cluster are the parent's. `name` is what it sees as TASK_NAME; by default its
    id.
    """

    serial: attempts.Count
    parent: attempts.AttemptRef
    ordinal: attempts.Count
    key: str | None
    name: str | None
    spec: task.TaskSpec
    inputs: bytes | None


class GetTask(_Message, frozen=True, tag="ask"):
    """Ask for the state of a task; the response comes when it is final, or after `wait_s`
    seconds.
    """

    serial: attempts.Count
    parent: attempts.AttemptRef
    task: attempts.Id
    wait_s: float


class GetVariables(_Message, frozen=True, tag="askvariables"):
    """Ask for the values of an attempt's variables that its spec takes from Secrets and ConfigMaps.

    The response is 200 with a JSON object by variable name, or 404 with `message` if one is
    missing.
    """

    serial: attempts.Count
    ref: attempts.AttemptRef


class Response(_Message, frozen=True, tag="answer"):
    """The response to a request: an HTTP status and a JSON body.

    Responses to `Spawn` and `GetTask` reach the task unchanged. Values of variables are in no other
    message, and are not stored.
    """

    serial: attempts.Count
    status: int
    body: bytes


# Agent and dispatcher, about slots.


class OpenSlot(_Message, frozen=True, tag="openslot"):
    """Fork a slot of that name; the response is `SlotOpening`, or `SlotGone` if that is
    impossible.
    """

    slot: bytes


class KillSlot(_Message, frozen=True, tag="killslot"):
    """Send SIGKILL to the slot and everything that it started, at once; then `SlotGone`.

    A slot that is no longer needed is idle when this is sent.
    """

    slot: bytes


class SlotGone(_Message, frozen=True, tag="slotgone"):
    """The slot's process has ended.

    `running`: the attempt on top of its stack, by the shared page. `code`: as a shell reports it
    (128 + N for signal N); None if it never started. `asked`: the dispatcher ordered the kill.
    `proof`: no process of it is left. `reason`: why the agent ended it on its own (`WorkerLost`:
    the lease ended; `WorkerStopping`), else empty.
    """

    serial: attempts.Count
    slot: bytes
    running: attempts.AttemptRef | None
    code: int | None
    asked: bool
    message: str
    proof: bool
    reason: attempts.Label = ""


# Submitters (drivers, and slots for the tasks that they run) and dispatcher.


class Template(_Message, frozen=True, tag="template"):
    """The task spec that many calls share. Calls refer to it by its number, which is valid on this
    link; it is sent before the first call that uses it, in both directions.
    """

    number: attempts.Count
    spec: task.TaskSpec


class Forget(_Message, frozen=True, tag="forget"):
    """Forget the templates with these numbers: no call uses one before it is sent again."""

    numbers: tuple[attempts.Count, ...]


class Submit(_Message, frozen=True, tag="submit"):
    """Run these calls. `again`: they were sent on an earlier link, which may have lost them."""

    items: tuple[calls.CallItem, ...]
    again: bool = False


class Accepted(_Message, frozen=True, tag="accepted"):
    """All calls up to `number` are on disk. Withheld while the queue is too long, as
    back-pressure.
    """

    number: attempts.Count


class FoundCall(_Message, frozen=True, tag="foundcall"):
    """Call `number` already exists as `task` (same key, or made by an earlier attempt of the
    parent).
    """

    number: attempts.Count
    task: attempts.Id


class Results(_Message, frozen=True, tag="results"):
    """Calls that have ended, as far as this submitter submitted or watches them."""

    items: tuple[calls.CallResult, ...]


class Streamed(_Message, frozen=True, tag="streamed"):
    """A generator has yielded its `index`-th value (from 0); a repeated attempt yields it again."""

    number: attempts.Count
    index: attempts.Count
    payload: attempts.Payload


class Watch(_Message, frozen=True, tag="watch"):
    """Push the results of these tasks under these numbers as soon as they are final."""

    items: tuple[calls.Watched, ...]


class Cancel(_Message, frozen=True, tag="cancel"):
    """Kill these tasks and, unless `recursive` is False, everything that they have spawned."""

    tasks: tuple[attempts.Id, ...]
    recursive: bool = True


class Retry(_Message, frozen=True, tag="retry"):
    """Start a finished task again; the response is `Retried`, after which `number` is that of its
    new run.

    `failed`: run only the failed tasks below and around it again, and reuse what succeeded.
    Otherwise run the task alone from its beginning; `force`: even if it has succeeded. `started`:
    the task has been started again already, by an earlier copy of this message or along with
    another task, if it has not finished.
    """

    number: attempts.Count
    task: attempts.Id
    failed: bool = True
    force: bool = False
    started: bool = False


class Retried(_Message, frozen=True, tag="retried"):
    """The request `number` of a Retry was carried out and is on disk, or was refused."""

    number: attempts.Count
    refusal: str = ""


class Prune(_Message, frozen=True, tag="prune"):
    """Forget finished tasks in the namespace of the driver; the response is `Pruned`.

    The fields are those of `dispatch.model.Pruning`. `dry_run`: only count them.
    """

    number: attempts.Count
    older_s: float
    keep: attempts.Count | None = None
    free_bytes: attempts.Count | None = None
    keyed: bool = False
    dry_run: bool = False


class Pruned(_Message, frozen=True, tag="pruned"):
    """How many tasks the Prune `number` has forgotten, once that is on disk; or why it was
    refused.
    """

    number: attempts.Count
    tasks: int = 0
    size_bytes: int = 0
    refusal: str = ""


# Slot and dispatcher.


class Calls(_Message, frozen=True, tag="calls"):
    """Run these calls in this order; one that is `in_place` at once, on top of the call that waits
    for it.
    """

    runs: tuple[calls.CallRun, ...]


class TakeBack(_Message, frozen=True, tag="takeback"):
    """Return up to `count` attempts that have not started, the newest first."""

    count: int


class Returned(_Message, frozen=True, tag="returned"):
    """These attempts have not started here and never will."""

    refs: tuple[attempts.AttemptRef, ...]


class StopCall(_Message, frozen=True, tag="stopcall"):
    """Return the attempt if it has not started, else raise Cancelled in it. The agent sends
    SIGKILL.
    """

    ref: attempts.AttemptRef
    reason: str


class CallsEnded(_Message, frozen=True, tag="done"):
    """Attempts that have ended; kept by the slot until `Acknowledged(serial)`."""

    serial: attempts.Count
    ends: tuple[calls.CallEnd, ...]


class Waiting(_Message, frozen=True, tag="waiting"):
    """The attempt waits for these tasks and releases its slot.

    `in_place`: the slot could run these tasks on top of it. `first`: it resumes when any of them
    has ended, rather than all. `more`: it waits for others as well, so it may go on waiting when
    these have ended.
    """

    ref: attempts.AttemptRef
    tasks: tuple[attempts.Id, ...]
    in_place: bool
    first: bool = False
    more: bool = False


class Resumed(_Message, frozen=True, tag="resumed"):
    """The attempt resumes and takes its slot again."""

    ref: attempts.AttemptRef


class Yielded(_Message, frozen=True, tag="yielded"):
    """A generator has yielded its `index`-th value, from 0."""

    ref: attempts.AttemptRef
    index: attempts.Count
    payload: attempts.Payload


FromWorker = (
    Hello | Renew | Started | Finished | Log | Progress | Spawn | GetTask | SlotOpening | SlotGone
    | StartContainer | StopContainer | Observed | GetVariables
)  # fmt: skip
ToWorker = (
    Welcome | Refused | Renewed | Run | Stop | Acknowledged | LogKept | Response | OpenSlot
    | KillSlot | ContainerSeen | KillContainer | Callback
)  # fmt: skip
FromDriver = DriverHello | Template | Forget | Submit | Watch | Cancel | Retry | Prune
ToDriver = Attached | Refused | Accepted | FoundCall | Results | Streamed | Retried | Pruned
FromSlot = (
    SlotHello
    | Template
    | Forget
    | Submit
    | Watch
    | Cancel
    | Retry
    | Started
    | CallsEnded
    | Returned
    | Waiting
    | Resumed
    | Yielded
    | Log
    | Progress
    | GetVariables
)
ToSlot = (
    Attached
    | Refused
    | Accepted
    | FoundCall
    | Results
    | Streamed
    | Retried
    | Template
    | Forget
    | Calls
    | TakeBack
    | StopCall
    | Acknowledged
    | Response
)
FromAttempt = (
    AttemptHello
    | Renew
    | Spawn
    | GetTask
    | Template
    | Forget
    | Submit
    | Watch
    | Cancel
    | Retry
    | CallsEnded
    | Yielded
    | Progress
)
"""The first three after the Hello are of sidecars, those after them of calls, the last of both."""
AnyHello = Hello | DriverHello | SlotHello | AttemptHello
FromPeer = FromWorker | FromDriver | FromSlot | FromAttempt
"""Anything that a dispatcher may read; which of it from whom is decided by the first frame."""
