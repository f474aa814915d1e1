"""A step instance as a job of the engine: one task, or one for each item. Item n is number n - 1.

Used by `runs`, which hands `StepSources` to the engine. An item ends as its task does. What the
tasks get is `step_inputs`'s; when the step is decided, the engine's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from kilnwork.api import attempts, expressions, filejobs, inputs, job_settings, reasons
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.data import blobs as blob_store
from kilnwork.data import errors as data_errors
from kilnwork.data.pond import shards
from kilnwork.jobs import (
    errors,
    gathered_results,
    index_items,
    item_source,
    plan_steps,
    records,
    rows,
)
from kilnwork.jobs.flows import model, seen_results, step_inputs
from kilnwork.kit import ids

KIND = "flow"

_O = filejobs.PartOutcome
# What each item passes: a member by way of its class takes ten times as long to look up.
_SUCCEEDED, _FAILED = _O.SUCCEEDED, _O.FAILED

MAX_RESULT_BYTES = 4 << 20
"""Longest list of a step's results: the journal and memory have it while the run goes on. What is
longer than the inputs of a task may be (`api.inputs`), only a call gets."""

ReadResult = Callable[[ids.TaskId], attempts.Payload | None]
"""Gives what a task has returned that has succeeded, None: nothing."""

_decode_work = msgspec.json.Decoder(step_inputs.StepWork).decode


class ShardNumber(msgspec.Struct, frozen=True):
    """What a shard's document says of its place (`data.pond.shards.Shard`)."""

    index: int
    count: int


class StepProgress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is counted of a step's tasks beyond how they ended."""

    reused: int = 0
    """Items whose result is that of an earlier generation."""
    cause: str = ""
    """Reason of the first task that has failed for good."""


class StepDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What a view shows of a step's job beyond its counts."""

    running: int = 0


_decode_progress = msgspec.json.Decoder(StepProgress).decode
_decode_number = msgspec.json.Decoder(ShardNumber).decode
_decode_spec = msgspec.json.Decoder(index_items.IndexSpec).decode


class StepSources:
    """Makes the sources of steps (`rows.SourceKind`). `blobs`: the directory of large values, by
    namespace; `read_result`: asked as tasks end."""

    nouns = "shards"
    ttl_s: float | None = None
    """They are kept as long as their run."""

    def __init__(self, blobs: Path, read_result: ReadResult) -> None:
        self._blobs, self._read_result = blobs, read_result

    def new(self, work: step_inputs.StepWork) -> "StepItems":
        """Return the source of a new job."""
        return self._items(work, StepProgress())

    def spec(self, encoded: bytes) -> index_items.IndexSpec:
        """Decode what may change of a step."""
        return _decode_spec(encoded)

    def progress(self, encoded: bytes) -> StepProgress:
        """Decode what is counted."""
        return _decode_progress(encoded)

    def detail(self, row: rows.JobRow) -> StepDetail:
        """Return what is known of a step that is not in memory."""
        return StepDetail()

    def load(self, spec: item_source.Policy, *, definition: bytes, progress: bytes) -> "StepItems":
        """Return the source of a job of the journal."""
        work = _decode_work(definition)
        return self._items(work, _decode_progress(progress))

    def _items(self, work: step_inputs.StepWork, progress: StepProgress) -> "StepItems":
        return StepItems(work, progress, blobs=self._blobs, read_result=self._read_result)


