"""Measures the cost per item of an index set, on a dispatcher that runs every task at once.

`python -m support.index_job_cost 1000000` (in `tests`) prints the figures for so many items.
"""

import asyncio
import resource
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import engine, index_job_service, index_job_types
from kilnwork.kit import clock as clocks
from support import job_world

KEPT = 512
"""Number of finished tasks that are kept."""


class InstantDispatcher(job_world.Dispatcher):
    """A dispatcher whose tasks succeed when they are committed and are forgotten at once."""

    def run(self) -> None:
        ended = self.queued
        for entry in ended:
            entry.state, entry.attempt = api_task.State.SUCCESS, 1
            entry.result = attempts.Payload(attempts.JSON, b"0")
        self.tell(*ended)
        for task in list(self.tasks)[: max(len(self.tasks) - KEPT, 0)]:
            del self.tasks[task]


class Costs(NamedTuple):
    """The measured costs of a job."""

    seconds: float
    memory: int
    """Bytes that the process has grown by, at most."""
    disk: int
    """Bytes of the journal at the end, checkpointed."""
    pages: int
    """Bytes of the packed states in it."""
    slowest: float
    """How much longer the last tenth of the items took than the first."""


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def new_job(count: int) -> index_job_types.NewIndexJob:
    template = {"taskTemplate": {"command": ["true"]}, "parallelism": {"withCount": count}}
    return index_job_types.NewIndexJob(
        uid=str(uuid.UUID(bytes=bytes(range(16)))),
        namespace="ns",
        name="job",
        spec=msgspec.convert({"template": template}, api_job.JobSpec),
        created=time.time(),
    )


async def measure(directory: Path, count: int) -> Costs:
    """Run a Job of `count` indexes from its submission to its end."""
    dispatcher = InstantDispatcher(directory)
    dispatcher.start()
    clock = clocks.SystemClock()
    running = engine.Engine(dispatcher, blobs=directory / "blobs", clock=clock)
    jobs = index_job_service.IndexJobs(dispatcher, running, clock=clock)
    running.start()
    before, began = _peak(), time.monotonic()
    view = await jobs.put(new_job(count))
    job = running.live[uuid.UUID(view.uid).bytes]
    moments: list[float] = []
    while job.view is None or not job.view.phase.final:
        if not dispatcher.writing:
            dispatcher.run()
        await asyncio.sleep(0.001)
        while len(moments) <= 10 and job.counts.closed * 10 >= count * len(moments):
            moments.append(time.monotonic())
    seconds, memory = time.monotonic() - began, _peak() - before
    assert job.view.parts.succeeded == count
    assert not running.tasks
    found = jobs.view(view.uid)
    assert found is not None
    assert found.phase is api_job.Phase.SUCCEEDED
    pages = sum(len(packed) for _, packed in dispatcher.select("job_pages", 1, 0))
    await running.stop()
    dispatcher.stop()
    disk = sum(path.stat().st_size for path in directory.glob("journal.db*"))
    first, last = moments[1] - moments[0], moments[10] - moments[9]
    return Costs(seconds, memory, disk, pages, last / max(first, 1e-9))


def main(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kiln-items-") as directory:
        found = asyncio.run(measure(Path(directory), count))
    print(f"{count} items: {found}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
