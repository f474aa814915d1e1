"""Jobs of the steps of runs: creates, stops and follows them in the engine, and reads their
results.

Used by `flow_service`. `StepJobs` reports the outcomes of jobs to `run_planning`, and decides
nothing itself.
"""

import asyncio
from collections.abc import Callable

import msgspec

from kilnwork.api import filejobs, reasons
from kilnwork.jobs import engine as engines
from kilnwork.jobs import file_job_types as job_model
from kilnwork.jobs import index_item_source, item_states, task_hub, transitions
from kilnwork.jobs import live_job_state as job_records
from kilnwork.jobs.flows import (
    live_run_state,
    row_storage,
    run_planning,
    step_inputs,
    step_item_source,
    step_results,
    views,
)
from kilnwork.kit import ids

_R = reasons.FlowReason

MAX_DEFINITION_BYTES = 16 << 20
"""Maximum size in bytes of the items and shared inputs of a step together."""


class StepJobs:
    """Controller of the jobs of the steps of all runs. `on_change` is called when the plan of a run
    has to be run again.
    """

    def __init__(
        self,
        hub: task_hub.TaskHub,
        engine: engines.Engine,
        kept: row_storage.FlowTables,
        *,
        sources: step_item_source.StepSources,
        writes: row_storage.FlowWrites,
        on_change: Callable[[live_run_state.Run], None],
    ) -> None:
        self._hub, self._engine = hub, engine
        self._tables, self._sources = kept, sources
        self._writes, self._on_change = writes, on_change
        self._dropped: dict[bytes, views.OpenJob] = {}
        """State of jobs that were dropped from memory because they are paused or their results are
        being read."""
        self._jobs: dict[bytes, tuple[live_run_state.Run, str]] = {}
        """Run and step key of each unfinished job, by UUID."""

    def run_of(self, job: job_records.Job) -> live_run_state.Run | None:
        """Return the run to which an unfinished step job belongs, or None."""
        found = self._jobs.get(job.id.uuid)
        return None if found is None else found[0]

    def process_end(self, job: job_records.Job) -> None:
        """Process the end of a step's job in the batch that is being made."""
        found = self._jobs.pop(job.id.uuid, None)
        if found is not None:
            self._dropped.pop(job.id.uuid, None)
            found[0].shown_version = max(found[0].shown_version, job.version)
            self._read_results(*found, job)

    def keep_counts(self, job: job_records.Job) -> None:
        """Keep the counts of a step's job that is dropped from memory; a paused job may be
        unfinished.
        """
        if job.id.uuid in self._jobs:
            self._dropped[job.id.uuid] = views.OpenJob(step_item_source.counts(job), 0, job.version)

    def suspend(self, run: live_run_state.Run) -> None:
        """Pause or resume the jobs of a run, according to the state of the run."""
        for key in run.open_jobs:
            job = self._engine.find(job_uuid(run, key))
            if job is not None and job.stage is not job_records.FINISHED:
                change = job_model.Adjustment(suspend=run.state.suspended)
                transitions.adjust(job, change, now=self._engine.now())
                self._engine.wake(job)

    def stop(self, run: live_run_state.Run, key: str, message: str) -> None:
        """End the job of a step."""
        job = self._engine.find(job_uuid(run, key))
        if job is not None:
            transitions.kill(job, _R.STOPPED, message, now=self._engine.now())
            self._engine.wake(job)

    def open_jobs(self, run: live_run_state.Run) -> dict[str, list[views.OpenJob]]:
        """Return the state of the run's jobs whose end was not reported to the plan yet, by path of
        the step.
        """
        found: dict[str, list[views.OpenJob]] = {}
        for key in run.open_jobs:
            uuid = job_uuid(run, key)
            job = self._engine.live.get(uuid)
            one = self._dropped.get(uuid) if job is None else self._open_job(job)
            if one is not None:
                found.setdefault(live_run_state.step_path(key), []).append(one)
        return found

    def _open_job(self, job: job_records.Job) -> views.OpenJob:
        """Return the state of an unfinished job.

        If none of its tasks is running, the state has the reason why the first task waits.
        """
        running = step_item_source.running(job)
        found = views.OpenJob(step_item_source.counts(job), running, job.version)
        item = next((n for n, task in job.tasks.items() if task.ended is None), None)
        if running or item is None:
            return found
        known = self._hub.view(task_hub.task_id(job.id.uuid, item))
        if known is None:
            return found
        return found._replace(reason=known.reason, message=known.message)

    def follow(self, run: live_run_state.Run, key: str) -> None:
        """Follow the job of a step again after a restart or reopening; run the job again if the
        reopening needs that."""
        uuid = job_uuid(run, key)
        job = self._engine.find(uuid)
        if job is None:
            lost = live_run_state.JobEnd(False, _R.JOB_LOST, "its job is not in the journal")
            run_planning.job_ended(run, key, lost)
        elif job.stage is not job_records.FINISHED:
            self._jobs[uuid] = (run, key)
        elif _is_finished(job, run.records[key]):
            self._read_results(run, key, job)
            self._engine.wake(job)  # so that it is dropped from memory again
        else:
            self._jobs[uuid] = (run, key)
            transitions.redrive(job, now=self._engine.now())
            progress = job.source.progress
            job.source.progress = msgspec.structs.replace(progress, cause="")
            self._engine.wake(job)

    def run_number(self, run: live_run_state.Run, key: str) -> int | None:
        """Return the run number of a step's job, or None if the job is not in the journal."""
        job = self._engine.find(job_uuid(run, key))
        if job is None:
            return None
        self._engine.wake(job)  # so that it is dropped from memory again
        return job.run

    def discard(self, run: live_run_state.Run, key: str) -> None:
        """Delete the job of a step, which may then begin again."""
        job = self._engine.find(job_uuid(run, key))
        if job is not None:
            transitions.delete(job, now=self._engine.now())
            self._engine.wake(job)

    def start(self, run: live_run_state.Run, key: str, work: step_inputs.StepWork) -> None:
        """Create the job of a step."""
        size = sum(map(len, map(bytes, (*work.items, *work.shared.values()))))
        if size > MAX_DEFINITION_BYTES:
            message = f"its items and inputs take {size} bytes, more than 16 MiB"
            run_planning.job_ended(
                run, key, live_run_state.JobEnd(False, _R.INPUT_TOO_LARGE, message)
            )
            self._on_change(run)
            return
        uuid, now = job_uuid(run, key), self._engine.now()
        source = self._sources.new(work)
        spec = index_item_source.IndexSpec(
            name=work.name,
            cluster_name=work.template.cluster_name,
            parallelism=work.parallel,
            priority=run.new.priority,
        )
        job = job_records.Job(
            job_model.JobId(uuid, ids.task_text(ids.TaskId(uuid))),
            row=self._engine.new_row(),
            namespace=run.new.namespace,
            spec=spec,
            source=source,
            created=now,
        )
        job.fresh = True
        if work.memo:
            self._reuse(run, job, source)
        job.changed(now)
        self._jobs[uuid] = (run, key)
        self._engine.add(job, None, None)

    def _reuse(
        self, run: live_run_state.Run, job: job_records.Job, source: step_item_source.StepItems
    ) -> None:
        """Mark those items as succeeded whose results are stored from an earlier generation."""
        reused, kept = 0, self._tables.memo_keys(source.definition.memo)
        for number in range(job.size) if kept else ():
            key = source.inputs.memo_key(number)
            if key in kept:
                self._writes.use_memo(key, run.new.key)
                job.items.set(number + 1, item_states.ItemState.SUCCEEDED, 1)
                reused += 1
        job.counts.succeeded = reused
        source.progress = step_item_source.StepProgress(reused=reused)

    def _read_results(self, run: live_run_state.Run, key: str, job: job_records.Job) -> None:
        """Read the results of a job that has ended, if the flow uses them, then report the job's
        end to the plan.
        """
        end, work = _job_end(job), job.source.definition
        if not work.wanted or not (end.succeeded or work.memo):
            self._report_end(run, key, end)
            return
        reading = step_results.StepResults(
            job,
            self._hub,
            kept=self._tables,
            keep=lambda memo, value: self._writes.put_memo(memo, work.memo, run.new.key, value),
        )

        def read_batch() -> None:
            if self._engine.is_stopped:
                return
            try:
                if reading.read_more():
                    loop.call_soon(read_batch)
                    return
            except Exception as error:  # noqa: BLE001 - half of it is in: only a restart mends that
                self._engine.fail(error)
                return
            self._dropped.pop(job.id.uuid, None)
            self._report_end(run, key, _with_results(end, reading, needed=work.needed))
            self._hub.wake()

        loop = asyncio.get_running_loop()
        self._dropped[job.id.uuid] = views.OpenJob(end.counts, 0, job.version)
        read_batch()

    def _report_end(self, run: live_run_state.Run, key: str, end: live_run_state.JobEnd) -> None:
        run_planning.job_ended(run, key, end)
        self._on_change(run)

    def delete(self, run: live_run_state.Run) -> None:
        """Delete the jobs of a run that has ended."""
        for record in run.records.values():
            if record.job:
                self.discard(run, record.key)


