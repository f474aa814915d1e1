"""Item source: the port between the engine and the code that depends on the kind of a job's items.

Implemented by `file_item_source` (parts of a file), `index_item_source` (an index set) and
`flows.step_item_source` (tasks of a step). The engine decides about window, parallelism,
suspension, retries, circuit breaker, cancelling, redrive and completion in the same way for all
sources. A source defines what an item is, what proves that it has ended, and how the results are
used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kilnwork.api import attempts, filejobs, resolved_job_settings
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import plan_steps

if TYPE_CHECKING:
    from kilnwork.jobs import gathered_results, live_job_state


class Policy(Protocol):
    """Fields of a job's spec that the engine reads; the spec is a frozen Struct such as
    `filejobs.FileJobSpec`."""

    @property
    def name(self) -> str: ...
    @property
    def cluster_name(self) -> str: ...
    @property
    def parallelism(self) -> int | None: ...
    @property
    def max_crashes(self) -> int: ...
    @property
    def suspend(self) -> bool: ...
    @property
    def ttl_seconds_after_finished(self) -> int | None: ...


class ItemResult(NamedTuple):
    """Final outcome of a run of an item; for item 0, of the run of the job."""

    item: int
    run: int
    outcome: filejobs.PartOutcome
    reason: str = ""
    """For sources with `ends_with_task`: the reason of the task. For others, only with item 0: a
    fact that users should know about a job that has succeeded."""
    message: str = ""
    data: Any = None
    """Data for the source itself."""


class Damage(NamedTuple):
    """Report that the results of some items cannot be used, so that these items have to be run
    again.
    """

    items: tuple[int, ...]
    progress: Any
    """`ItemSource.progress` without the damaged items."""
    message: str


class Work(NamedTuple):
    """Spec, inputs and arguments of an item's task."""

    spec: api_task.TaskSpec
    inputs: bytes | None = None
    """A JSON object by name, or None."""
    arguments: attempts.Payload | None = None
    """Arguments of the function that the task calls. None: they are in `spec`, or the task calls no
    function. See `dispatch.model.Submission`."""


class ExtraTask(NamedTuple):
    """A task of a job that does not work on an item; the job does not wait for it."""

    key: str
    """Key that is unique within the job; the id of the task is derived from it."""
    name: str
    spec: api_task.TaskSpec
    inputs: bytes | None = None


class ItemSource(Protocol):
    """The items of one job, numbered from 1.

    Item 0 is the job as a whole: its task is the finalizer, its result is the record of the job's
    outcome. `prepare`, `recover`, `settle` and `purge` return a function that blocks and is called
    in a thread. The function may be repeated, also by another process after a crash.
    """

    kind: str
    """Name of this kind of source in the journal."""
    noun: str
    """Noun for an item in messages."""
    nouns: str
    """Plural of `noun`."""
    first: int
    """Number of item 1 in messages."""
    size: int
    """Number of items."""
    finalizer: bool
    """Whether item 0 gets a task once enough items have succeeded."""
    ends_with_task: bool
    """Whether an item ends when its task ends, and the job when the plan decides so. Then nothing
    is read from or written to a store: `prepare`, `recover`, `settle` and `purge` are not
    called."""
    completion: resolved_job_settings.Completion | None
    """Rules for when the job is decided. None: when all items have ended, and none may fail."""
    window: int
    """Default number of items that have a task at once, overridden by the job's `parallelism`:
    enough to keep any cluster busy, and few enough that pausing and cancelling are quick."""
    shown_tasks: int
    """If the job has at most this many items, views show all of their tasks."""
    keeps_tasks: bool
    """Whether the tasks of its items stay in the journal because their results are needed."""
    results: bytes | attempts.Payload | None
    """List of all items' results for the finalizer, as JSON; or all of the finalizer's arguments,
    if the list is too long for an input. None until the results are gathered."""
    failed_reason: str
    """Reason of a job that failed because too many items failed."""
    finalizer_reason: str
    """Reason of a job whose finalizer failed."""
    blobs: bytes
    """Digests of the blobs that the tasks need, 32 bytes each."""
    definition: Any
    """Definition of the items: a Struct, written once."""
    progress: Any
    """Facts about the items that users see besides their counts: a frozen Struct, written with the
    job."""

    def work(self, job: "live_job_state.Job", item: int) -> "Work":
        """Return the work of an item's task. Raises `ItemUnusable`."""
        ...

    def task_name(self, job: "live_job_state.Job", item: int) -> str:
        """Return the name of an item's task for users."""
        ...

    def hook_tasks(self, job: "live_job_state.Job", event: api_job.HookEvent) -> list[ExtraTask]:
        """Return the hook tasks for a change of the job's phase."""
        ...

    def finalizer_arguments(self, run: int) -> "gathered_results.FinalizerArguments | None":
        """Return the arguments of the finalizer's call, without the results.

        None if the finalizer does not call a function or cannot be rendered, or if there is none.
        """
        ...

    def detail(self, job: "live_job_state.Job") -> Any:
        """Return the details in a view of the job, in addition to its counts and `progress`."""
        ...

    def failure(self, job: "live_job_state.Job") -> tuple[str, str] | None:
        """Return reason and message if the job cannot succeed any more, whatever the unfinished
        items return, else None.
        """
        ...

    def failure_text(self, result: ItemResult) -> str:
        """Return the message for users about an item that has failed."""
        ...

    def count_result(self, result: ItemResult) -> None:
        """Add the result of an item that succeeded to `progress`; for sources with
        `ends_with_task`, any result.
        """
        ...

    def record_end(self, job: "live_job_state.Job") -> None:
        """Add to `progress` the facts that views of a finished job show; called when the job
        ends."""
        ...

    def prepare(self, job: "live_job_state.Job", inline: bytes | None) -> Callable[[], None]:
        """Return a function that prepares everything that the tasks of the job's run need.

        `inline`: an input that is in the journal until the function has stored it, or None.
        """
        ...

    def recover(self, job: "live_job_state.Job") -> Callable[[], list[ItemResult]]:
        """Return a function that finds the results of unfinished items in their current run, and
        the result of the job's run.
        """
        ...

    def settle(
        self,
        job: "live_job_state.Job",
        step: plan_steps.Settle,
        returned: Callable[[], bytes | None],
    ) -> Callable[[], ItemResult | Damage | None]:
        """Return a function that finds or creates the result that a step asks for.

        `returned` returns the value that the item's task returned, as JSON; it must be called
        before this method returns.
        """
        ...

    def purge(self, job: "live_job_state.Job") -> Callable[[], None]:
        """Return a function that deletes everything that the job has stored."""
        ...
