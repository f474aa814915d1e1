"""Jobs on a real dispatcher with a real worker; the dispatcher may be restarted.

Used by tests of `jobs.index_job_service`. The functions that slots call are in
`support.index_function` and use the data directory.
"""

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.dispatch.hub import hub
from kilnwork.jobs import (
    index_job_service,
    index_job_types,
    job_start_queue,
    service_assembly,
    task_hub,
)
from kilnwork.kit import clock as clocks
from support import hubs, short_paths, waiting, worker_process

NS = "default"
CONFIG = str(uuid.UUID(int=7))
"""uid of the JobConfig of groups."""

_TESTS = str(Path(__file__).parents[1])


def new_uid() -> str:
    return str(uuid.uuid4())


class World:
    """A data directory with dispatcher and jobs, and a worker."""

    def __init__(self, directory: Path, run: Path, *, kept_tasks: int | None = None) -> None:
        self.directory, self.socket, self.kept_tasks = directory, run / "channel.sock", kept_tasks
        self.worker = worker_process.WorkerProcess(
            directory, channel=self.socket, PYTHONPATH=_TESTS
        )
        self.time = clocks.SystemClock()
        self.hub: hub.Hub
        self.services: service_assembly.JobServices
        self.jobs: index_job_service.IndexJobs

    async def start(self) -> None:
        options = hub.HubOptions(blobs_dir=self.directory / "blobs")
        self.hub = hubs.make(self.directory, clock=self.time, secret="opensesame", options=options)
        await self.hub.start(self.socket)
        self.services = service_assembly.JobServices(
            self.directory, self.hub.participation, clock=self.time
        )
        if self.kept_tasks is not None:
            self.services.engine.kept_tasks = self.kept_tasks
        self.jobs = self.services.indexes
        await self.services.start()

    async def stop(self) -> None:
        await self.services.stop()
        await self.hub.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def template(self, **fields: Any) -> dict[str, Any]:
        """Return a template whose indexes call `index_function.square`."""
        task = self.call("square", "${task.index_num}", str(self.directory))
        return {"taskTemplate": task, **fields}

    def call(self, function: str, *args: str) -> dict[str, Any]:
        """Return a taskTemplate that calls a function of `index_function`."""
        call = {"function": f"support.index_function:{function}", "args": args}
        return {"clusterName": "counter", "call": call}

    def group(
        self, policy: str, *, config: str = CONFIG, most: int = 1, queued: int = 20
    ) -> job_start_queue.ConcurrencyGroup:
        return job_start_queue.ConcurrencyGroup(
            config=config,
            name="nightly",
            policy=api_job.ConcurrencyPolicy(policy),
            max_concurrency=most,
            max_queued=queued,
        )

    def new(
        self, name: str = "job", *, template: dict[str, Any] | None = None, **fields: Any
    ) -> index_job_types.NewIndexJob:
        """Return a new Job; `fields` are fields of the spec or of `NewIndexJob`."""
        own = {key: fields.pop(key) for key in list(fields) if key in _NEW}
        spec = {"template": self.template() if template is None else template, **fields}
        return index_job_types.NewIndexJob(
            uid=own.pop("uid", None) or new_uid(),
            namespace=NS,
            name=name,
            spec=msgspec.convert(spec, api_job.JobSpec),
            created=self.time.wall(),
            **own,
        )

    async def put(self, name: str = "job", **fields: Any) -> str:
        """Create a Job; return its uid."""
        return (await self.jobs.put(self.new(name, **fields))).uid

    def view(self, uid: str) -> index_job_types.IndexJobView:
        found = self.jobs.view(uid)
        assert found is not None, uid
        return found

    async def until(
        self, uid: str, what: Callable[[index_job_types.IndexJobView], object]
    ) -> index_job_types.IndexJobView:
        def look() -> index_job_types.IndexJobView | None:
            view = self.view(uid)
            return view if what(view) else None

        found = await waiting.wait_until_async(look, what=f"job {uid}", timeout_s=60.0)
        assert found is not None
        return found

    async def wait_until_finished(self, uid: str) -> index_job_types.IndexJobView:
        return await self.until(uid, lambda view: view.phase.final)

    def task(self, uid: str, item: int) -> Any:
        """Return the view of the task of an item (index + 1), or of the finalizer (0)."""
        return self.hub.view(task_hub.task_id(uuid.UUID(uid).bytes, item))

    def tasks(self, uid: str, count: int) -> dict[int, api_task.State]:
        """Return the states of the index tasks that the dispatcher has."""
        found = ((number, self.task(uid, number + 1)) for number in range(count))
        return {number: view.state for number, view in found if view is not None}

    async def flush(self) -> None:
        """Wait until the consequences of the newest batch are on disk too."""
        for _ in range(2):
            await self.hub.participation.write([])

    async def release_hold(self, name: str = "hold") -> None:
        """Remove a hold file, so that calls that wait for its removal go on."""
        (self.directory / name).unlink()

    @property
    def size(self) -> int:
        """Return the size of the journal in bytes, without its write-ahead log."""
        with contextlib.closing(apsw.Connection(str(self.directory / "journal.db"))) as found:
            return int(found.pragma("page_count")) * int(found.pragma("page_size"))

    @property
    def notes(self) -> list[str]:
        path = self.directory / "notes"
        return path.read_text().split() if path.exists() else []

    @property
    def calls(self) -> list[int]:
        path = self.directory / "calls"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    async def wait_for_calls(self, number: int) -> None:
        """Wait until so many indexes were called."""
        await waiting.wait_until_async(
            lambda: len(self.calls) >= number, what=f"{number} calls", timeout_s=60.0
        )

    async def wait_for_notes(self, number: int) -> list[str]:
        """Wait until so many notes were written; return them."""
        await waiting.wait_until_async(
            lambda: len(self.notes) >= number, what=f"{number} notes", timeout_s=60.0
        )
        return self.notes


_NEW = set(index_job_types.NewIndexJob.__struct_fields__) - {"namespace", "name", "spec", "created"}


@contextlib.asynccontextmanager
async def running(directory: Path, *, kept_tasks: int | None = None) -> AsyncIterator[World]:
    made = World(directory, short_paths.directory(), kept_tasks=kept_tasks)
    await made.start()
    made.worker.start()
    try:
        yield made
    finally:
        made.worker.destroy()
        await made.stop()
