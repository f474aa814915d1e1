"""Step items: a step instance as a job of the engine, with a single task, or with one task per
item.

Used by `flow_service`, which passes `StepSources` to the engine. Item n of the job is item n - 1 of
the step, which users see. An item ends when its task ends. `step_inputs` makes the inputs of the
tasks; the engine decides when the step has ended.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from kilnwork.api import (
    attempts,
    filejobs,
    flow_expressions,
    input_assembly,
    reasons,
    resolved_job_settings,
)
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs as blob_store
from kilnwork.data.pond import shards
from kilnwork.jobs import (
    errors,
    gathered_results,
    index_item_source,
    item_source,
    live_job_state,
    plan_steps,
    rows,
)
from kilnwork.jobs.flows import run_types, step_inputs, step_result_cache
from kilnwork.kit import ids

KIND = "flow"

_O = filejobs.PartOutcome
# Aliases for code that runs for each item: access through the enum class takes ten times as long.
_SUCCEEDED, _FAILED = _O.SUCCEEDED, _O.FAILED

MAX_RESULT_BYTES = 4 << 20
"""Maximum size in bytes of the list of a step's results, which is in the journal and in memory
while the run is unfinished. A list that exceeds the limit for a task's inputs
(`api.input_assembly`) can be passed only to a call."""

ReadResult = Callable[[ids.TaskId], attempts.Payload | None]
"""Returns the result of a task that has succeeded; None if it returned nothing."""

_decode_work = msgspec.json.Decoder(step_inputs.StepWork).decode


class ShardNumber(msgspec.Struct, frozen=True):
    """Number of a shard and count of the shards, as in a shard's document
    (`data.pond.shards.Shard`).
    """

    index: int
    count: int


class StepProgress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Counts of a step's tasks in addition to their outcomes."""

    reused: int = 0
    """Number of items whose result comes from an earlier generation."""
    cause: str = ""
    """Reason of the first task that failed for good."""


class StepDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Details in the view of a step's job, in addition to its counts."""

    running: int = 0


_decode_progress = msgspec.json.Decoder(StepProgress).decode
_decode_number = msgspec.json.Decoder(ShardNumber).decode
_decode_spec = msgspec.json.Decoder(index_item_source.IndexSpec).decode


class StepSources:
    """Factory of the item sources of steps (`rows.SourceKind`).

    `blobs`: the directory of large values, with a subdirectory per namespace; `read_result` is
    called when a task of a step whose results are read has succeeded.
    """

    nouns = "shards"
    ttl_s: float | None = None
    """None: jobs of steps are kept as long as their run."""

    def __init__(self, blobs: Path, read_result: ReadResult) -> None:
        self._blobs, self._read_result = blobs, read_result

    def new(self, work: step_inputs.StepWork) -> "StepItems":
        """Return the item source of a new step job."""
        return self._items(work, StepProgress())

    def spec(self, encoded: bytes) -> index_item_source.IndexSpec:
        """Decode the spec of a step's job, which has the settings that may change."""
        return _decode_spec(encoded)

    def progress(self, encoded: bytes) -> StepProgress:
        """Decode the progress of a step's job."""
        return _decode_progress(encoded)

    def detail(self, row: rows.JobRow) -> StepDetail:
        """Return the detail of a step's job that is not in memory."""
        return StepDetail()

    def load(self, spec: item_source.Policy, *, definition: bytes, progress: bytes) -> "StepItems":
        """Return the item source of a step's job, given the encoded columns of its rows in the
        journal.
        """
        work = _decode_work(definition)
        return self._items(work, _decode_progress(progress))

    def _items(self, work: step_inputs.StepWork, progress: StepProgress) -> "StepItems":
        return StepItems(work, progress, blobs=self._blobs, read_result=self._read_result)


