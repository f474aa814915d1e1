"""All messages of the channel, as tagged array-like structs whose fields are only ever appended.

A frame is a u32 big-endian length (at most `MAX_FRAME_BYTES`) and a msgpack array `[tag, field,
…]`. A peer sends its Hello first; the dispatcher responds with `Welcome` or `Attached`, or with
`Refused`.

There are six kinds of peers: agents (`Hello`) and their slots (`SlotHello`), drivers
(`DriverHello`), the sidecar or call process of an attempt in a Pod of its own (`AttemptHello`), and
executor processes (`Hello` with role `executor`), which hold a lease as agents do. Drivers, slots
and call processes are *submitters*: they define templates, submit calls in batches, and are pushed
the results. `Submit` is acknowledged by `Accepted` once its calls are on disk; until then the
submitter keeps the calls, and sends them again after a reconnect.

Reports (`Started`, `Finished`, `CallsEnded`, `SlotGone`) carry a `serial` that rises by one within
a session. The dispatcher acknowledges a report (`Acknowledged`) once it is in the journal on disk;
until then the peer keeps it, and sends it again after a reconnect. Requests (`Spawn`, `GetTask`,
`GetVariables`) carry a serial, too, and get one `Response` with that serial each. Slots number
requests and reports separately, other peers in one sequence. A repeated `Spawn` (same parent, run,
and ordinal or key) changes nothing.
"""

from enum import IntEnum

import msgspec

from kilnwork.api import attempts, calls, task
from kilnwork.kit import digests

VERSION = 1
MAX_FRAME_BYTES = 1 << 20


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """Base class of all messages."""


class Running(_Message, frozen=True):
    """An attempt that a reconnecting worker still runs, or whose reports are not acknowledged
    yet.
    """

    ref: attempts.AttemptRef