def job_uuid(run: live_run_state.Run, key: str) -> bytes:
    """Return the UUID of the job of a step instance.

    The UUID stays the same while the instance continues, also in later runs of the generation. It
    differs if the instance has begun again in a later run, or if the generation was deleted and
    started again.
    """
    new, number = run.new, run.records[key].run
    name = f"{new.generation}/{run.state.made}/{key}"
    return task_hub.extra_id(
        row_storage.uid_bytes(new.uid), name if number == 1 else f"{name}/{number}"
    )


def _is_finished(job: job_records.Job, record: live_run_state.Record) -> bool:
    """Return whether a step's job has ended and must not be run again.

    The step may need a later run of the job, which a crash may have kept out of the journal.
    """
    return job.verdict is filejobs.PartOutcome.SUCCEEDED or job.run >= record.job_run


def _job_end(job: job_records.Job) -> live_run_state.JobEnd:
    """Return the outcome of a step's job, without results."""
    work, cause = job.source.definition, job.source.progress.cause
    succeeded = job.verdict is filejobs.PartOutcome.SUCCEEDED
    reason = job.reason if work.variable else cause or job.reason
    return live_run_state.JobEnd(
        succeeded,
        reason="" if succeeded else reason,
        message="" if succeeded else job.message,
        cause=cause,
        counts=step_item_source.counts(job),
    )


def _with_results(
    end: live_run_state.JobEnd, reading: step_results.StepResults, *, needed: bool
) -> live_run_state.JobEnd:
    if reading.trouble and not needed:
        return end
    if reading.trouble:
        return end._replace(succeeded=False, reason=_R.RESULT_TOO_LARGE, message=reading.trouble)
    return end._replace(value=reading.value) if end.succeeded else end
