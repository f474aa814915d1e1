"""The values that enter and leave the dispatcher: submissions, and views of what it knows.

Used by controllers, server and jobs. All frozen; a view shows only what the journal has on disk,
apart from why a task waits and its progress, which are facts of the moment.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.kit import ids


class ImageUse(msgspec.Struct, frozen=True):
    """What the image of a spawned command means.

    `spec`: what is run. `warning`: what the client that spawns it is warned of. `refusal`: why
    there is no such child, with the status of the response: 503 for what may pass by itself.
    """

    spec: api_task.TaskSpec
    warning: str = ""
    refusal: str = ""
    status: int = 422


ImageRule = Callable[[str, api_task.TaskSpec], ImageUse]
"""Say what the image of a spec means in a namespace."""


def label_image(namespace: str, spec: api_task.TaskSpec) -> ImageUse:
    """Where commands run on the machine of the dispatcher."""
    text = f"spec.image {spec.image}: images are labels here, where programs come from the machine"
    return ImageUse(spec, text)


class SubmittedFacts(msgspec.Struct, kw_only=True):
    """What a submission, the machine's record of the run and the view of it have in common.

    What a field added here needs besides to be stored, restored and shown: a column
    (`journal.task_rows.TaskRow`) and a migration.
    """

    source: bytes = b""
    """Whose turn it takes in the queue of its cluster; b"": that of all that name none."""


class Submission(SubmittedFacts, frozen=True, kw_only=True):  # type: ignore[misc] # as TaskView
    """A task to run: run `spec.run` of `task`.

    `inputs`: a JSON object by input name as bytes, resolved by the caller; None for no inputs.
    `arguments`: those of a call, whose spec has none and is the same object for many calls, so that
    it is looked at once; its inputs are among them. None: they are in the spec.
    `declared`: it is a Task object, so that its changes are published to controllers.
    `pending_since`: wall clock, seconds, from which its timeouts count; None: from now on.
    """

    task: ids.TaskId
    namespace: str
    name: str
    spec: api_task.TaskSpec
    inputs: bytes | None = None
    arguments: attempts.Payload | None = None
    declared: bool = True
    pending_since: float | None = None


class Progress(msgspec.Struct, frozen=True):
    """What a task says of itself; `fraction` is 0 to 1, None when it does not know."""

    fraction: float | None
    message: str


class Observed(msgspec.Struct, frozen=True):
    """What an executor sees of an attempt that is not over: why it is where it is, and on which
    node."""

    reason: str
    message: str = ""
    node: str = ""


class TaskFacts(SubmittedFacts, kw_only=True):
    """What the machine's record of a run and the view of it have in common.

    All times are wall clock, seconds. A field added here needs the same as one of `SubmittedFacts`.
    """

    reason: str = ""
    message: str = ""
    attempt: int = 0
    """Number of the newest attempt, 0 before the first."""
    failures: int = 0
    """What has been taken from the budget `retry.maxAttempts`."""
    losses: int = 0
    """Attempts that were lost."""
    unstarted: int = 0
    """Attempts that were taken back, or lost, before they began."""
    created: float = 0.0
    started: float | None = None
    """First start of this run."""
    finished: float | None = None
    exit_code: int | None = None
    """Of the newest attempt."""
    usage: attempts.Usage | None = None
    """What the newest attempt has used, once it is over; None: not known."""
    result: attempts.Payload | None = None
    """Its result, or its error."""
    stopped: bool | None = None
    """True is proof that nothing of it runs any more, False means that such proof is missing, None
    that something may rightly run."""
    suspended: bool = False
    """No attempt starts before it is resumed; one that runs goes on."""
    placed: str = ""
    """Node of the newest attempt, as its executor says; "" for one of a worker, which has its."""
    parent: attempts.AttemptRef | None = None


class TaskView(TaskFacts, frozen=True, kw_only=True):  # type: ignore[misc] # msgspec allows it
    """One run of a task as the journal has it.

    `attempt`: number of the newest attempt, 0 before the first. `failures`: what has been
    taken from the budget `retry.maxAttempts`. `losses`: attempts that were lost after they had
    begun; those for which the dispatcher was to blame are not taken from `retry.maxLosses`.
    `worker`: Pod name of the newest attempt's worker, "" when there was none.
    `started`: first start of this run; all times are wall clock, seconds.
    `stopped`: True is proof that nothing of it runs any more, False means that such proof is
    missing, None that something may rightly run.
    `suspended`: no attempt starts before it is resumed; one that runs goes on. `function`: what a
    call calls, "" for a command. `loss`: why the newest attempt that was lost was lost, "" when
    none was, or in memory alone.
    `seq` rises with every change of this task; 0 when nothing changed since the dispatcher started.
    """

    task: ids.TaskId
    namespace: str
    name: str
    cluster: str
    declared: bool
    run: int
    state: api_task.State
    worker: str
    node: str
    children: api_task.ChildCounts
    progress: Progress | None
    function: str = ""
    loss: str = ""
    seq: int

    @property
    def attempts(self) -> int:
        """How many attempts have begun, may have begun, or are about to: not those that were taken
        back."""
        return self.attempt - self.unstarted


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """What was started again with the task that was to be retried.

    `tasks`: those that have a new run, in dependency order. `declared`: names of objects among
    them, whose `spec.run` has to be raised by whom may do that. `left`: how many failed children of
    these run again when their parents ask for them.
    """

    tasks: tuple[ids.TaskId, ...]
    declared: tuple[str, ...] = ()
    left: int = 0


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks of a namespace; None: any. `function`: as `spec.call.function` has it."""

    state: api_task.State | None = None
    declared: bool | None = None
    parent: ids.TaskId | None = None
    function: str | None = None


