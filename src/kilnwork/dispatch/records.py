"""What the machine keeps in memory: unfinished tasks, workers, clusters, families.

Mutable, slotted, small: a million queued tasks are a million `Task` objects. Changed by the machine
alone; the hub reads them to make views and frames.
"""

from enum import IntEnum
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model, placement, transitions
from kilnwork.kit import ids

ClusterKey = tuple[str, str]
"""Namespace and name of a TaskCluster."""


class Intent(IntEnum):
    """Why an attempt is being stopped; a higher one replaces a lower one, never the reverse."""

    NONE = 0
    TIMEOUT = 1
    TOTAL_TIMEOUT = 2
    CLUSTER = 3
    KILL = 4


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


class Worker:
    """One session of one worker. `link` is 0 while it is not connected.

    `held`: tasks whose newest attempt it has; `zombies`: final tasks of which it has not proved
    that nothing is left; both take slots. `from_before`: its attempts were reserved before this
    dispatcher started, and it has not come back yet.
    """

    __slots__ = (
        "cluster",
        "from_before",
        "held",
        "lease_until",
        "leaving",
        "link",
        "name",
        "node",
        "pod_uid",
        "row",
        "session",
        "slots",
        "zombies",
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

    @property
    def ready(self) -> bool:
        """It can be given tasks."""
        return self.link != 0 and not self.leaving

    @property
    def busy(self) -> int:
        """Taken slots."""
        return len(self.held) + len(self.zombies)


class Cluster:
    """Workers, waiting tasks and unfinished declared tasks of one TaskCluster."""

    __slots__ = ("declared", "key", "queue", "workers")

    def __init__(self, key: ClusterKey) -> None:
        self.key = key
        self.queue: placement.Queue[Task] = placement.Queue()
        self.workers: dict[bytes, Worker] = {}
        self.declared: set[Task] = set()


class Task:
    """The newest run of a task that is not final, or whose end is not on disk yet.

    `row` is its row in the journal; `stored` says whether that row exists there. `worker`, times
    and exit code belong to the newest attempt. `due`: wall time before which the next attempt does
    not start, 0 for none. `place`: its ticket while it is queued, None when it is not.
    `suspended`: no attempt starts; `releases`: how often it was let go, since deadlines that were
    set before do not count any more. `pending_since`: wall time from which its timeouts count.
    """

    __slots__ = (
        "attempt", "attempt_started", "attempt_state", "child_key", "cluster", "created",
        "declared", "digest", "due", "excused", "exit_code", "failures", "family", "finished",
        "id", "inputs", "intent", "losses", "message", "name", "namespace", "parent",
        "pending_since", "place", "progress", "reason", "releases", "reserved", "result",
        "row", "run", "siblings", "spec", "started", "state", "stopped", "stored", "suspended",
        "worker",
    )  # fmt: skip

    def __init__(self, row: int, submission: model.Submission, cluster: Cluster) -> None:
        self.row = row
        self.id = submission.task
        self.run = submission.spec.run
        self.namespace = submission.namespace
        self.name = submission.name
        self.cluster = cluster
        self.declared = submission.declared
        self.spec = submission.spec
        self.inputs = submission.inputs
        self.stored = False
        self.state = api_task.State.PENDING
        self.reason: str = ""
        self.message = ""
        self.attempt = 0
        self.attempt_state: transitions.AttemptState | None = None
        self.failures = 0
        self.losses = 0
        self.excused = 0
        self.worker: Worker | None = None
        self.created = 0.0
        self.pending_since = submission.pending_since or 0.0
        self.suspended = False
        self.releases = 0
        self.reserved: float | None = None
        self.attempt_started: float | None = None
        self.started: float | None = None
        self.finished: float | None = None
        self.exit_code: int | None = None
        self.result: attempts.Payload | None = None
        self.stopped: bool | None = None
        self.due = 0.0
        self.intent = Intent.NONE
        self.place: int | None = None
        self.progress: model.Progress | None = None
        self.parent: attempts.AttemptRef | None = None
        self.child_key: str | None = None
        self.digest: bytes | None = None
        self.siblings: Family | None = None
        self.family: Family | None = None

    @property
    def ref(self) -> attempts.AttemptRef:
        """Identity of the newest attempt."""
        return attempts.AttemptRef(self.id, self.run, self.attempt)

    @property
    def held(self) -> bool:
        """A worker has its newest attempt."""
        return self.attempt_state in _OPEN


_OPEN = frozenset({transitions.AttemptState.RESERVED, transitions.AttemptState.STARTED})
