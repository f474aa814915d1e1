"""Effects: run those steps of a job that read or write a store or read results, and apply what the
steps return.

Used by the engine, on the engine's event loop; the work of item sources runs in threads. A step
that fails is retried, and until then the job shows the error.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any, Protocol

from kilnwork.api import attempts
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs
from kilnwork.jobs import (
    gathered_results,
    item_source,
    live_job_state,
    plan_steps,
    task_hub,
    transitions,
)
from kilnwork.kit import ids

log = logging.getLogger(__name__)

THREADS = 8

_Gathered = tuple[bytes | attempts.Payload | None, str]
"""The results for the finalizer (`ItemSource.results`), and the reason why it cannot get them (""
if it can)."""


class EffectOwner(Protocol):
    """Port to the engine, for effects. `tasks`: job and item of each followed task, by its id."""

    tasks: dict[ids.TaskId, tuple[live_job_state.Job, int]]

    @property
    def is_stopped(self) -> bool:
        """Whether the engine has stopped and accepts no more results."""
        ...

    def now(self) -> float: ...

    def find_inline_input(self, job: live_job_state.Job) -> bytes | None:
        """Return the job's input if it may not be in the store yet, but only in the journal, else
        None.
        """
        ...

    def wake(self, job: live_job_state.Job) -> None: ...

    def mark_purged(self, job: live_job_state.Job) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class Effects:
    """Runner of the steps `Prepare`, `Recover`, `Settle`, `Purge` and `Gather`.

    `blobs`: the directory of blobs, with a subdirectory per namespace. `retry_s`: delay before a
    failed step is retried.
    """

    def __init__(
        self, owner: EffectOwner, hub: task_hub.TaskHub, *, blobs: Path, retry_s: float
    ) -> None:
        self._owner, self._hub, self._blobs, self._retry_s = owner, hub, blobs, retry_s
        self._pool = futures.ThreadPoolExecutor(THREADS, thread_name_prefix="jobs-store")

    async def stop(self) -> None:
        """Begin no more steps, and wait for the steps that are running in threads."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    def begin(self, job: live_job_state.Job, step: plan_steps.Step) -> None:
        """Begin a step; the engine is woken when the step is done."""
        _METHODS[type(step)](self, job, step)

    def _in_thread(
        self,
        job: live_job_state.Job,
        key: tuple[str, int],
        work: Callable[[], Any],
        apply: Callable[[Any], None],
    ) -> None:
        """Run `work` in a thread, then call `apply` on the event loop with the result. If `work`
        raises an exception, the step is retried.
        """

        def on_ended(future: "asyncio.Future[Any]") -> None:
            if self._owner.is_stopped or future.cancelled():
                return
            try:
                self._apply_outcome(job, key, future, apply)
            except Exception as error:  # noqa: BLE001 - half of it is in: only a restart mends that
                self._owner.fail(error)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._pool, work).add_done_callback(on_ended)

    def _apply_outcome(
        self,
        job: live_job_state.Job,
        key: tuple[str, int],
        future: "asyncio.Future[Any]",
        apply: Callable[[Any], None],
    ) -> None:
        error = future.exception()
        if error is None:
            job.trouble = ""
            apply(future.result())
        else:
            if not isinstance(error, data_errors.DataError):
                log.error("work on the store of a job failed", exc_info=error)
            job.trouble = str(error)
            job.changed(self._owner.now())
            future.get_loop().call_later(self._retry_s, self._retry, job, key)
        self._owner.wake(job)

    def _retry(self, job: live_job_state.Job, key: tuple[str, int]) -> None:
        transitions.finish_step(job, *key)
        self._owner.wake(job)

    def _gather(self, job: live_job_state.Job, _: plan_steps.Gather) -> None:
        """Read the results of all items on the event loop, in batches: the journal may be read only
        there."""
        run = job.run
        results = gathered_results.GatheredResults(
            job, self._hub, job.source.finalizer_arguments(run)
        )

        def read_batch() -> None:
            if self._owner.is_stopped:
                return
            try:
                if results.read_more():
                    loop.call_soon(read_batch)
                    return
                short = None if results.trouble else results.in_memory
                if short is None and not results.trouble:
                    self._in_thread(job, ("Gather", 0), build, gathered)
                    return
                gathered((short, results.trouble))
            except Exception as error:  # noqa: BLE001 - as in `_in_thread`
                self._owner.fail(error)
            self._owner.wake(job)

        def build() -> _Gathered:
            kept = local_blobs.Blobs(self._blobs / job.namespace, durable=True)
            try:
                return results.build(kept), ""
            except (data_errors.BlobMissing, data_errors.BlobDamaged) as error:
                return None, str(error)

        def gathered(found: _Gathered) -> None:
            made, trouble = found
            if job.run == run:
                job.source.results = made
            else:
                trouble = ""  # gathered for an older run
            transitions.record_gathered(job, trouble, now=self._owner.now())

        loop = asyncio.get_running_loop()
        loop.call_soon(read_batch)

    def _prepare(self, job: live_job_state.Job, _: plan_steps.Prepare) -> None:
        work, run = job.source.prepare(job, self._owner.find_inline_input(job)), job.run

        def apply(_: None) -> None:
            transitions.record_prepared(job, now=self._owner.now())
            if job.run != run:
                job.prepared = False  # prepared for an older run

        self._in_thread(job, ("Prepare", 0), work, apply)

    def _recover(self, job: live_job_state.Job, _: plan_steps.Recover) -> None:
        # Look up tasks first, then results: a task that has ended by now has already stored its
        # result.
        named = {
            task_hub.task_id(job.id.uuid, item): item for item in transitions.find_recoverable(job)
        }
        if job.stage is live_job_state.Stage.STOPPING or job.source.ends_with_task:
            left = [task for task in named if self._hub.knows(task)]
        else:
            left = [one.task for one in self._hub.unfinished(named)]

        def apply(found: list[item_source.ItemResult]) -> None:
            changes = [(named[one.task], one) for one in self._hub.states(left)]
            transitions.record_recovered(job, found, changes, now=self._owner.now())
            for item in job.tasks:
                self._owner.tasks[task_hub.task_id(job.id.uuid, item)] = (job, item)

        if job.source.ends_with_task:
            apply([])
            self._owner.wake(job)
        else:
            self._in_thread(job, ("Recover", 0), job.source.recover(job), apply)

    def _settle(self, job: live_job_state.Job, step: plan_steps.Settle) -> None:
        def returned() -> bytes | None:
            view = self._hub.view(task_hub.task_id(job.id.uuid, step.item))
            return None if view is None or view.result is None else view.result.data

        def apply(found: item_source.ItemResult | item_source.Damage | None) -> None:
            now = self._owner.now()
            if isinstance(found, item_source.Damage):
                transitions.reopen_damaged(job, found, now=now)
            elif step.item:
                transitions.apply_result(job, step.item, step.run, found, now=now)
            else:
                transitions.apply_job_result(job, found, now=now)

        work = job.source.settle(job, step, returned)
        self._in_thread(job, ("Settle", step.item), work, apply)

    def _purge(self, job: live_job_state.Job, _: plan_steps.Purge) -> None:
        def apply(_: None) -> None:
            self._owner.mark_purged(job)

        if job.source.ends_with_task:
            apply(None)
        else:
            self._in_thread(job, ("Purge", 0), job.source.purge(job), apply)


_METHODS: dict[type, Callable[[Effects, live_job_state.Job, Any], None]] = {
    plan_steps.Prepare: Effects._prepare,
    plan_steps.Recover: Effects._recover,
    plan_steps.Settle: Effects._settle,
    plan_steps.Purge: Effects._purge,
    plan_steps.Gather: Effects._gather,
}