class StepItems:
    """The tasks of one step instance as the items of a job (`item_source.ItemSource`)."""

    kind, blobs = KIND, b""
    noun, nouns, first = "shard", "shards", 0
    ends_with_task = True
    window = index_item_source.WINDOW
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
        self.seen = step_result_cache.SeenResults(
            self.size if definition.wanted else 0, most=MAX_RESULT_BYTES
        )
        self._read_result = read_result
        template = definition.template
        self._is_call = template.call is not None and template.executor == api_task.WORKER
        self.completion: resolved_job_settings.Completion | None = resolved_job_settings.Completion(
            max_failed=definition.max_failed
        )
        self.keeps_tasks = definition.wanted
        self.inputs = step_inputs.Inputs(definition)
        self._shared: dict[tuple[int, int, int | None], api_task.TaskSpec] = {}
        """Task spec by run, priority and portion."""

    def work(self, job: live_job_state.Job, item: int) -> item_source.Work:
        """Return the work of an item's task. Raises `ItemUnusable`."""
        try:
            given = self.inputs.encode_inputs(item - 1)
        except flow_expressions.ExpressionError as error:
            raise errors.ItemUnusable(str(error)) from error
        spec = self._spec(job, job.run_of(item), self._portion(item - 1))
        large = len(given) > input_assembly.MAX_INPUT_BYTES
        if large and (self.definition.variable or not self._is_call):
            raise errors.ItemUnusable(
                f"its inputs are {len(given)} bytes together; {input_assembly.MAX_INPUT_BYTES} are "
                "allowed but for a step with one call: have earlier steps return less, such as "
                "keys of files"
            )
        if not self._is_call:
            return item_source.Work(spec, given)
        data = step_inputs.encode_arguments(self.definition.template, given)
        arguments = attempts.Payload(attempts.JSON, data)
        return item_source.Work(spec, None, self._stored(job, data) if large else arguments)

    def _stored(self, job: live_job_state.Job, data: bytes) -> attempts.Payload:
        """Store the arguments of a call as a blob, and return the payload that names it. Some
        megabytes take some ten milliseconds.
        """
        kept = blob_store.Blobs(self._blobs / job.namespace, durable=True)
        try:
            digest, size = kept.put((data,))
        except data_errors.DataError as error:
            raise errors.ItemUnusable(f"its inputs cannot be stored: {error}") from error
        return attempts.Payload(attempts.JSON, b"", digest, size)

    def _portion(self, number: int) -> int | None:
        """Return the number of the data's portion that an item needs, or None if any worker can run
        it. Raises `ItemUnusable`.
        """
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

    def _spec(self, job: live_job_state.Job, run: int, portion: int | None) -> api_task.TaskSpec:
        """Return the task spec that all tasks with the same run, priority and portion share; for
        calls, without arguments.
        """
        key = (run, cast(index_item_source.IndexSpec, job.spec).priority, portion)
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

    def task_name(self, job: live_job_state.Job, item: int) -> str:
        """Return `<set>-g<N>-<step>`, with the number of the item if the step has items."""
        return task_name(self.definition, item - 1)

    def hook_tasks(
        self, job: live_job_state.Job, event: api_job.HookEvent
    ) -> list[item_source.ExtraTask]:
        """Return an empty list: flows have steps instead of hooks."""
        return []

    def finalizer_arguments(self, run: int) -> gathered_results.FinalizerArguments | None:
        """Return None: steps have no finalizer."""
        return None

    def detail(self, job: live_job_state.Job) -> StepDetail:
        """Return the view detail of a job in memory."""
        return StepDetail(running=running(job))

    def failure(self, job: live_job_state.Job) -> tuple[str, str] | None:
        """Return None, since `completion` decides whether the job can still succeed."""
        return None

    def failure_text(self, result: item_source.ItemResult) -> str:
        """Return the reason why a task failed, with the shard of the task if there are several."""
        if self.definition.variable:
            return f"shard {result.item - 1}: {result.message}"
        return result.message

    def count_result(self, result: item_source.ItemResult) -> None:
        """Keep the reason of the first task that failed, and each task's result if results will be
        read.
        """
        if result.outcome is _FAILED and not self.progress.cause:
            self.progress = msgspec.structs.replace(self.progress, cause=result.reason)
        if self.definition.wanted and result.outcome is _SUCCEEDED and result.data is not None:
            self.seen.note(result.item - 1, self._read_result(result.data.id))

    def record_end(self, job: live_job_state.Job) -> None:
        """Do nothing, since the progress has all facts already."""

    def prepare(self, job: live_job_state.Job, inline: bytes | None) -> Callable[[], None]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError

    def recover(self, job: live_job_state.Job) -> Callable[[], list[item_source.ItemResult]]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError

    def settle(
        self, job: live_job_state.Job, step: plan_steps.Settle, returned: Callable[[], bytes | None]
    ) -> Callable[[], item_source.ItemResult | item_source.Damage | None]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError

    def purge(self, job: live_job_state.Job) -> Callable[[], None]:
        """Raise an error: never called for sources with `ends_with_task`."""
        raise NotImplementedError


_TEMPLATE_FIELDS = api_task.TaskTemplate.__struct_fields__


def task_name(work: step_inputs.StepWork, number: int) -> str:
    """Return the name of a step's task with this number, from 0."""
    return f"{work.name}-{number}" if work.variable else work.name


def running(job: live_job_state.Job) -> int:
    """Return the number of the job's tasks that are running."""
    return sum(task.state in index_item_source.AT_WORK for task in job.tasks.values())


def counts(job: live_job_state.Job) -> run_types.TaskCounts:
    """Return the counts of a step's job that is in memory."""
    known = job.counts
    progress = job.source.progress
    return run_types.TaskCounts(
        total=job.size,
        succeeded=known.succeeded,
        failed=known.failed,
        cancelled=known.cancelled,
        reused=progress.reused,
    )
