"""Records in the machine's memory: unfinished tasks, workers, clusters, families.

Mutable, slotted, small: a million queued tasks are a million `Task` objects. The machine changes
them; the hub reads them to make views and frames. Elsewhere, only `journal.restore` makes records,
the store sets `Task.stored`, and `hub.task_views` sets `Task.shown`.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, task_queue, transition_table
from kilnwork.kit import ids

ClusterKey = tuple[str, str]
"""Namespace and name of a queue: of a TaskCluster, of a part of its workers, or of an executor,
whose namespace is "" unless it is external.
"""


class Intent(IntEnum):
    """The reason why an attempt is being stopped.

    A higher intent replaces a lower one, never the reverse.
    """

    NONE = 0
    TIMEOUT = 1
    PENDING_TIMEOUT = 2
    TOTAL_TIMEOUT = 3
    DEADLOCK = 4
    CLUSTER = 5
    KILL = 6


class PastAttempt(NamedTuple):
    """An attempt that ended without success, as a row of the journal's history."""

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
    cpu_seconds: float | None = None
    peak_bytes: int | None = None


class Family:
    """The children that one run of a task has requested."""

    __slots__ = ("declared", "failed", "members", "parent", "run", "succeeded", "total")

    def __init__(self, parent: ids.TaskId, run: int, *, declared: bool) -> None:
        self.parent = parent
        self.run = run
        self.declared = declared
        self.total = 0
        self.succeeded = 0
        self.failed = 0
        self.members: dict[str, Task] = {}
        """Unfinished children, and those whose end is not stored yet, by child key."""

    def counts(self) -> api_task.ChildCounts:
        """Return the numbers of children by state, as the parent's status shows them."""
        return api_task.ChildCounts(
            total=self.total,
            running=self.total - self.succeeded - self.failed,
            succeeded=self.succeeded,
            failed=self.failed,
        )


class Template:
    """The part of a spec that many calls share; there is one for each namespace and distinct
    spec.
    """

    __slots__ = (
        "__weakref__", "accept_failures", "cluster", "function", "priority", "row", "seconds",
        "spec", "timed",
    )  # fmt: skip

    def __init__(self, row: int, cluster: "Cluster", spec: api_task.TaskSpec) -> None:
        call, timeouts = spec.call, spec.timeouts
        self.row = row
        """The template's number in the journal and on links to slots."""
        self.cluster = cluster
        self.spec = spec
        self.function = spec.function_name
        self.accept_failures = call is not None and call.accept_failures
        self.priority = spec.priority
        self.timed = timeouts.pending_seconds is not None or timeouts.total_seconds is not None
        self.seconds: float | None = None
        """Mean seconds that its latest calls ran; None before the first."""


class Submitter:
    """A peer that submits calls: a driver's session, a slot, or the Pod of a call.

    A submitter that reconnects gets a new record.
    """

    __slots__ = ("accepted", "link", "namespace", "session", "slot", "source", "templates")

    def __init__(self, session: bytes, namespace: str, link: int) -> None:
        self.session = session
        self.namespace = namespace
        self.link = link
        """The submitter's link; 0 once it is not connected any more."""
        self.accepted = 0
        self.source = session
        """The source whose turn in the queue its calls take (fairness)."""
        self.slot: Slot | None = None
        self.templates: dict[int, Template] = {}
        """Templates by the number that they have on its link."""


class Wait:
    """The wait of an attempt in a slot for other tasks."""

    __slots__ = ("all_of", "left", "ready", "task", "wants")

    def __init__(self, task: "Task") -> None:
        self.task = task
        self.all_of: tuple[ids.TaskId, ...] = ()
        """Tasks that must all be over for the wait to end, if it waits for nothing else."""
        self.ready: dict[ids.TaskId, Task] = {}
        """In place only: tasks that the slot could run on top of the attempt; some may have left
        the queue since.
        """
        self.wants: dict[ids.TaskId, bool] = {}
        """In place only: all tasks that the slot would run if they are queued, and whether the
        attempt waits for them itself.
        """
        self.left = 1
        """In place only: how many of the awaited tasks must still end before the attempt resumes.
        Never too low: an attempt that seems to resume occupies its slot and gets no task to run in
        place.
        """


class Slot:
    """One slot process of a worker."""

    __slots__ = (
        "gone", "held", "id", "leaving", "link", "occupied", "opening", "stack", "take_back_sent",
        "terms", "worker",
    )  # fmt: skip

    def __init__(self, slot: bytes, worker: "Worker") -> None:
        self.id = slot
        self.worker = worker
        self.link = 0
        """The slot's link; 0 while it is not connected."""
        self.opening = True
        """Whether the slot has not joined yet, although it was requested or its agent reported it
        as living.
        """
        self.occupied = False
        """Whether the slot counts against its worker's number of slots. It does while it opens, and
        while it has an attempt that does not wait for other tasks, or no longer needs to.
        """
        self.leaving = False
        """Whether the end of the slot has been requested."""
        self.take_back_sent = False
        """Whether a TakeBack was sent to which it has not replied yet."""
        self.terms = 0
        """Counter that rises when the slot joins or its link closes, and when its worker comes
        back. A timer that was set at a lower count is void.
        """
        self.gone: inputs.SlotGone | None = None
        """The agent's report that the slot has ended; None before. The report is handled when the
        slot's link has been read to its end.
        """
        self.held: dict[ids.TaskId, Task] = {}
        """Tasks whose newest attempt the slot has, in the order in which they were sent."""
        self.stack: list[Wait] = []
        """Waits of attempts that have begun and wait for others, bottom first."""