class Hello(_Message, frozen=True, tag="hello"):
    """First frame of a worker's agent or of an executor process.

    `session`: 16 bytes, new for each process; if it is a UUIDv7, it also tells when the process
    started, by the clock of its machine. `pod_uid` distinguishes Pods of the same name. A new
    session of the same `pod_uid` proves that all processes of the old session are gone: the
    container runtime ends a container's processes before it starts the next container. `epoch`: the
    highest epoch that the peer has seen, 0 at first. `role`: `worker` or `executor`. For an
    executor, `cluster` is the queue (`api.task.executor_queue`), `namespace` is empty, and `labels`
    name what it can reach.
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
    """The agent announces that it is about to fork the slot `slot` (16 bytes).

    `digest`: SHA-256 of the slot's secret. The message is sent before the slot can connect. In a
    Hello, a list of `SlotOpening` names the living slots.
    """

    slot: bytes
    digest: bytes


class DriverHello(_Message, frozen=True, tag="driver"):
    """First frame of a driver.

    `session`: 16 random bytes, new for each session that a user opens.
    """

    version: int
    session: bytes
    credential: str
    namespace: str
    epoch: attempts.Count


class SlotHello(_Message, frozen=True, tag="slot"):
    """First frame of a slot.

    `running`: all attempts that the slot holds: first those that run (bottom of the stack first),
    then those that are queued, and those that have ended but are not acknowledged.
    """

    version: int
    slot: bytes
    credential: str
    epoch: attempts.Count
    running: tuple[attempts.AttemptRef, ...]


class AttemptHello(_Message, frozen=True, tag="attempt"):
    """First frame of the sidecar, or of the call process, of an attempt in a Pod of its own.

    The response to a sidecar is `Welcome`, then `Run` if the task has inputs. `credential`: a token
    that Kubernetes has bound to Pod `pod` of `namespace`. `runs_call`: the sender is the process
    that runs the attempt's call. Then the response is `Attached` and `Calls`, and the peer acts as
    a slot does, for one call: it submits, and reports `CallsEnded`.
    """

    version: int
    ref: attempts.AttemptRef
    credential: str
    namespace: str
    pod: str
    epoch: attempts.Count
    runs_call: bool = False


class Attached(_Message, frozen=True, tag="attached"):
    """The dispatcher accepts a driver, slot or call process.

    The peer then defines its templates again, submits again the calls that are not accepted (as
    `again`), watches again the tasks that it waits for, and sends again the reports that are not
    acknowledged. `unknown`: attempts that the peer must drop without a report. `blobs`: directory
    of the namespace's blobs. `namespace`, `cluster`: for a slot, those of its worker; for a driver,
    its namespace and the default cluster.
    """

    epoch: attempts.Count
    unknown: tuple[attempts.AttemptRef, ...]
    blobs: str
    namespace: str
    cluster: str


class Verdict(IntEnum):
    """The dispatcher's verdict on an attempt of a worker that has reconnected: keep it or end
    it.
    """

    KEEP = 1
    STOP = 2
    UNKNOWN = 3


class Decision(_Message, frozen=True):
    """The verdict on one attempt of `Hello.running`.

    STOP and UNKNOWN mean to end the attempt without a report.
    """

    ref: attempts.AttemptRef
    verdict: Verdict
    log_offset: int


class Welcome(_Message, frozen=True, tag="welcome"):
    """The dispatcher accepts a worker, an executor process, or the sidecar of an attempt.

    The lease lasts `lease_s` from the time at which the worker *sent* its Hello or its newest
    renewal.
    """

    epoch: attempts.Count
    lease_s: float
    renew_s: float
    decisions: tuple[Decision, ...]


LEAVING = "Leaving"
"""`Refused.reason` when the dispatcher stops and no other dispatcher will follow soon, so that
peers need not wait for one.
"""


class Refused(_Message, frozen=True, tag="refused"):
    """The dispatcher refuses the link.

    `retry`: whether the peer should try again later.
    """

    reason: str
    message: str
    retry: bool


class Renew(_Message, frozen=True, tag="renew"):
    """A worker renews its lease. The response is `Renewed` with the same number."""

    number: attempts.Count


class Renewed(_Message, frozen=True, tag="renewed"):
    """The dispatcher extends the lease from the time at which the worker sent `Renew(number)`.

    The worker measures that time by its monotonic clock.
    """

    number: attempts.Count


class Run(_Message, frozen=True, tag="run"):
    """The dispatcher tells a worker to run an attempt.

    `inputs`: a JSON object by input name; None if the task has no inputs. `callback`: URL at which
    the manager accepts the attempt's result, if the task's spec asks for such a URL. `handover`:
    the `Observed.handover` of an earlier attempt that was lost.
    """

    ref: attempts.AttemptRef
    namespace: str
    name: str
    spec: task.TaskSpec
    inputs: bytes | None
    callback: str = ""
    handover: bytes = b""


class Stop(_Message, frozen=True, tag="stop"):
    """The dispatcher tells a worker to end an attempt with every process that it started.

    The worker sends SIGTERM and, after `grace_s` seconds, SIGKILL. It then reports `Finished`, with
    proof if no process is left.
    """

    ref: attempts.AttemptRef
    grace_s: float
    reason: str


class Started(_Message, frozen=True, tag="started"):
    """A worker reports that it has started the command of an attempt, or a slot that it has started
    a call.

    A slot reports only the starts of calls that do not end soon. `at`: wall clock of the sender, in
    seconds.
    """

    serial: attempts.Count
    ref: attempts.AttemptRef
    at: attempts.Seconds


class Finished(_Message, frozen=True, tag="finished"):
    """A worker reports that an attempt has ended; all `Log` messages of the attempt were sent
    before.

    `callback`: digest of the `Callback` that ended the attempt; b"" if no callback did.
    """

    serial: attempts.Count
    ref: attempts.AttemptRef
    outcome: attempts.Outcome
    callback: bytes = b""


class Observed(_Message, frozen=True, tag="seen"):
    """An executor's observation of an attempt that has not ended; sent again on each new link.

    `parked`: the attempt waits for something outside the executor, and its slot is free for other
    attempts. `handover`: data with which the executor can continue in the next attempt if this
    attempt is lost; the dispatcher stores it.
    """

    ref: attempts.AttemptRef
    reason: attempts.Label
    message: str = ""
    parked: bool = False
    handover: bytes = b""


class Callback(_Message, frozen=True, tag="callback"):
    """The result of an attempt, as a client sent it to the attempt's callback URL."""

    ref: attempts.AttemptRef
    media_type: str
    body: bytes

    def digest(self) -> bytes:
        """Return a digest that distinguishes this callback from others of the same attempt."""
        return digests.sha256_of([self.media_type.encode(), b"\0", self.body])


# Messages between agent and dispatcher, about attempts in ephemeral containers of the worker's Pod.


class StartContainer(_Message, frozen=True, tag="startcontainer"):
    """A worker asks for a container, added to its own Pod, that runs the command of an attempt.

    The worker has the attempt's files. It sends the request again on each new link until the end of
    the container is known. `environment`: variables of the container besides the Task's own `env`.
    """

    ref: attempts.AttemptRef
    environment: tuple[tuple[str, str], ...]


class StopContainer(_Message, frozen=True, tag="stopcontainer"):
    """A worker asks for the end of an attempt's container, or that it is not created at all.

    The worker itself ends the processes of the container.
    """

    ref: attempts.AttemptRef
    grace_s: float
    reason: str


