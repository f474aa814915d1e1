"""What the machine keeps in memory: unfinished tasks, workers, clusters, families.

Mutable, slotted, small: a million queued tasks are a million `Task` objects. Changed by the machine
alone; the hub reads them to make views and frames.
"""

from enum import IntEnum
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, task_queue, transitions
from kilnwork.kit import ids

ClusterKey = tuple[str, str]
"""Namespace and name of a TaskCluster."""


class Intent(IntEnum):
    """Why an attempt is being stopped; a higher one replaces a lower one, never the reverse."""

    NONE = 0
    TIMEOUT = 1
    TOTAL_TIMEOUT = 2
    DEADLOCK = 3
    CLUSTER = 4
    KILL = 5


class PastAttempt(NamedTuple):
    """An attempt that is over and did not succeed: a row of the journal's history."""

    task_row: int
    attempt: int
    worker_row: int | None
    reserved: float
    started: float | None
    finished: float
    ending: str
    reason: str
    message: str
    exit_code: int | None


class Family:
    """The children that one run of a task asked for.

    `members`: the unfinished ones (and those whose end is not on disk yet) by child key.
    """

    __slots__ = ("declared", "failed", "members", "parent", "run", "succeeded", "total")

    def __init__(self, parent: ids.TaskId, run: int, *, declared: bool) -> None:
        self.parent = parent
        self.run = run
        self.declared = declared
        self.total = 0
        self.succeeded = 0
        self.failed = 0
        self.members: dict[str, Task] = {}

    def counts(self) -> api_task.ChildCounts:
        """As shown in the parent's status."""
        return api_task.ChildCounts(
            total=self.total,
            running=self.total - self.succeeded - self.failed,
            succeeded=self.succeeded,
            failed=self.failed,
        )


class Template:
    """What many calls share. `row` is its number in the journal and on links to slots.

    One for each namespace and different spec, whoever named it. `seconds`: running mean of how long
    its calls ran, None before the first; short ones are sent ahead.
    """

    __slots__ = (
        "__weakref__", "accept_failures", "cluster", "function", "priority", "row", "seconds",
        "spec", "timed",
    )  # fmt: skip

    def __init__(self, row: int, cluster: "Cluster", spec: api_task.TaskSpec) -> None:
        call, timeouts = spec.call, spec.timeouts
        self.row = row
        self.cluster = cluster
        self.spec = spec
        self.function = "" if call is None else call.function
        self.accept_failures = call is not None and call.accept_failures
        self.priority = spec.priority
        self.timed = timeouts.pending_seconds is not None or timeouts.total_seconds is not None
        self.seconds: float | None = None


class Submitter:
    """A driver's session, or a slot as the place where running tasks submit from.

    `link` is 0 when it is not connected any more: one that comes back is another one. `templates`:
    by number of its link. `source`: whose turn it is that its calls take (fairness).
    """

    __slots__ = ("accepted", "link", "namespace", "session", "slot", "source", "templates")

    def __init__(self, session: bytes, namespace: str, link: int) -> None:
        self.session = session
        self.namespace = namespace
        self.link = link
        self.accepted = 0
        self.source = session
        self.slot: Slot | None = None
        self.templates: dict[int, Template] = {}


class Wait:
    """An attempt in a slot that waits for other tasks. `all_of`: it waits until all these are over,
    and for nothing else.

    Of a wait in place only: `ready`: tasks that the slot could run on top of it, as far as they are
    queued (some may have left the queue since); `wants`: all that it would run if they were, and
    whether it waits for them itself; `left`: how many of these must end before it goes on. Never
    too few: what seems to go on gets nothing to run in place, and takes a seat.
    """

    __slots__ = ("all_of", "left", "ready", "task", "wants")

    def __init__(self, task: "Task") -> None:
        self.task = task
        self.all_of: tuple[ids.TaskId, ...] = ()
        self.ready: dict[ids.TaskId, Task] = {}
        self.wants: dict[ids.TaskId, bool] = {}
        self.left = 1


