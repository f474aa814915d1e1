"""An index set on a dispatcher that does everything at once, to measure what its items cost.

`python -m support.index_world 1000000` (in `tests`) prints the figures of so many.
"""

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.jobs import engine, model, records, rows, tables
from kilnwork.kit import clock as clocks
from support import index_items, job_world

KEPT = 512
"""Tasks that are over and may still be asked for."""


class Instant(job_world.Dispatcher):
    """A dispatcher whose tasks succeed as soon as they are committed, and are then forgotten."""

    def run(self) -> None:
        ended = self.queued
        for entry in ended:
            call = entry.submission.spec.call
            assert call is not None
            entry.state, entry.attempt = api_task.State.SUCCESS, 1
            entry.result = attempts.Payload(attempts.JSON, msgspec.json.encode(call.args[0]))
        self.tell(*ended)
        for task in list(self.tasks)[: max(len(self.tasks) - KEPT, 0)]:
            del self.tasks[task]


class Costs(NamedTuple):
    """What a job has cost."""

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


async def measure(folder: Path, count: int) -> Costs:
    """Run a job of `count` items from its submission to its end."""
    dispatcher = Instant(folder)
    dispatcher.start()
    running = engine.Engine(
        dispatcher,
        sources={"index": index_items.IndexKind()},
        clock=clocks.SystemClock(),
        ttl_s=None,
    )
    running.start()
    before, began = _peak(), time.monotonic()
    job = records.Job(
        model.JobId(bytes(range(16)), "job"),
        row=1,
        namespace="ns",
        spec=index_items.IndexSpec(str(folder)),
        source=index_items.IndexItems(index_items.IndexSet(count), index_items.IndexProgress()),
        created=time.time(),
    )
    job.fresh = True
    running.add(job, None, None)
    moments: list[float] = []
    while (view := job.view) is None or not view.phase.final:
        if not dispatcher.writing:
            dispatcher.run()
        await asyncio.sleep(0.001)
        if job.counts.closed * 10 >= count * len(moments):
            moments.append(time.monotonic())
    seconds, memory = time.monotonic() - began, _peak() - before
    assert view.parts.succeeded == count
    assert view.progress.sum == count * (count + 1) // 2
    assert not running.tasks
    found = tables.Tables(dispatcher.select).job("id", "job")
    assert found is not None
    assert rows.view_of(found, index_items.IndexKind()).phase.final
    pages = sum(len(packed) for _, packed in dispatcher.select("job_pages", 1, 0))
    await running.stop()
    dispatcher.stop()
    disk = sum(path.stat().st_size for path in folder.glob("journal.db*"))
    first, last = moments[1] - moments[0], moments[10] - moments[9]
    return Costs(seconds, memory, disk, pages, last / first)


def main(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kiln-items-") as folder:
        found = asyncio.run(measure(Path(folder), count))
    print(f"{count} items: {found}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
