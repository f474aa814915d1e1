"""What is particular to the items of one kind of job: the port between engine and sources.

Implemented by `file_items` (parts of a file) and `index_items` (an index set). The engine decides
window, parallelism, suspension, retries, the circuit breaker, cancelling, redrive and completion,
for all sources alike; a source says what an item is, what proves its end, and what becomes of the
results.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kilnwork.api import attempts, filejobs, job_settings
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import plan_steps

if TYPE_CHECKING:
    from kilnwork.jobs import gathered_results, records


class Policy(Protocol):
    """What the engine reads of a job's spec (a frozen Struct); see `filejobs.FileJobSpec`."""

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
    """How the run of an item ended for good; item 0: how the job's run did."""

    item: int
    run: int
    outcome: filejobs.PartOutcome
    reason: str = ""
    """Of item 0: what users should know of a job that has succeeded."""
    message: str = ""
    data: Any = None
    """What the source knows of it."""


class Damage(NamedTuple):
    """The finalizer could not use the results of these items: they are to be made again."""

    items: tuple[int, ...]
    progress: Any
    """`ItemSource.progress` without them."""
    message: str


class Work(NamedTuple):
    """What the task of an item does."""

    spec: api_task.TaskSpec
    inputs: bytes | None = None
    """A JSON object by name; None for none."""
    arguments: attempts.Payload | None = None
    """Of a call whose spec has none: see `dispatch.model.Submission`."""


class ExtraTask(NamedTuple):
    """A task of a job that works on no item, and that nothing waits for."""

    key: str
    """Distinguishes it from others of the job; its id follows from that."""
    name: str
    spec: api_task.TaskSpec
    inputs: bytes | None = None


class ItemSource(Protocol):
    """The items of one job, numbered from 1. Item 0 is the job as a whole: its task is the
    finalizer, its result the record of how the job ended.

    `prepare`, `recover`, `settle` and `purge` return work that blocks, for a thread; it may be
    repeated, also by another process after a crash.
    """

    kind: str
    """Under which the journal knows such sources."""
    noun: str
    """What users call an item."""
    nouns: str
    """What users call several."""
    first: int
    """The number that users know item 1 by."""
    size: int
    """How many items there are."""
    finalizer: bool
    """When enough items have succeeded, item 0 gets a task."""
    ends_with_task: bool
    """An item ends as its task does, and the job by what the plan decides: nothing else is read or
    made, so that `prepare`, `recover`, `settle` and `purge` are not called."""
    completion: job_settings.Completion | None
    """When the job is decided; None: when all items are over, and none may fail."""
    window: int
    """Items that have a task at once, unless the job's `parallelism` says otherwise: as many as
    keep any cluster busy, and few enough that pausing and cancelling are quick."""
    shown_tasks: int
    """Views show the tasks of so many items; those of a job that has no more are all shown."""
    keeps_tasks: bool
    """The tasks of its items stay in the journal, as their results are needed."""
    results: bytes | attempts.Payload | None
    """What the finalizer gets of all items, JSON; or all of its arguments, with a list that is too
    long for an input. None while that is to be gathered."""
    failed_reason: str
    """Of a job of which too many items failed."""
    finalizer_reason: str
    """Of a job whose finalizer failed."""
    blobs: bytes
    """Digests of what the tasks need, 32 bytes each."""
    definition: Any
    """What the items are: a Struct, written once."""
    progress: Any
    """What users see of the items beyond their counts: a frozen Struct, written with the job."""

    def work(self, job: "records.Job", item: int) -> "Work":
        """Return what is done about an item. Raises `ItemUnusable`."""
        ...

    def task_name(self, job: "records.Job", item: int) -> str:
        """Return what users call the task of an item."""
        ...

    def hooks(self, job: "records.Job", event: api_job.HookEvent) -> list[ExtraTask]:
        """Return the tasks that follow a change of the job's phase."""
        ...

    def around_results(self, run: int) -> "gathered_results.Around | None":
        """Return the arguments of the finalizer without the results, if it is a call."""
        ...

    def detail(self, job: "records.Job") -> Any:
        """Return what a view of the job shows beyond its counts and `progress`."""
        ...

    def failure(self, job: "records.Job") -> tuple[str, str] | None:
        """Return reason and message if the job cannot succeed any more, whatever is open."""
        ...

    def failure_text(self, result: ItemResult) -> str:
        """Return what users read of an item that has failed."""
        ...

    def count(self, result: ItemResult) -> None:
        """Add a result that has succeeded to `progress`; with `ends_with_task`, any result."""
        ...

    def end(self, job: "records.Job") -> None:
        """The job is over: add to `progress` what views show of that."""
        ...

    def prepare(self, job: "records.Job", inline: bytes | None) -> Callable[[], None]:
        """Make ready what tasks of the job's run need. `inline`: an input that is in the journal
        until then."""
        ...

    def recover(self, job: "records.Job") -> Callable[[], list[ItemResult]]:
        """Find results of items that are open, in their run, and of the job's run."""
        ...

    def settle(
        self, job: "records.Job", step: plan_steps.Settle, returned: Callable[[], bytes | None]
    ) -> Callable[[], ItemResult | Damage | None]:
        """Find, or make, the result that a step asks for. `returned`: what the item's task has
        returned, JSON; to be called at once."""
        ...

    def purge(self, job: "records.Job") -> Callable[[], None]:
        """Delete all that the job has stored."""
        ...