class Slot:
    """One slot process of a worker. `link` is 0 while it is not connected.

    `held`: tasks whose newest attempt it has, in the order in which they were sent; `stack`: the
    waits of those that have begun and wait for others, bottom first. `opening`: asked for, or said
    to live, and not joined yet. `taken`: it takes a seat, since it is opening or has something that
    does not wait, or waits no longer. `leaving`: we have asked for its end. `asked_back`: it has
    not answered yet which calls it gives back. `terms`: how often it has joined or left. `gone`:
    its agent has said that it is over; settled once its link has been read to the end.
    """

    __slots__ = (
        "asked_back", "gone", "held", "id", "leaving", "link", "opening", "stack", "taken",
        "terms", "worker",
    )  # fmt: skip

    def __init__(self, slot: bytes, worker: "Worker") -> None:
        self.id = slot
        self.worker = worker
        self.link = 0
        self.opening = True
        self.taken = False
        self.leaving = False
        self.asked_back = False
        self.terms = 0
        self.gone: inputs.SlotGone | None = None
        self.held: dict[ids.TaskId, Task] = {}
        self.stack: list[Wait] = []


class Worker:
    """One session of one worker. `link` is 0 while it is not connected.

    `held`: commands whose newest attempt it has; `zombies`: final tasks of which it has not proved
    that nothing is left. `processes`: its slots; `idle`: those that could run something at once;
    `taken`: how many of them take a seat. `unclaimed`: calls that one of its slots had before this
    dispatcher started. `opens_at`: monotonic time before which it is asked for no other slot, since
    the last `misses` could not be opened. `from_before`: its attempts were reserved before this
    dispatcher started, and it has not come back yet. `sparing`: an alarm will end idle slots.
    """

    __slots__ = (
        "cluster", "from_before", "held", "idle", "lease_until", "leaving", "link", "misses",
        "name", "node", "opens_at", "pod_uid", "processes", "row", "session", "slots", "sparing",
        "taken", "unclaimed", "zombies",
    )  # fmt: skip

    def __init__(
        self,
        cluster: "Cluster",
        session: bytes,
        *,
        row: int,
        name: str,
        pod_uid: str,
        node: str,
    ) -> None:
        self.cluster = cluster
        self.session = session
        self.row = row
        self.name = name
        self.pod_uid = pod_uid
        self.node = node
        self.slots = 0
        self.link = 0
        self.lease_until = 0.0
        self.held: dict[ids.TaskId, Task] = {}
        self.zombies: dict[attempts.AttemptRef, Task] = {}
        self.from_before = False
        self.leaving = False
        self.processes: dict[bytes, Slot] = {}
        self.idle: dict[bytes, Slot] = {}
        self.unclaimed: dict[ids.TaskId, Task] = {}
        self.taken = 0
        self.misses = 0
        self.opens_at = 0.0
        self.sparing = False

    @property
    def connected(self) -> bool:
        """What it has may go on, and run in place what it waits for."""
        return self.link != 0 and not self.leaving

    @property
    def draining(self) -> bool:
        """It finishes what it has, and gets nothing new."""
        return self.pod_uid in self.cluster.draining

    @property
    def ready(self) -> bool:
        """It can be given tasks."""
        return self.connected and not self.draining

    @property
    def holding(self) -> int:
        """Attempts that it has: also those that wait without a seat, and those that it has not
        claimed since this dispatcher started. Nothing is lost with a worker that holds none."""
        in_slots = sum(len(slot.held) for slot in self.processes.values())
        return len(self.held) + len(self.unclaimed) + in_slots

    @property
    def busy(self) -> int:
        """Taken seats; may be more than `slots` for a while, when calls that waited go on."""
        return len(self.held) + len(self.zombies) + self.taken


class Cluster:
    """Workers, waiting tasks and unfinished declared tasks of one TaskCluster.

    `openings`: slots of its workers that are to join. `draining`: uids of the Pods whose workers
    are to go, connected or not.
    """

    __slots__ = ("declared", "draining", "key", "openings", "queue", "workers")

    def __init__(self, key: ClusterKey) -> None:
        self.key = key
        self.queue: task_queue.Queue[Task] = task_queue.Queue()
        self.workers: dict[bytes, Worker] = {}
        self.declared: set[Task] = set()
        self.openings = 0
        self.draining: frozenset[str] = frozenset()


