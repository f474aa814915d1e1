"""Measures commands as ephemeral containers beside the same on warm workers.

    python bench/ephemeral.py [--only WORD] [--repeat N] [--no-gates] [--wait S] [--folder DIR]
                              [--json FILE]

One `kiln up` with a TaskCluster of three workers for each runtime. `many` puts 5,000 tasks through
three Pods that are replaced when they are full. Not run by `make bench`, since it takes minutes.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import frame  # noqa: E402
import msgspec  # noqa: E402
import pods  # noqa: E402
from figures import Figure, Gate  # noqa: E402

from kilnwork.api import kinds, meta, resource  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from support import up as up_support  # noqa: E402

WORKERS, SLOTS = 3, 2
ALONE = 30
COUNT = 120
MANY = int(os.environ.get("BENCH_EPHEMERAL_TASKS", "5000"))
RUNTIMES = {"agent": "Agent", "containers": "EphemeralContainers"}


def cluster(name: str) -> meta.JsonObject:
    spec = {"replicas": WORKERS, "slotsPerWorker": SLOTS, "runtime": RUNTIMES[name]}
    return {"metadata": {"name": name}, "spec": spec}


def task(name: str, of: str) -> meta.JsonObject:
    return {"metadata": {"name": name}, "spec": {"clusterName": of, "command": ["true"]}}


class Traffic:
    """What one watch of the worker Pods of a cluster brings."""

    def __init__(self, kube: kube_client.Client, cluster: str) -> None:
        self._kube = kube
        self._selector = f"kilnwork.dev/cluster={cluster}"
        self.changes = self.bytes = self.largest = self.most = 0
        self.uids: set[str] = set()

    async def follow(self, version: str) -> None:
        while True:
            async for change in self._kube.watch(
                resource.PODS, "default", resource_version=version, type=dict,
                label_selector=self._selector,
            ):  # fmt: skip
                version = change.resource_version
                if change.object:
                    self._count(change.object)

    def _count(self, found: dict[str, Any]) -> None:
        size = len(msgspec.json.encode(found))
        self.changes += 1
        self.bytes += size
        self.largest = max(self.largest, size)
        self.most = max(self.most, len(found["spec"].get("ephemeralContainers", ())))
        self.uids.add(found["metadata"]["uid"])


async def wait_ready(kube: kube_client.Client, name: str) -> None:
    while True:
        found = await kube.get(kinds.TASK_CLUSTERS, name, "default")
        if found.get("status", {}).get("availableReplicas") == WORKERS:
            return
        await asyncio.sleep(0.1)


async def measured(
    kube: kube_client.Client, of: str, count: int, *, alone: int = 0
) -> tuple[float, list[float], Traffic, float]:
    """Seconds for `count` tasks, seconds of each of `alone` after another, the traffic of Pods, and
    writes a task."""
    singles = [task(f"{of}-alone-{number}", of) for number in range(alone)]
    took = [await pods.run_all(kube, kinds.TASKS, [one]) for one in singles]
    listed = await kube.list(resource.PODS, "default", type=meta.Partial)
    traffic = Traffic(kube, of)
    following = asyncio.create_task(traffic.follow(listed.resource_version))
    before = await pods.version(kube)
    names = [f"{of}-{number}" for number in range(count)]
    seconds = await pods.run_all(kube, kinds.TASKS, [task(name, of) for name in names])
    await asyncio.sleep(1)  # what is written after the end
    writes = (await pods.version(kube) - before) / count
    following.cancel()
    return seconds, took, traffic, writes


async def compare(server: up_support.Up) -> Iterator[Figure]:
    """Both runtimes, one after the other."""
    figures = []
    async with kube_client.Client(kube_config.load(server.data / "kubeconfig")) as kube:
        for name in RUNTIMES:
            await kube.create(kinds.TASK_CLUSTERS, cluster(name), "default")
            await wait_ready(kube, name)
            await pods.run_all(kube, kinds.TASKS, [task(f"{name}-first", name)])
            seconds, alone, traffic, writes = await measured(kube, name, COUNT, alone=ALONE)
            p50 = statistics.median(alone) * 1000
            figures += [
                Figure(f"{name}: one task, created to Success, p50", p50, "ms"),
                Figure(f"{name}: tasks", COUNT / seconds, "/s"),
                Figure(f"{name}: API writes of a task", writes, ""),
                Figure(f"{name}: changes of worker Pods, of a task", traffic.changes / COUNT, ""),
                Figure(
                    f"{name}: bytes of them on a watch, of a task",
                    traffic.bytes / COUNT / 1024, "KiB",
                    more={"largest Pod KiB": traffic.largest // 1024},
                ),
            ]  # fmt: skip
    return iter(figures)


async def many(server: up_support.Up) -> Iterator[Figure]:
    """Thousands of tasks, through Pods that are replaced."""
    name = "containers"
    async with kube_client.Client(kube_config.load(server.data / "kubeconfig")) as kube:
        await kube.create(kinds.TASK_CLUSTERS, cluster(name), "default")
        await wait_ready(kube, name)
        quarter = MANY // 4
        began = time.perf_counter()
        rates, most, largest = [], 0, 0
        uids: set[str] = set()
        for part in range(4):
            listed = await kube.list(resource.PODS, "default", type=meta.Partial)
            traffic = Traffic(kube, name)
            following = asyncio.create_task(traffic.follow(listed.resource_version))
            bodies = [task(f"many-{part}-{number}", name) for number in range(quarter)]
            seconds = await pods.run_all(kube, kinds.TASKS, bodies)
            following.cancel()
            rates.append(quarter / seconds)
            most, largest = max(most, traffic.most), max(largest, traffic.largest)
            uids |= traffic.uids
        took = time.perf_counter() - began
        listed = await kube.list(kinds.TASKS, "default", type=dict)
        good = sum(t["status"]["state"] == "Success" for t in listed.items)
        lost = sum(t["status"].get("losses", 0) for t in listed.items)
    rss = resident(server)
    gate = Gate(at_most=499)
    more = {"succeeded": good, "losses": lost, "Pods": len(uids), "seconds": round(took)}
    return iter(
        [
            Figure(f"{MANY:,} tasks through 3 Pods: last quarter", rates[-1], "/s", rates[0],
                   Gate(at_least=0.8, ratio=True), more),
            Figure("containers of one Pod, at most", most, "", gate=gate),
            Figure("largest Pod", largest / 1024, "KiB", gate=Gate(at_most=512)),
            Figure("server's memory after that", rss, "MiB"),
        ]
    )  # fmt: skip


def resident(server: up_support.Up) -> float:
    """Of `kiln up` itself, MiB."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS")) / 1024


def shapes(folder: Path) -> dict[str, frame.Shape]:
    """By name."""

    def run(kind: str) -> Iterator[Figure]:
        with (
            tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=folder) as scratch,
            up_support.serving(Path(scratch)) as server,
        ):
            yield from asyncio.run(compare(server) if kind == "compare" else many(server))

    return {"compare": lambda: run("compare"), "many": lambda: run("many")}


def main() -> int:
    """Measure, print, write; 1 when a gate was missed."""
    options = frame.parser(__doc__, name="ephemeral").parse_args()
    return frame.run(shapes(options.folder), options)


if __name__ == "__main__":
    sys.exit(main())