class ContainerSeen(_Message, frozen=True, tag="containerseen"):
    """The status of an attempt's container, as Kubernetes reports it.

    `container`: id of the container. `started`: when it started, by the wall clock of its node.
    `outcome`: the outcome of the container, without the task's result; None while it has not ended.
    """

    ref: attempts.AttemptRef
    container: str
    started: attempts.Seconds | None
    outcome: attempts.Outcome | None


class KillContainer(_Message, frozen=True, tag="killcontainer"):
    """The dispatcher tells a worker to send SIGKILL to a container whose attempt is settled.

    The container is in the worker's Pod.
    """

    ref: attempts.AttemptRef
    container: str


class Acknowledged(_Message, frozen=True, tag="acknowledged"):
    """The dispatcher reports that all reports up to and including `serial` are on disk."""

    serial: attempts.Count


class Log(_Message, frozen=True, tag="log"):
    """Output of an attempt, beginning at byte `offset` of its whole output.

    stdout and stderr are counted together.
    """

    ref: attempts.AttemptRef
    offset: attempts.Count
    data: bytes


class LogKept(_Message, frozen=True, tag="logkept"):
    """The dispatcher has stored the output of an attempt below `offset`: it need not be sent
    again.
    """

    ref: attempts.AttemptRef
    offset: attempts.Count


class Progress(_Message, frozen=True, tag="progress"):
    """The progress that a task reports. It is not durable; a later report replaces it."""

    ref: attempts.AttemptRef
    fraction: float | None
    message: str


class Spawn(_Message, frozen=True, tag="spawn"):
    """A running attempt asks for a child.

    The attempt is the parent, whichever process sends the message. A child is identified by `key`,
    or as the `ordinal`-th (from 1) child without a key that the parent's run asked for, so that a
    repeated attempt finds it again. Its namespace is the parent's, and so is its cluster unless the
    spec names one. `name`: the value of TASK_NAME in the child; by default its id.
    """

    serial: attempts.Count
    parent: attempts.AttemptRef
    ordinal: attempts.Count
    key: str | None
    name: str | None
    spec: task.TaskSpec
    inputs: bytes | None


class GetTask(_Message, frozen=True, tag="ask"):
    """Ask for the state of a task.

    The response comes when the state is final, or after `wait_s`.
    """

    serial: attempts.Count
    parent: attempts.AttemptRef
    task: attempts.Id
    wait_s: float