class Task(msgspec.Struct, eq=False):
    """The newest run of a task that is not final, or whose end is not on disk yet.

    `row` is its row in the journal; `stored` says whether that row exists there. `worker`, times
    and exit code belong to the newest attempt. `due`: wall time before which the next attempt does
    not start, 0 for none. `place`: its ticket while it is queued, None when it is not.
    `suspended`: no attempt starts; `releases`: how often it was let go, since deadlines that were
    set before do not count any more. `pending_since`: wall time from which its timeouts count.

    Of calls only: `template`, `arguments`; `needs`: tasks whose results it takes, `unmet`: how many
    of them are not final, `values`: of those that are, as far as they go along, of `values_bytes`
    in all, and the first of them that failed; `dependencies`: calls that need this one.
    `slot`: where its newest attempt is; `in_place`: on top of one that waits for it; `waits`: it
    waits for other tasks; `alone`: nothing runs on top of it any more. `submitter` and `number`:
    who gets the result under which number, and `watchers`: who else. `delegate`: the task whose
    outcome becomes its own. `source`: whose turn it takes in the queue.
    """

    row: int
    id: ids.TaskId
    run: int
    namespace: str
    name: str
    cluster: Cluster
    declared: bool
    spec: api_task.TaskSpec
    inputs: bytes | None = None
    stored: bool = False
    state: api_task.State = api_task.State.PENDING
    reason: str = ""
    message: str = ""
    attempt: int = 0
    attempt_state: transitions.AttemptState | None = None
    failures: int = 0
    losses: int = 0
    excused: int = 0
    worker: Worker | None = None
    created: float = 0.0
    pending_since: float = 0.0
    suspended: bool = False
    releases: int = 0
    reserved: float | None = None
    attempt_started: float | None = None
    started: float | None = None
    finished: float | None = None
    exit_code: int | None = None
    result: attempts.Payload | None = None
    stopped: bool | None = None
    due: float = 0.0
    intent: Intent = Intent.NONE
    place: int | None = None
    progress: model.Progress | None = None
    parent: attempts.AttemptRef | None = None
    child_key: str | None = None
    digest: bytes | None = None
    siblings: Family | None = None
    family: Family | None = None
    template: Template | None = None
    arguments: attempts.Payload | None = None
    needs: tuple[ids.TaskId, ...] = ()
    unmet: int = 0
    values: dict[ids.TaskId, calls.Value] | None = None
    values_bytes: int = 0
    failed_input: calls.Value | None = None
    dependents: "list[Task] | None" = None
    slot: Slot | None = None
    in_place: bool = False
    waiting: bool = False
    alone: bool = False
    submitter: Submitter | None = None
    number: int = 0
    watchers: list[tuple[Submitter, int]] | None = None
    delegate: ids.TaskId | None = None
    source: bytes = b""

    @property
    def ref(self) -> attempts.AttemptRef:
        """Identity of the newest attempt."""
        return attempts.AttemptRef(self.id, self.run, self.attempt)

    @property
    def held(self) -> bool:
        """A worker has its newest attempt."""
        state = self.attempt_state
        return state is _RESERVED or state is _STARTED

    @property
    def narrow(self) -> bool:
        """Its spec is that of its template, to the letter."""
        return self.template is not None and self.spec is self.template.spec


_RESERVED = transitions.AttemptState.RESERVED
_STARTED = transitions.AttemptState.STARTED


def of_submission(
    row: int,
    submission: model.Submission,
    cluster: Cluster,
    *,
    state: api_task.State = api_task.State.PENDING,
    attempt_state: transitions.AttemptState | None = None,
) -> Task:
    """Return the record of a run as submitted; after a restart, in the states of its row."""
    return Task(
        row,
        submission.task,
        submission.spec.run,
        submission.namespace,
        submission.name,
        cluster,
        submission.declared,
        submission.spec,
        inputs=submission.inputs,
        state=state,
        attempt_state=attempt_state,
        pending_since=submission.pending_since or 0.0,
        source=submission.source,
    )