class StepItems:
    """`item_source.ItemSource`: the tasks of one step instance."""

    kind, blobs = KIND, b""
    noun, nouns, first = "shard", "shards", 0
    ends_with_task = True
    window = index_items.WINDOW
    finalizer = False
    failed_reason, finalizer_reason = reasons.FlowReason.SHARDS_FAILED.value, ""
    shown_tasks = 0
    results: bytes | attempts.Payload | None = None

    def __init__(
        self,
        definition: step_inputs.StepWork,
        progress: StepProgress,
        *,
        blobs: Path,
        read_result: ReadResult,
    ) -> None:
        self.definition, self.progress, self._blobs = definition, progress, blobs
        self.size = definition.size
        self.seen = seen_results.SeenResults(
            self.size if definition.wanted else 0, most=MAX_RESULT_BYTES
        )
        self._read_result = read_result
        template = definition.template
        self._is_call = template.call is not None and template.executor == api_task.WORKER
        self.completion: job_settings.Completion | None = job_settings.Completion(
            max_failed=definition.max_failed
        )
        self.keeps_tasks = definition.wanted
        self.inputs = step_inputs.Inputs(definition)
        self._shared: dict[tuple[int, int, int | None], api_task.TaskSpec] = {}
        """By run, priority and portion."""

    def work(self, job: records.Job, item: int) -> item_source.Work:
        """Return what works on an item. Raises `ItemUnusable`."""
        try:
            given = self.inputs.of(item - 1)
        except expressions.ExpressionError as error:
            raise errors.ItemUnusable(str(error)) from error
        spec = self._spec(job, job.run_of(item), self._portion(item - 1))
        large = len(given) > inputs.MAX_INPUT_BYTES
        if large and (self.definition.variable or not self._is_call):
            raise errors.ItemUnusable(
                f"its inputs are {len(given)} bytes together; {inputs.MAX_INPUT_BYTES} are allowed "
                "but for a step with one call: have earlier steps return less, such as keys of "
                "files"
            )
        if not self._is_call:
            return item_source.Work(spec, given)
        data = step_inputs.arguments_of(self.definition.template, given)
        arguments = attempts.Payload(attempts.JSON, data)
        return item_source.Work(spec, None, self._stored(job, data) if large else arguments)

    def _stored(self, job: records.Job, data: bytes) -> attempts.Payload:
        """Return arguments that are a blob; some megabytes take some ten milliseconds."""
        kept = blob_store.Blobs(self._blobs / job.namespace, durable=True)
        try:
            digest, size = kept.put((data,))
        except data_errors.DataError as error:
            raise errors.ItemUnusable(f"its inputs cannot be stored: {error}") from error
        return attempts.Payload(attempts.JSON, b"", digest, size)

    def _portion(self, number: int) -> int | None:
        """Return which portion of the data an item needs, None if it is anywhere. Raises
        `ItemUnusable`."""
        if not self.definition.portions:
            return None
        try:
            shard = _decode_number(self.definition.items[number])
        except msgspec.MsgspecError as error:
            raise errors.ItemUnusable(
                "it is no shard, and workers are next to the shards of their snapshot: have `of` "
                f"give shards as they are, or deliver all of it ({error})"
            ) from error
        return shards.portion(shard.index, shard.count, self.definition.portions)

    def _spec(self, job: records.Job, run: int, portion: int | None) -> api_task.TaskSpec:
        """Return the spec that all tasks share, those of one portion if there are any: the same
        object for calls."""
        key = (run, cast(index_items.IndexSpec, job.spec).priority, portion)
        if key not in self._shared:
            work = self.definition
            template = work.template
            if portion is not None:
                queue = api_task.portion_queue(template.cluster_name, portion)
                template = msgspec.structs.replace(template, cluster_name=queue)
            if template.call is not None and self._is_call:
                bare = msgspec.structs.replace(template.call, args=(), kwargs={})
                template = msgspec.structs.replace(template, call=bare)
            given = {name: getattr(template, name) for name in _TEMPLATE_FIELDS}
            self._shared[key] = api_task.TaskSpec(
                **given,
                priority=key[1],
                retry=work.retry or api_task.Retry(),
                timeouts=api_task.Timeouts(running_seconds=work.attempt_seconds),
                run=run,
            )
        return self._shared[key]

    def task_name(self, job: records.Job, item: int) -> str:
        """Return `<set>-g<N>-<step>`, with the number of the item if there are any."""
        return task_name(self.definition, item - 1)

    def hooks(self, job: records.Job, event: api_job.HookEvent) -> list[item_source.ExtraTask]:
        """Return nothing: flows have steps for that."""
        return []

    def around_results(self, run: int) -> gathered_results.Around | None:
        """Return None: it has no finalizer."""
        return None

    def detail(self, job: records.Job) -> StepDetail:
        """Return what a view shows of a job in memory."""
        return StepDetail(running=running(job))

    def failure(self, job: records.Job) -> tuple[str, str] | None:
        """Return None: `completion` says when it is lost."""
        return None

    def failure_text(self, result: item_source.ItemResult) -> str:
        """Return which shard failed, if there are more, and why."""
        if self.definition.variable:
            return f"shard {result.item - 1}: {result.message}"
        return result.message

    def count(self, result: item_source.ItemResult) -> None:
        """Note why the first of the tasks failed, and results if they will be read."""
        if result.outcome is _FAILED and not self.progress.cause:
            self.progress = msgspec.structs.replace(self.progress, cause=result.reason)
        if self.definition.wanted and result.outcome is _SUCCEEDED and result.data is not None:
            self.seen.note(result.item - 1, self._read_result(result.data.id))

    def end(self, job: records.Job) -> None:
        """Add nothing."""

    def prepare(self, job: records.Job, inline: bytes | None) -> Callable[[], None]:
        """Do nothing: see `ends_with_task`, as the following."""
        raise NotImplementedError

    def recover(self, job: records.Job) -> Callable[[], list[item_source.ItemResult]]:
        """Find nothing: the tasks say how items ended."""
        raise NotImplementedError

    def settle(
        self, job: records.Job, step: plan_steps.Settle, returned: Callable[[], bytes | None]
    ) -> Callable[[], item_source.ItemResult | item_source.Damage | None]:
        """Find nothing: the tasks say how items ended."""
        raise NotImplementedError

    def purge(self, job: records.Job) -> Callable[[], None]:
        """Delete nothing: it has no store."""
        raise NotImplementedError


_TEMPLATE_FIELDS = api_task.TaskTemplate.__struct_fields__


def task_name(work: step_inputs.StepWork, number: int) -> str:
    """Return the name of a step's task, by number from 0."""
    return f"{work.name}-{number}" if work.variable else work.name


def running(job: records.Job) -> int:
    """Return how many of its tasks are at work."""
    return sum(task.state in index_items.AT_WORK for task in job.tasks.values())


def counts(job: records.Job) -> model.Counts:
    """Return how many tasks of a step in memory are where."""
    known = job.counts
    progress = job.source.progress
    return model.Counts(
        total=job.size,
        succeeded=known.succeeded,
        failed=known.failed,
        cancelled=known.cancelled,
        reused=progress.reused,
    )
