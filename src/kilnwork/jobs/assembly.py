"""The services of jobs on one engine: made together, started and stopped in one order.

Used where a dispatcher is put together (`cli.wiring`) and by tests. File jobs and Jobs know nothing
of each other.
"""

from collections.abc import Callable
from pathlib import Path

from kilnwork.jobs import engine, index_jobs, old_database, service, task_hub
from kilnwork.jobs.flows import runs
from kilnwork.kit import clock as clocks


class JobServices:
    """The services of jobs. `files`: jobs on files; `indexes`: Jobs; `flows`: runs of SyncSets.
    `retry_s`: between tries of what the store refused. `on_failure` is called when nothing can be
    decided any more."""

    def __init__(
        self,
        data: Path,
        hub: task_hub.TaskHub,
        *,
        clock: clocks.Clock,
        options: service.FileJobOptions = service.DEFAULTS,
        retry_s: float = 1.0,
        on_failure: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.engine = engine.Engine(
            hub, blobs=data / "blobs", clock=clock, retry_s=retry_s, on_failure=on_failure
        )
        self.files = service.FileJobs(data, hub, self.engine, clock=clock, options=options)
        self.indexes = index_jobs.IndexJobs(hub, self.engine, clock=clock)
        self.flows = runs.FlowRuns(hub, self.engine, clock=clock, blobs=data / "blobs")

    async def start(self, *, say: old_database.Say = lambda text: None) -> None:
        """Go on with everything unfinished; the dispatcher runs. `say` is called with what takes
        long. Raises `OldDatabaseUnreadable`; `StoreRefused` where files cannot be kept."""
        await self.files.load(say=say)
        self.engine.start()
        self.flows.load()
        self.files.start()

    async def stop(self) -> None:
        """Start nothing more, finish what is being written; jobs go on at the next start."""
        await self.files.stop()
        await self.engine.stop()
        self.indexes.stop()
        self.flows.stop()
