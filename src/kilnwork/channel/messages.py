"""Every message of the channel, as tagged array-like structs whose fields are only ever appended.

A frame is a u32 big-endian length (at most `MAX_FRAME_BYTES`) and a msgpack array
`[tag, field, …]`. A peer sends `Hello` first; the dispatcher answers `Welcome` or `Refused`.

Reports (`Started`, `Finished`) carry a `serial` that rises by one per session; the peer keeps each
until the dispatcher has acknowledged it (`Acknowledged`), which happens after the journal has it on
disk, and sends unacknowledged ones again after a reconnect. Requests (`Spawn`, `Ask`) carry a
serial of the same sequence and get one `Answer`; a repeated `Spawn` (same parent, run and ordinal
or key) changes nothing.
"""

from enum import IntEnum

import msgspec

from kilnwork.api import attempts, task
from kilnwork.kit import ids

VERSION = 1
MAX_FRAME_BYTES = 1 << 20


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


class Running(_Message, frozen=True):
    """One attempt a reconnecting worker still runs or has unacknowledged reports of."""

    ref: attempts.AttemptRef


class Hello(_Message, frozen=True, tag="hello"):
    """First frame of a worker. `session`: 16 random bytes, one per process life.

    `pod_uid` tells containers of one Pod apart from another Pod of the same name. A new session of
    the same `pod_uid` proves that everything the old session ran is gone: the container runtime
    ends a container's processes before it starts the next. `epoch`: highest seen, 0 at first.
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
    epoch: int
    running: tuple[Running, ...]


class Verdict(IntEnum):
    """What a worker does with an attempt after a reconnect."""

    KEEP = 1
    STOP = 2
    UNKNOWN = 3


class Decision(_Message, frozen=True):
    """The word on one attempt of `Hello.running`. STOP and UNKNOWN: end it, without a report."""

    ref: attempts.AttemptRef
    verdict: Verdict
    log_offset: int


class Welcome(_Message, frozen=True, tag="welcome"):
    """The link stands. The lease lasts `lease_s` from the moment the worker *sent* its renewal."""

    epoch: int
    lease_s: float
    renew_s: float
    decisions: tuple[Decision, ...]


class Refused(_Message, frozen=True, tag="refused"):
    """The link does not stand; `retry` says whether to try again later."""

    reason: str
    message: str
    retry: bool


class Renew(_Message, frozen=True, tag="renew"):
    """The worker is alive; answered by `Renewed` with the same number."""

    number: int


class Renewed(_Message, frozen=True, tag="renewed"):
    """The lease counts from when `Renew(number)` was sent, on the worker's monotonic clock."""

    number: int


class Run(_Message, frozen=True, tag="run"):
    """Run this attempt. `inputs`: a JSON object by input name, None when the task has none."""

    ref: attempts.AttemptRef
    namespace: str
    name: str
    spec: task.TaskSpec
    inputs: bytes | None


class Stop(_Message, frozen=True, tag="stop"):
    """SIGTERM, `grace_s`, SIGKILL to everything the attempt started; then `Finished` with proof."""

    ref: attempts.AttemptRef
    grace_s: float
    reason: str


class Started(_Message, frozen=True, tag="started"):
    """The command was executed. `at`: wall clock of the worker, seconds."""

    serial: int
    ref: attempts.AttemptRef
    at: float


class Finished(_Message, frozen=True, tag="finished"):
    """The attempt is over; all its log frames were sent before this one."""

    serial: int
    ref: attempts.AttemptRef
    outcome: attempts.Outcome


class Acknowledged(_Message, frozen=True, tag="acknowledged"):
    """Reports up to and including `serial` are on disk."""

    serial: int


class Log(_Message, frozen=True, tag="log"):
    """Output of an attempt: `data` begins at byte `offset` of all it has printed (both streams)."""

    ref: attempts.AttemptRef
    offset: int
    data: bytes


class LogKept(_Message, frozen=True, tag="logkept"):
    """Output below `offset` need not be sent again."""

    ref: attempts.AttemptRef
    offset: int


class Progress(_Message, frozen=True, tag="progress"):
    """What a task says of itself; not durable, the last one counts."""

    ref: attempts.AttemptRef
    fraction: float | None
    message: str


class Spawn(_Message, frozen=True, tag="spawn"):
    """A running attempt asks for a child. The parent is whoever holds the attempt's socket.

    A child is known by `key`, else by being the `ordinal`-th (from 1) unkeyed child that the
    parent's run asked for, so that a repeated attempt finds it again. Namespace and, unless the
    spec names one, cluster are the parent's; `name` is what it sees as TASK_NAME, default its id.
    """

    serial: int
    parent: attempts.AttemptRef
    ordinal: int
    key: str | None
    name: str | None
    spec: task.TaskSpec
    inputs: bytes | None


class Ask(_Message, frozen=True, tag="ask"):
    """The state of a task, answered when it is final or after `wait_s` seconds."""

    serial: int
    parent: attempts.AttemptRef
    task: ids.TaskId
    wait_s: float


class Answer(_Message, frozen=True, tag="answer"):
    """Answer to `Spawn` or `Ask`: an HTTP status and a JSON body, passed on as they are."""

    serial: int
    status: int
    body: bytes


FromWorker = Hello | Renew | Started | Finished | Log | Progress | Spawn | Ask
ToWorker = Welcome | Refused | Renewed | Run | Stop | Acknowledged | LogKept | Answer
