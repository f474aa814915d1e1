"""Measures SyncSets on `kiln up`: how soon their flow runs, and what a shard costs.

    python bench/sync_sets.py [--only WORD] [--short] [--repeat N] [--no-gates] [--wait S]
                              [--directory DIR] [--json FILE]

A start is from the request that makes the SyncSet until the first task of its flow is at work, on
four workers and 100 MiB that the pond holds; it stands beside four bare Pods, from the request that
makes them until they run. Shards stand beside spawned tasks of the same server, on as many slots.
Run by `make bench`.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import frame  # noqa: E402
import jobs  # noqa: E402
import machine  # noqa: E402
from figures import Figure, Gate  # noqa: E402

from kilnwork.api import api_resources, kinds, meta  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from support import up_server as up_support  # noqa: E402

NS = jobs.NS
POND, SNAPSHOT = "bench", "data"
FILES, FILE_BYTES = 25, 4 << 20
WORKERS = 4
SHARDS = 20_000
SMALL = 100
"""Shards of the run whose time is taken off: what any flow costs."""

_FINAL = ("Succeeded", "Failed", "Killed", "AdmissionError")


def sync_set(name: str, flow: list[meta.JsonObject], **more: Any) -> meta.JsonObject:
    """Return a SyncSet on the data. `group`, `shard`: further fields."""
    group = {"name": "worker", **more.get("group", {})}
    snapshot = {"name": SNAPSHOT, "from": {"source": "lake"}, **more.get("snapshot", {})}
    return {
        "metadata": {"name": name},
        "spec": {
            "resources": {"groups": [group]},
            "data": {"pond": {"name": POND}, "snapshots": [snapshot]},
            "flow": {"do": flow},
        },
    }


class Story:
    """Phases of one SyncSet, with the wall clock time at which a watch first saw each."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}
        self.status: meta.JsonObject = {}

    def take(self, found: meta.JsonObject) -> bool:
        """Add a change; return True when the set has finished."""
        self.status = found.get("status") or {}
        phase = self.status.get("phase", "")
        self.phases.setdefault(phase, time.time())
        return phase in _FINAL


async def run_set(kube: kube_client.Client, body: meta.JsonObject) -> tuple[float, Story]:
    """Create a SyncSet and follow it to its end; return when it was created, and its phases."""
    name, story = body["metadata"]["name"], Story()
    listed = await kube.list(kinds.SYNC_SETS, NS, type=meta.Partial)
    began = time.time()

    async def follow() -> None:
        changes = kube.watch(
            kinds.SYNC_SETS, NS, resource_version=listed.resource_version, type=dict
        )
        async for change in changes:
            found = change.object
            if found and found["metadata"]["name"] == name and story.take(found):
                return

    following = asyncio.create_task(follow())
    await kube.create(kinds.SYNC_SETS, body, NS)
    await asyncio.wait_for(following, 600)
    assert story.status["phase"] == "Succeeded", story.status
    return began, story


async def bare_pods(kube: kube_client.Client, word: str) -> float:
    """Return the seconds from the request for the first of four Pods until all of them run."""
    container = {"name": "main", "image": "none", "command": ["sleep", "600"]}
    names = [f"bare-{word}-{number}" for number in range(WORKERS)]
    running: set[str] = set()
    listed = await kube.list(api_resources.PODS, NS, type=meta.Partial)

    async def follow() -> None:
        changes = kube.watch(
            api_resources.PODS, NS, resource_version=listed.resource_version, type=dict
        )
        async for change in changes:
            status = (change.object or {}).get("status") or {}
            if status.get("phase") == "Running":
                running.add(change.object["metadata"]["name"])
            if running >= set(names):
                return

    following = asyncio.create_task(follow())
    began = time.perf_counter()
    bodies = [{"metadata": {"name": n}, "spec": {"containers": [container]}} for n in names]
    await asyncio.gather(*(kube.create(api_resources.PODS, body, NS) for body in bodies))
    await asyncio.wait_for(following, 60)
    took = time.perf_counter() - began
    await asyncio.gather(*(kube.delete(api_resources.PODS, n, NS, grace_s=0) for n in names))
    return took


async def make_pond(kube: kube_client.Client, directory: Path, *, files: int, size: int) -> None:
    """Declare a pond of random files."""
    lake = directory / "lake"
    lake.mkdir()
    for number in range(files):
        (lake / f"f{number:03}").write_bytes(os.urandom(size))
    source = {"name": "lake", "uri": lake.as_uri()}
    body = {"metadata": {"name": POND}, "spec": {"sources": [source]}}
    await kube.create(kinds.DATA_PONDS, body, NS)


