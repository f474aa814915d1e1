"""What is particular to the items of one kind of job: the port between engine and sources.

Implemented by `file_items` (parts of a file). The engine decides window, parallelism, suspension,
retries, the circuit breaker, cancelling, redrive and completion, for all sources alike; a source
says what an item is, what proves its end, and what becomes of the results.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.jobs import steps

if TYPE_CHECKING:
    from kilnwork.jobs import records


class Policy(Protocol):
    """What the engine reads of a job's spec (a frozen Struct); see `filejobs.JobSpec`."""

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
    outcome: filejobs.Outcome
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
    size: int
    """How many items there are."""
    finalizer: bool
    """When all items have succeeded, item 0 gets a task."""
    blobs: bytes
    """Digests of what the tasks need, 32 bytes each."""
    definition: Any
    """What the items are: a Struct, written once."""
    progress: Any
    """What users see of the items beyond their counts: a frozen Struct, written with the job."""

    def task(self, job: "records.Job", item: int) -> api_task.TaskSpec:
        """Return what works on an item."""
        ...

    def failure(self, job: "records.Job") -> tuple[str, str] | None:
        """Return reason and message if the job cannot succeed any more, whatever is open."""
        ...

    def count(self, result: ItemResult) -> None:
        """Add a result that has succeeded to `progress`."""
        ...

    def prepare(self, job: "records.Job", inline: bytes | None) -> Callable[[], None]:
        """Make ready what tasks of the job's run need. `inline`: an input that is in the journal
        until then."""
        ...

    def recover(self, job: "records.Job") -> Callable[[], list[ItemResult]]:
        """Find results of items that are open, in their run, and of the job's run."""
        ...

    def settle(
        self, job: "records.Job", step: steps.Settle, returned: Callable[[], bytes | None]
    ) -> Callable[[], ItemResult | Damage | None]:
        """Find, or make, the result that a step asks for. `returned`: what the item's task has
        returned, JSON; to be called at once."""
        ...

    def purge(self, job: "records.Job") -> Callable[[], None]:
        """Delete all that the job has stored."""
        ...
