"""The smallest item source: an index set, items 1 to n, each proved by its task's success.

For tests of what the engine decides for all sources.
"""

from collections.abc import Callable
from typing import cast

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.jobs import item_source, records, steps

_O = filejobs.Outcome


class IndexSpec(msgspec.Struct, frozen=True):
    """As `item_source.Policy`. `directory`: where `index_function` looks."""

    directory: str
    name: str = ""
    cluster_name: str = "counter"
    parallelism: int | None = None
    max_crashes: int = 0
    suspend: bool = False
    ttl_seconds_after_finished: int | None = None
    max_attempts: int = 1


class IndexSet(msgspec.Struct, frozen=True):
    """What the items are."""

    count: int


class IndexProgress(msgspec.Struct, frozen=True):
    """The sum of what the items have returned."""

    sum: int = 0


class IndexItems:
    """`item_source.ItemSource`."""

    kind, noun, finalizer, blobs = "index", "item", False, b""

    def __init__(self, definition: IndexSet, progress: IndexProgress) -> None:
        self.definition, self.progress = definition, progress
        self.size = definition.count

    def task(self, job: records.Job, item: int) -> api_task.TaskSpec:
        spec = cast(IndexSpec, job.spec)
        return api_task.TaskSpec(
            cluster_name=spec.cluster_name,
            call=api_task.Call(
                function="support.index_function:square", args=(item, spec.directory)
            ),
            retry=api_task.Retry(max_attempts=spec.max_attempts, delay_seconds=0),
            run=job.run_of(item),
        )

    def failure(self, job: records.Job) -> tuple[str, str] | None:
        return None

    def count(self, result: item_source.ItemResult) -> None:
        if result.item:
            self.progress = IndexProgress(self.progress.sum + result.data)

    def prepare(self, job: records.Job, inline: bytes | None) -> Callable[[], None]:
        return lambda: None

    def recover(self, job: records.Job) -> Callable[[], list[item_source.ItemResult]]:
        return list

    def settle(
        self, job: records.Job, step: steps.Settle, returned: Callable[[], bytes | None]
    ) -> Callable[[], item_source.ItemResult | item_source.Damage | None]:
        value, outcome = None, step.outcome
        if outcome is None:
            data = returned()
            value = None if data is None else msgspec.json.decode(data, type=int)
            outcome = _O.SUCCEEDED
        result = item_source.ItemResult(
            step.item, step.run, outcome, message=step.message, data=value
        )
        return lambda: result

    def purge(self, job: records.Job) -> Callable[[], None]:
        return lambda: None


class IndexKind:
    """`rows.SourceKind`."""

    noun = "item"

    def spec(self, encoded: bytes) -> IndexSpec:
        return msgspec.json.decode(encoded, type=IndexSpec)

    def progress(self, encoded: bytes) -> IndexProgress:
        return msgspec.json.decode(encoded, type=IndexProgress)

    def load(self, spec: item_source.Policy, *, definition: bytes, progress: bytes) -> IndexItems:
        return IndexItems(msgspec.json.decode(definition, type=IndexSet), self.progress(progress))