class Worker:
    """One session of a worker or executor."""

    __slots__ = (
        "cluster", "from_before", "held", "idle", "labels", "lease_until", "leaving", "link",
        "misses", "name", "node", "occupied", "opens_at", "parked", "pod_uid", "processes", "row",
        "session", "slots", "spare_timer_set", "terms", "unclaimed", "unproven",
    )  # fmt: skip

    def __init__(
        self,
        cluster: "Cluster",
        session: bytes,
        *,
        row: int = 0,
        name: str,
        pod_uid: str,
        node: str,
    ) -> None:
        self.cluster = cluster
        self.session = session
        self.row = row
        """The worker's row; 0 until it gets its first attempt: sessions without an attempt leave no
        row.
        """
        self.name = name
        self.pod_uid = pod_uid
        self.node = node
        self.slots = 0
        self.link = 0
        """The worker's link; 0 while it is not connected."""
        self.terms = 0
        """How often the worker has joined. A timer that was set at a lower count is void."""
        self.lease_until = 0.0
        self.held: dict[ids.TaskId, Task] = {}
        """Commands whose newest attempt the worker has; for an executor, calls too."""
        self.unproven: dict[attempts.AttemptRef, Task] = {}
        """Tasks by an attempt that was concluded although the worker has not proved that no process
        of it is left.
        """
        self.parked: set[ids.TaskId] = set()
        """Tasks of `held` that wait for something outside and take no slot (executors only)."""
        self.labels: dict[str, str] = {}
        """Labels that name what an executor can reach."""
        self.from_before = False
        """Whether the worker's attempts were reserved before this dispatcher started, and the
        worker has not come back yet.
        """
        self.leaving = False
        self.processes: dict[bytes, Slot] = {}
        """The worker's slots by id."""
        self.idle: dict[bytes, Slot] = {}
        """The worker's slots that could run a call at once, by id."""
        self.unclaimed: dict[ids.TaskId, Task] = {}
        """Calls that this worker's slots had when the dispatcher restarted, and that no slot has
        claimed since. A slot claims its calls when it connects.
        """
        self.occupied = 0
        """Number of the worker's slots that are occupied."""
        self.misses = 0
        """Number of slots in a row, up to now, that could not be opened; counted to 10."""
        self.opens_at = 0.0
        """Monotonic time before which no other slot of the worker is opened."""
        self.spare_timer_set = False
        """Whether the timer that ends idle slots is set."""

    @property
    def connected(self) -> bool:
        """Return whether the worker is connected and not about to leave.

        Its waiting attempts may then run awaited tasks in place, even while it is drained.
        """
        return self.link != 0 and not self.leaving

    @property
    def draining(self) -> bool:
        """Return whether the worker finishes its tasks and gets no new tasks."""
        return self.pod_uid in self.cluster.draining

    @property
    def ready(self) -> bool:
        """Return whether the worker can be given tasks."""
        return self.connected and not self.draining

    @property
    def holding(self) -> int:
        """Return how many attempts would be lost with the worker.

        This includes attempts that wait without occupying a slot, and those that the worker has not
        claimed since this dispatcher started.
        """
        in_slots = sum(len(slot.held) for slot in self.processes.values())
        return len(self.held) + len(self.unclaimed) + in_slots

    @property
    def busy(self) -> int:
        """Return how many slots are occupied; for a while more than `slots`, when waiting calls
        resume.
        """
        # An abandoned attempt may still run: it counts until its end is proved.
        return len(self.held) - len(self.parked) + len(self.unproven) + self.occupied


class Cluster:
    """The workers, waiting tasks and unfinished declared tasks of a TaskCluster or of an executor.

    The workers of an executor carry out its instructions: one worker if it is inside the manager,
    otherwise any number of processes. Tasks that need labels or a portion of a SyncSet's data wait
    in a cluster of their own, whose workers are a subset of the workers of its `base`.
    """

    __slots__ = (
        "base", "declared", "draining", "is_executor", "key", "openings", "portion", "portions",
        "queue", "queues", "required", "workers",
    )  # fmt: skip

    def __init__(
        self, key: ClusterKey, base: "Cluster | None" = None, required: Mapping[str, str] = {}
    ) -> None:
        self.key = key
        self.is_executor = api_task.is_executor_queue(key[1])
        """Whether this is the queue of an executor, whose tasks need no slot process."""
        self.base = base
        """The cluster whose workers this cluster uses; None: it has workers of its own."""
        self.required = required
        """Labels that a worker must have to run the tasks of this cluster."""
        self.portion: int | None = None
        """Portion of the data that the node of a worker must hold; None: any."""
        self.portions: Mapping[str, frozenset[int]] = {}
        """Portions that each node holds, by name of the node, for the clusters whose base this
        is.
        """
        self.queues: deque[Cluster] = deque()
        """The cluster itself and all clusters whose base it is; empty if there are none."""
        self.queue: task_queue.Queue[Task] = task_queue.Queue()
        self.workers: dict[bytes, Worker] = {}
        self.declared: set[Task] = set()
        self.openings = 0
        """Number of slots of the cluster's workers that are about to join."""
        self.draining: frozenset[str] = frozenset()
        """Uids of the Pods whose workers are to go, connected or not."""

    @property
    def eligible(self) -> "Iterable[Worker]":
        """Return the workers that may run the cluster's tasks."""
        if self.base is None:
            return self.workers.values()
        if self.portion is not None:
            held = self.base.portions
            return [w for w in self.base.workers.values() if self.portion in held.get(w.node, ())]
        needed = self.required.items()
        return [one for one in self.base.workers.values() if needed <= one.labels.items()]