async def starts(server: up_support.UpServer, directory: Path, repeat: int) -> list[Figure]:
    """Measure from creation until tasks run, with the data present."""
    notes = directory / "notes"
    flow = [{"note": {"call": "work:note", "with": {"path": str(notes)}}}]
    group = {"replicas": WORKERS, "near": [SNAPSHOT]}
    taken, phases, floors = [], [], []
    async with jobs.connected(server) as kube:
        await make_pond(kube, directory, files=FILES, size=FILE_BYTES)
        await run_set(kube, sync_set("warm", flow, group=group))
        for number in range(repeat):
            floors.append(await bare_pods(kube, str(number)))
            await asyncio.sleep(1.0)  # what was made goes
            notes.unlink()
            began, story = await run_set(kube, sync_set(f"start-{number}", flow, group=group))
            taken.append(float(notes.read_text()) - began)
            phases.append({name: at - began for name, at in story.phases.items()})
            await kube.delete(kinds.SYNC_SETS, f"start-{number}", NS, propagation="Background")
            await asyncio.sleep(1.0)
    more = {
        f"{name} ms": round(1000 * statistics.median(one.get(name, 0.0) for one in phases))
        for name in ("Pending", "Fetching", "Placing", "Running", "Succeeded")
    }
    more["longest ms"] = round(1000 * max(taken))
    return [
        Figure(
            f"SyncSet of {WORKERS} workers created → its first task at work, 100 MiB there",
            statistics.median(taken),
            "s",
            statistics.median(floors),
            Gate(at_most=1.0),
            more=more,
        )
    ]


async def shards(
    server: up_support.UpServer, directory: Path, *, count: int, repeat: int
) -> list[Figure]:
    """Measure the cost of one more shard of a step, alternating with spawned tasks."""
    call = {"call": "work:nothing_with", "with": {"shard": "${ shard }"}}
    flow = [{"price": {"each": "shard", "of": f"data.{SNAPSHOT}", **call}}]
    group = {"replicas": 1, "slotsPerWorker": jobs.SLOTS}

    async def run(name: str, number: int) -> float:
        shard = {"shard": {"by": "range", "count": number}}
        _, story = await run_set(kube, sync_set(name, flow, group=group, snapshot=shard))
        await kube.delete(kinds.SYNC_SETS, name, NS, propagation="Background")
        return story.phases["Succeeded"] - story.phases["Running"]

    async def cost(name: str) -> tuple[float, float]:
        """Seconds and CPU seconds of the server that each shard takes, more than a few do."""
        small_s = await run(f"small-{name}", SMALL)
        before = machine.cpu_s(pids)
        large_s = await run(f"large-{name}", count)
        each = count - SMALL
        return (large_s - small_s) / each, (machine.cpu_s(pids) - before) / each

    assert server.process is not None
    pids = {server.process.pid}
    taken, spawned, cpu, spawned_cpu = [], [], [], []
    async with jobs.connected(server) as kube:
        await jobs.run_all(kube, [jobs.job("warm", 2_000)])
        await make_pond(kube, directory, files=1, size=1 << 20)
        await run("warm", SMALL)
        for number in range(repeat):
            before = machine.cpu_s(pids)
            spawned.append(1 / await asyncio.to_thread(jobs.spawn, server, jobs.TASKS))
            spawned_cpu.append((machine.cpu_s(pids) - before) / jobs.TASKS)
            each_s, each_cpu_s = await cost(str(number))
            taken.append(each_s)
            cpu.append(each_cpu_s)
    more = {
        "CPU µs of the server": round(1e6 * statistics.median(cpu)),
        "of a spawned task": round(1e6 * statistics.median(spawned_cpu)),
    }
    return [
        Figure(
            f"a shard of {count:,}, no-op",
            1e6 * statistics.median(taken),
            "µs",
            1e6 * statistics.median(spawned),
            Gate(at_most=2.0, ratio=True),
            more=more,
        )
    ]


def shapes(options: Any) -> dict[str, frame.Shape]:
    """Return all measurements by name."""

    def measured(
        measure: Callable[[up_support.UpServer, Path], Any], slots: int
    ) -> Iterator[Figure]:
        with tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=options.directory) as scratch:
            server = up_support.UpServer(Path(scratch) / "data", workdir=HERE, slots=slots)
            server.start()
            try:
                yield from asyncio.run(measure(server, Path(scratch)))
            finally:
                server.stop()

    repeat, count = options.repeat, SHARDS // (5 if options.short else 1)
    return {
        "starts": lambda: measured(lambda up, directory: starts(up, directory, repeat), WORKERS),
        "shards": lambda: measured(
            lambda up, directory: shards(up, directory, count=count, repeat=min(repeat, 3)),
            jobs.SLOTS,
        ),
    }


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    parser = frame.parser(__doc__, name="sync_sets")
    parser.add_argument("--short", action="store_true", help="a fifth of the shards")
    options = parser.parse_args()
    return frame.run(shapes(options), options, again=False)


if __name__ == "__main__":
    sys.exit(main())
