"""Values that enter and leave the dispatcher: submissions of tasks, and views of tasks and
clusters.

Used by controllers, server, jobs and the command line. All are frozen, except the bases that they
share with the machine's records. The view of a task shows the state that the journal has on disk,
except progress, node and the reason for which the task waits, which may be in memory only. Views of
clusters and workers show the state in memory.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.kit import ids


class ImageUse(msgspec.Struct, frozen=True):
    """How the image of a spawned command is used, or why it is refused.

    `spec`: the spec to run. `warning`: a warning for the client that spawns the command. `refusal`:
    the reason for which there can be no such child; "" if there can. `status`: the HTTP status of a
    refusal, 503 if the reason may go away by itself.
    """

    spec: api_task.TaskSpec
    warning: str = ""
    refusal: str = ""
    status: int = 422


ImageRule = Callable[[str, api_task.TaskSpec], ImageUse]
"""Returns what the image of a spec means in a namespace."""


def label_image(namespace: str, spec: api_task.TaskSpec) -> ImageUse:
    """Return the spec unchanged, with the warning that its image is ignored.

    Commands run as programs of the dispatcher's machine.
    """
    text = f"spec.image {spec.image}: images are labels here, where programs come from the machine"
    return ImageUse(spec, text)


class SubmittedFacts(msgspec.Struct, kw_only=True):
    """The fields that a submission, the machine's record of the run and its view have in common.

    A field added here must also be stored, restored and shown: it needs a column
    (`journal.task_rows.TaskRow`) and a migration.
    """

    source: bytes = b""
    """The source whose turn the task takes in the queue of its cluster; b"": all tasks without a
    source take turns as one.
    """


class Submission(SubmittedFacts, frozen=True, kw_only=True):  # type: ignore[misc] # as TaskView
    """A run of a task to be submitted: run number `spec.run` of `task`.

    `inputs`: a JSON object by input name, as bytes, resolved by the caller; None for no inputs.
    `arguments`: the arguments of a call. Its spec is then without arguments and is one object
    shared by many calls, so that it is validated once; its inputs are among the arguments. None:
    the arguments are in the spec. `declared`: the task is a Task object, so its changes are
    published to controllers. `pending_since`: wall clock, in seconds, from which the timeouts of
    the task count; None: from now on.
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
    """The progress that a task reports; `fraction` is 0 to 1, or None if the task does not know
    it.
    """

    fraction: float | None
    message: str


class Observed(msgspec.Struct, frozen=True):
    """An executor's observation of an attempt that has not ended: the reason for its state, and its
    node.
    """

    reason: str
    message: str = ""
    node: str = ""


class TaskFacts(SubmittedFacts, kw_only=True):
    """The fields that the machine's record of a run and its view have in common.

    All times are wall clock, in seconds. A field added here also needs a column and a migration, as
    a field of `SubmittedFacts` does.
    """

    reason: str = ""
    message: str = ""
    attempt: int = 0
    """Number of the newest attempt; 0 before the first."""
    failures: int = 0
    """Number of attempts that were taken from the budget `retry.maxAttempts`."""
    losses: int = 0
    """Number of losses that count against `retry.maxLosses`; `TaskView` counts others too."""
    unstarted: int = 0
    """Number of attempts that were taken back, or lost, before they began."""
    created: float = 0.0
    started: float | None = None
    """Time of the first start of this run."""
    finished: float | None = None
    exit_code: int | None = None
    """Exit code of the newest attempt."""
    usage: attempts.Usage | None = None
    """Resources that the newest attempt has used, once it has ended; None: unknown."""
    result: attempts.Payload | None = None
    """The task's result, or its error."""
    stopped: bool | None = None
    """True: there is proof that no process of the task is left. False: such proof is missing. None:
    a process may be running, as it should.
    """
    suspended: bool = False
    """Whether no attempt may start before the task is resumed; a running attempt goes on."""
    placed: str = ""
    """Node of the newest attempt, as its executor reports it; "" for an attempt on a worker, whose
    node is known.
    """
    parent: attempts.AttemptRef | None = None


