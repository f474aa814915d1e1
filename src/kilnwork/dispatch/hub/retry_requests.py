"""Retries failed tasks: reads from the journal which tasks to run again, and starts them at once.

Used by the hub, for the server, and by `submitters`, for drivers. Decides nothing itself:
`journal.retry_selection` decides which tasks run again, `machine.requested_reruns` how.
"""

import asyncio

from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import commits
from kilnwork.dispatch.journal import restore, retry_selection, task_rows
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids

_OF_OBJECTS = "task {0} is an object: `kiln retry {0} --failed` raises its spec.run"

_OF_JOB = "task {0} works for a job: `kiln retry JOB --failed` runs again what failed of that"


_OF_GONE_JOB = (
    "task {0} was part of a job that is deleted and would run for nothing: `kiln delete task {1}` "
    "forgets it"
)

_JOB_ID_VERSION = 8
"""Version of the ids of tasks of jobs (`jobs.task_hub.task_id`): only these are UUIDv8."""


class RetryRequests:
    """Carries out requests to run tasks again, with the journal's rows of these tasks."""

    def __init__(self, core: commits.Core) -> None:
        self._core = core

    async def retry(self, task: ids.TaskId, *, force: bool = False) -> None:
        """Start a new run of a finished spawned task, as `Hub.retry`."""
        self._core.check()
        row = self._core.reader.task_row(task)
        refusal = restore.rerun_refusal(row, force=force)
        if row is None or refusal:
            raise errors.RunRefused(refusal)
        self._check_job(row)
        values = self._core.reader.values(row.namespace, row.needed)
        self._core.apply(restore.rerun(row, values))
        await self._core.flush()

    async def ask(self, message: messages.Retry, namespace: str) -> None:
        """Carry out a Retry message, whose submitter may use only tasks of `namespace`. Raises
        `RunRefused`.
        """
        row = self._core.reader.task_row(message.task)
        if row is not None and row.namespace != namespace:
            # As if it did not exist: even its name would say something about another namespace.
            row = None
        if row is None:
            raise errors.RunRefused(restore.rerun_refusal(None, force=False))
        # The message was sent again after a reconnect: the run that it asked for goes on.
        if message.started and not api_task.State(row.state).final:
            return
        if row.declared:
            raise errors.RunRefused(_OF_OBJECTS.format(row.shown_name))
        if message.failed:
            await self.retry_failed(message.task, objects=False)
        else:
            await self.retry(message.task, force=message.force)

    async def retry_failed(self, task: ids.TaskId, *, objects: bool) -> model.Retried:
        """Run a failed task and the failed tasks connected to it again, as `Hub.retry_failed`."""
        self._core.check()
        namespace = self._row(task).namespace
        # Tasks that have failed since are left out; those that run again since are found below.
        needs = await asyncio.to_thread(self._core.reader.failed_dependents, namespace)
        # From here on there is no await: what is read stays true until it is applied.
        plan = retry_selection.plan(
            self._row(task), self._core.reader.task_row, retry_selection.dependents_of(needs)
        )
        # Children have the source of their parents.
        sources = {row.source: row for row in plan.rows if row.source and row.parent is None}
        for source, row in sources.items():
            if self._is_of_job(source):
                raise errors.RunRefused(_OF_JOB.format(row.shown_name))
            self._check_job(row)
        if plan.declared and not objects:
            raise errors.RunRefused(_OF_OBJECTS.format(plan.declared[0].shown_name))
        self._core.apply(inputs.RetryFailed(retry_selection.reruns(plan, self._core.reader)))
        await self._core.flush()
        return model.Retried(
            tasks=tuple(row.task for row in plan.rows),
            declared=tuple(row.shown_name for row in plan.declared),
            left=plan.left,
        )

    def earlier(self, task: ids.TaskId) -> inputs.Earlier | None:
        """Return the children of a task's newest run, or None if that run has not failed."""
        row = self._core.reader.task_row(task)
        return None if row is None else self._core.reader.earlier(row)

    def _check_job(self, row: task_rows.TaskRow) -> None:
        """Raise `RunRefused` for a task whose job is deleted."""
        of_job = row.task[6] >> 4 == _JOB_ID_VERSION and row.parent is None and not row.declared
        if of_job and self._core.participants and not self._is_of_job(row.source or b""):
            short = ids.task_text(row.task)[-8:]
            raise errors.RunRefused(_OF_GONE_JOB.format(row.shown_name, short))

    def _is_of_job(self, source: bytes) -> bool:
        """Return whether a task with this source belongs to a job.

        The source of all tasks of a job is the UUID of the job. The job decides which run of such a
        task counts.
        """
        if not self._core.participants:
            return False
        return bool(self._core.reader.select("job_by_uuid", source))

    def _row(self, task: ids.TaskId) -> task_rows.TaskRow:
        row = self._core.reader.task_row(task)
        refusal = restore.failed_refusal(row)
        if row is None or refusal:
            raise errors.RunRefused(refusal)
        return row