class GetVariables(_Message, frozen=True, tag="askvariables"):
    """Ask for the values of an attempt's variables that its spec takes from Secrets and ConfigMaps.

    The response is 200 with a JSON object by variable name, or 404 with `message` if a value is
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


# Messages between agent and dispatcher, about slots.


class OpenSlot(_Message, frozen=True, tag="openslot"):
    """The dispatcher tells an agent to fork a slot with this name.

    The response is `SlotOpening`, or `SlotGone` if the agent cannot fork it.
    """

    slot: bytes


class KillSlot(_Message, frozen=True, tag="killslot"):
    """The dispatcher tells an agent to send SIGKILL at once to a slot and every process that it
    started.

    The response is `SlotGone`. A slot that is ended because it is no longer needed is idle when
    this message is sent.
    """

    slot: bytes


class SlotGone(_Message, frozen=True, tag="slotgone"):
    """An agent reports that the process of a slot has ended.

    `running`: the attempt on top of the slot's stack, according to the shared page. `code`: exit
    code as a shell reports it (128 + N for signal N); None if the process never started. `asked`:
    the dispatcher ordered the kill. `proof`: no process of the slot is left. `reason`: why the
    agent ended the slot without an order (`WorkerLost`: the lease ended; `WorkerStopping`;
    `OutOfMemory`, also if the kernel killed the slot), else empty.
    """

    serial: attempts.Count
    slot: bytes
    running: attempts.AttemptRef | None
    code: int | None
    asked: bool
    message: str
    proof: bool
    reason: attempts.Label = ""


# Messages between submitters (drivers, and slots for the tasks that they run) and dispatcher.


class Template(_Message, frozen=True, tag="template"):
    """The task spec that many calls share, with the number by which calls refer to it.

    The number is valid on this link. In both directions, the template is sent before the first call
    that uses it.
    """

    number: attempts.Count
    spec: task.TaskSpec


class Forget(_Message, frozen=True, tag="forget"):
    """Forget the templates with these numbers, which no later call uses.

    A template that is needed again is sent again first.
    """

    numbers: tuple[attempts.Count, ...]


class Submit(_Message, frozen=True, tag="submit"):
    """A submitter asks the dispatcher to run these calls.

    `again`: the calls were sent before, on an earlier link, which may have lost them.
    """

    items: tuple[calls.CallItem, ...]
    again: bool = False


class Accepted(_Message, frozen=True, tag="accepted"):
    """All submitted calls up to `number` are on disk.

    The dispatcher withholds this message while the queue is too long, as back-pressure.
    """

    number: attempts.Count


class FoundCall(_Message, frozen=True, tag="foundcall"):
    """The submitted call `number` already exists as `task`.

    The task has the same key, or an earlier attempt of the same parent submitted it.
    """

    number: attempts.Count
    task: attempts.Id


class Results(_Message, frozen=True, tag="results"):
    """The dispatcher sends a submitter the results of calls that it has submitted or watches."""

    items: tuple[calls.CallResult, ...]


class Streamed(_Message, frozen=True, tag="streamed"):
    """The `index`-th value (from 0) of a generator, passed on to the submitter.

    A repeated attempt yields the value again.
    """

    number: attempts.Count
    index: attempts.Count
    payload: attempts.Payload


class Watch(_Message, frozen=True, tag="watch"):
    """Ask for the results of these tasks, each under a number, as soon as they are final."""

    items: tuple[calls.Watched, ...]


class Cancel(_Message, frozen=True, tag="cancel"):
    """Kill these tasks and, unless `recursive` is False, all tasks that they have spawned."""

    tasks: tuple[attempts.Id, ...]
    recursive: bool = True


class Retry(_Message, frozen=True, tag="retry"):
    """Start a finished task again; the response is `Retried`.

    After the response, results under `number` are those of the new run. `failed`: run only the
    failed tasks again that are connected to this task, and reuse the results of those that
    succeeded. Otherwise run the task alone from its beginning; `force`: even if it has succeeded.
    `started`: the task may have been started again already, by an earlier copy of this message or
    along with another task. Then nothing is done if the task has not finished.
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

    The fields are those of `dispatch.model.Pruning`. `dry_run`: only count the tasks.
    """

    number: attempts.Count
    older_s: float
    keep: attempts.Count | None = None
    free_bytes: attempts.Count | None = None
    keyed: bool = False
    dry_run: bool = False


class Pruned(_Message, frozen=True, tag="pruned"):
    """The number of tasks that the Prune `number` has forgotten, or the reason why it was refused.

    Sent once the deletion is on disk.
    """

    number: attempts.Count
    tasks: int = 0
    size_bytes: int = 0
    refusal: str = ""


# Messages between slot and dispatcher.


class Calls(_Message, frozen=True, tag="calls"):
    """The dispatcher tells a slot to run these calls in this order.

    A call that is `in_place` runs at once, on top of the call that waits for it.
    """

    runs: tuple[calls.CallRun, ...]


class TakeBack(_Message, frozen=True, tag="takeback"):
    """The dispatcher tells a slot to return up to `count` attempts that have not started, newest
    first.
    """

    count: int


class Returned(_Message, frozen=True, tag="returned"):
    """Attempts that a slot returns: it has not started them and never will."""

    refs: tuple[attempts.AttemptRef, ...]


class StopCall(_Message, frozen=True, tag="stopcall"):
    """The dispatcher tells a slot to return an attempt or, if it has started, to raise Cancelled in
    it.

    If the call does not end in time, the agent sends SIGKILL.
    """

    ref: attempts.AttemptRef
    reason: str


class CallsEnded(_Message, frozen=True, tag="done"):
    """A slot reports that attempts have ended; it keeps the report until `Acknowledged(serial)`."""

    serial: attempts.Count
    ends: tuple[calls.CallEnd, ...]


class Waiting(_Message, frozen=True, tag="waiting"):
    """An attempt waits for these tasks and releases its slot.

    `in_place`: the slot could run these tasks on top of the attempt. `first`: the attempt resumes
    when any of the tasks has ended, rather than all. `more`: the attempt waits for other tasks as
    well, so it may go on waiting when these tasks have ended.
    """

    ref: attempts.AttemptRef
    tasks: tuple[attempts.Id, ...]
    in_place: bool
    first: bool = False
    more: bool = False


class Resumed(_Message, frozen=True, tag="resumed"):
    """An attempt that waited resumes and takes its slot again."""

    ref: attempts.AttemptRef


class Yielded(_Message, frozen=True, tag="yielded"):
    """A generator in a slot has yielded its `index`-th value, from 0."""

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
"""The messages of a sidecar or call process. Both send AttemptHello and Progress; only sidecars
send Renew, Spawn and GetTask; only call processes send the others.
"""
AnyHello = Hello | DriverHello | SlotHello | AttemptHello
FromPeer = FromWorker | FromDriver | FromSlot | FromAttempt
"""Any message that a dispatcher may read; the first frame of a link decides which of them its peer
may send.
"""