class TaskView(TaskFacts, frozen=True, kw_only=True):  # type: ignore[misc] # msgspec allows it
    """One run of a task as the journal has it.

    `attempt`: number of the newest attempt, 0 before the first. `failures`: how many failures count
    against `retry.maxAttempts`. `losses`: attempts that were lost after they had started; losses
    that are the dispatcher's fault do not count against `retry.maxLosses`. `worker`: Pod name of
    the newest attempt's worker; "" if there was none. `started`: first start of this run. All times
    are wall clock, in seconds. `stopped`: True is proof that nothing of the run is running, False
    means that this proof is missing, None that the run may still be running as it should.
    `suspended`: no attempt starts until the task is resumed; a running attempt continues.
    `function`: the function of a call; "" for a command. `loss`: why the newest of the attempts in
    `losses` was lost; "" if there is none. `seq` rises with every change of this task; 0 when
    nothing changed since the dispatcher started.
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
        """Return how many attempts have started, may have started or are reserved, without those
        taken back.
        """
        return self.attempt - self.unstarted


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that were started again by the retry of one failed task.

    `tasks`: the tasks that have a new run, in dependency order. `declared`: names of the Task
    objects among them, whose `spec.run` must be raised by a client that may do so. `left`: how many
    failed children of these tasks will run again when their parents request them.
    """

    tasks: tuple[ids.TaskId, ...]
    declared: tuple[str, ...] = ()
    left: int = 0


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects tasks of a namespace; a field that is None selects all tasks.

    `function`: the function of a call, as in `spec.call.function`.
    """

    state: api_task.State | None = None
    declared: bool | None = None
    parent: ids.TaskId | None = None
    function: str | None = None


class TaskCount(msgspec.Struct, frozen=True):
    """The number of tasks of a namespace in one state, with one function, declared or not.

    `function` is "" for commands; a declared task is a Task object.
    """

    namespace: str
    declared: bool
    function: str
    state: api_task.State
    number: int


class OldRun(NamedTuple):
    """An old run, and whether its task may be forgotten as far as the journal knows.

    `over`: all runs of the task ended before a given time, and the task has no object and no
    unfinished child. `parent`: None also if the parent is forgotten. `keyed`: a driver gave the
    call a key, to find it again. `size_bytes`: approximate size of its row and blobs.
    """

    row: int
    task: ids.TaskId
    namespace: str
    over: bool
    parent: ids.TaskId | None
    keyed: bool
    size_bytes: int


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the finished tasks to forget, the oldest first.

    `older_s`: forget only tasks all of whose runs ended at least so many seconds ago. `namespace`:
    the namespace whose tasks are forgotten; None: all namespaces. `keep`: keep this many of the
    newest tasks. `free_bytes`: stop when this many bytes are freed. `keyed`: include calls to which
    a driver has given a key.
    """

    older_s: float
    namespace: str | None = None
    keep: int | None = None
    free_bytes: int | None = None
    keyed: bool = False


class Pruned(msgspec.Struct, frozen=True):
    """The number of tasks that a prune forgot, or would forget, and their approximate size in
    bytes.

    `later_bytes`: size of the blobs of forgotten tasks that are still on disk; they are removed
    within minutes (`blob_collection.RELEASED_KEEP_S`) unless something uses them again.
    """

    tasks: int
    size_bytes: int
    later_bytes: int = 0


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run. `ending` is None until the attempt has ended."""

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
    """A worker of a TaskCluster, as the dispatcher sees it.

    `name`: the name of its Pod. `ready`: it is connected and can be given tasks. `holding`:
    attempts that would be lost with it, including those that wait for other tasks and those that it
    has not claimed since the dispatcher started. `draining`: it gets no new tasks and is to be
    removed. `connected`: its link is open and it has not announced its end; it may be draining.
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
        """Return whether the worker gets tasks, or would if it were not draining."""
        return self.ready or (self.draining and self.connected)


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A TaskCluster as the dispatcher sees it: its workers, and how many tasks wait for a slot.

    `draining`: uids of Pods whose workers get no new tasks, connected or not.
    """

    namespace: str
    cluster: str
    workers: tuple[WorkerView, ...]
    queued: int
    draining: frozenset[str] = frozenset()

    @property
    def slots(self) -> int:
        """Return the number of slots of ready workers."""
        return sum(w.slots for w in self.workers if w.ready)

    @property
    def busy(self) -> int:
        """Return the number of occupied slots of ready workers."""
        return sum(w.busy for w in self.workers if w.ready)