class TaskCount(msgspec.Struct, frozen=True):
    """How many tasks of a namespace are in one state: objects or not, of one Python function ("":
    those that call none)."""

    namespace: str
    declared: bool
    function: str
    state: api_task.State
    number: int


class OldRun(NamedTuple):
    """A run that may be forgotten.

    `over`: nothing but its parent may need the task: all runs of it ended before a moment, it has
    no object and no unfinished child. `parent`: None also for one that is forgotten. `keyed`: a
    driver gave it a key, to find it again. `size_bytes`: about, of its row and its blobs.
    """

    row: int
    task: ids.TaskId
    namespace: str
    over: bool
    parent: ids.TaskId | None
    keyed: bool
    size_bytes: int


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks that are over are to be forgotten, the oldest first.

    `older_s`: all runs of them ended so long ago. `namespace`: of this one alone. `keep`: not the
    newest so many of what is over. `free_bytes`: no more than it takes to free so many. `keyed`:
    also calls that a driver has given a key.
    """

    older_s: float
    namespace: str | None = None
    keep: int | None = None
    free_bytes: int | None = None
    keyed: bool = False


class Pruned(msgspec.Struct, frozen=True):
    """How many tasks were forgotten, or would be, and about how many bytes they took.

    `later_bytes`: of the blobs of forgotten tasks that are still on the disk, and go within minutes
    (`blob_collection.RELEASED_KEEP_S`) unless something uses them again.
    """

    tasks: int
    size_bytes: int
    later_bytes: int = 0


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run. `completion` is None while it goes on; `reserved` is never None."""

    ref: attempts.AttemptRef
    worker: str
    node: str
    ending: attempts.Ending | None
    reason: str
    message: str
    exit_code: int | None
    reserved: float
    started: float | None
    finished: float | None
    usage: attempts.Usage | None = None


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. `name` is its Pod's; `ready`: its link stands, so that it can be given tasks.

    `holding`: attempts that would be lost with it, also those that wait for other tasks and those
    that it has not claimed since the dispatcher started. `draining`: it is to go, and gets nothing
    new; `connected`: its link stands, though it may drain.
    """

    name: str
    pod_uid: str
    node: str
    slots: int
    busy: int
    ready: bool
    holding: int = 0
    draining: bool = False
    connected: bool = False

    @property
    def serving(self) -> bool:
        """Return whether it gets tasks, or would if it were not drained."""
        return self.ready or (self.draining and self.connected)


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A TaskCluster as the dispatcher sees it: its workers, and how many tasks wait for a slot.

    `draining`: uids of Pods whose workers get nothing new, connected or not.
    """

    namespace: str
    cluster: str
    workers: tuple[WorkerView, ...]
    queued: int
    draining: frozenset[str] = frozenset()

    @property
    def slots(self) -> int:
        """Slots of workers that are ready."""
        return sum(w.slots for w in self.workers if w.ready)

    @property
    def busy(self) -> int:
        """Taken slots of workers that are ready."""
        return sum(w.busy for w in self.workers if w.ready)
