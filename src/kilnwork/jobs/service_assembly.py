"""Assembly of the job services: creates all services on one engine, and starts and stops them in
order.

Used where a dispatcher is put together (`cli.wiring`) and by tests. The services do not know each
other.
"""

from collections.abc import Callable
from pathlib import Path

from kilnwork.jobs import engine, file_job_service, index_job_service, old_database_import, task_hub
from kilnwork.jobs.flows import flow_service
from kilnwork.kit import clock as clocks


class JobServices:
    """The services of jobs on one engine. `files`: jobs on files; `indexes`: Jobs; `flows`: runs of
    SyncSets.

    `retry_s` is the delay before a step that failed, for example in the store, is retried.
    `on_failure` is called when the engine has failed and can make no more decisions.
    """

    def __init__(
        self,
        data: Path,
        hub: task_hub.TaskHub,
        *,
        clock: clocks.Clock,
        options: file_job_service.FileJobOptions = file_job_service.DEFAULTS,
        retry_s: float = 1.0,
        on_failure: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.engine = engine.Engine(
            hub, blobs=data / "blobs", clock=clock, retry_s=retry_s, on_failure=on_failure
        )
        self.files = file_job_service.FileJobs(data, hub, self.engine, clock=clock, options=options)
        self.indexes = index_job_service.IndexJobs(hub, self.engine, clock=clock)
        self.flows = flow_service.FlowRuns(hub, self.engine, clock=clock, blobs=data / "blobs")

    async def start(self, *, say: old_database_import.Say = lambda text: None) -> None:
        """Start the services and resume all unfinished jobs. The dispatcher must be running.

        `say` is called with a description of each slow operation. Raises `OldDatabaseUnreadable`,
        and `StoreRefused` if the files of jobs cannot be stored.
        """
        await self.files.load(say=say)
        self.engine.start()
        self.flows.load()
        self.files.start()

    async def stop(self) -> None:
        """Stop the services, start no more tasks, and wait for the work on the store that is in
        progress; unfinished jobs resume at the next start.
        """
        await self.files.stop()
        await self.engine.stop()
        self.indexes.stop()
        self.flows.stop()