class Task(model.TaskFacts, eq=False):
    """The newest run of a task that is not final, or whose end is not stored yet.

    `worker`, `reserved`, `attempt_started`, `exit_code` and `usage` belong to the newest attempt.
    Of the fields from `template` on, only `dependents`, `submitter`, `number` and `watchers` are
    also used for commands.
    """

    row: int
    """The task's row in the journal."""
    id: ids.TaskId
    run: int
    namespace: str
    name: str
    cluster: Cluster
    declared: bool
    spec: api_task.TaskSpec
    inputs: bytes | None = None
    stored: api_task.State | None = None
    """The state that was last written to the task's row; None while there is no such row."""
    shown: bool = False
    """Whether a caller will ask for the task's view each time that the task is stored."""
    state: api_task.State = api_task.State.PENDING
    attempt_state: transition_table.AttemptState | None = None
    excused: int = 0
    worker: Worker | None = None
    pending_since: float = 0.0
    """Wall time from which the task's timeouts count."""
    resumptions: int = 0
    """How often the task was resumed. A deadline that was set at a lower count is void."""
    reserved: float | None = None
    attempt_started: float | None = None
    due: float = 0.0
    """Wall time before which the next attempt does not start; 0: none."""
    intent: Intent = Intent.NONE
    ticket: int | None = None
    """The task's ticket while the task is queued; None otherwise."""
    progress: model.Progress | None = None
    observed: model.Observed | None = None
    """The executor's latest observation of the newest attempt."""
    handover: bytes | None = None
    """Data with which the next attempt can continue the work that this one has begun outside."""
    child_key: str | None = None
    digest: bytes | None = None
    siblings: Family | None = None
    family: Family | None = None
    template: Template | None = None
    arguments: attempts.Payload | None = None
    needs: tuple[ids.TaskId, ...] = ()
    """Tasks whose results this task takes."""
    unmet: int = 0
    """Number of tasks of `needs` that are not final."""
    values: dict[ids.TaskId, calls.Value] | None = None
    """The values of the final tasks of `needs`, as far as they are sent along."""
    values_bytes: int = 0
    """Total bytes of `values`."""
    failed_input: calls.Value | None = None
    """The first of `needs` that failed."""
    dependents: "list[Task] | None" = None
    """Calls that take the result of this task."""
    slot: Slot | None = None
    """The slot of the newest attempt."""
    in_place: bool = False
    """Whether the newest attempt runs on top of an attempt that waits for it."""
    waiting: bool = False
    """Whether the newest attempt waits for other tasks."""
    alone: bool = False
    """Whether no task may run on top of this task any more, because such a task may have ended the
    slot's process.
    """
    submitter: Submitter | None = None
    """The submitter that gets the result, under `number`."""
    number: int = 0
    watchers: list[tuple[Submitter, int]] | None = None
    """Other submitters that get the result, each with its own number for the task."""
    delegate: ids.TaskId | None = None
    """The task whose outcome becomes the outcome of this task."""
    cache_key: bytes = b""
    """Key by which other calls may reuse the result. It is not stored, so a restart loses it."""

    @property
    def ref(self) -> attempts.AttemptRef:
        """Return the reference of the newest attempt."""
        return attempts.AttemptRef(self.id, self.run, self.attempt)

    @property
    def followed(self) -> bool:
        """Return whether other parts follow the task, so that its stored row is kept in memory."""
        return self.declared or self.shown

    @property
    def held(self) -> bool:
        """Return whether a worker has the newest attempt."""
        state = self.attempt_state
        return state is _RESERVED or state is _STARTED

    @property
    def input_document(self) -> bytes | None:
        """Return the inputs of the task as a JSON object, or None if it has none.

        For a task that Python submits without a function, the arguments are the inputs.
        """
        if self.arguments is None or self.spec.call is not None:
            return self.inputs
        return self.arguments.data

    @property
    def has_template_spec(self) -> bool:
        """Return whether the task's spec is the same object as the spec of its template."""
        return self.template is not None and self.spec is self.template.spec


_RESERVED = transition_table.AttemptState.RESERVED
_STARTED = transition_table.AttemptState.STARTED
