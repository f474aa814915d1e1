"""Measures commands as ephemeral containers beside the same on warm workers.

    python bench/ephemeral.py [--only WORD] [--repeat N] [--no-gates] [--wait S] [--directory DIR]
                              [--json FILE]

One `kiln up` with a TaskCluster of three workers for each runtime. `reports` says how long after a
node's report a Task is over; `many` puts 5,000 tasks through three Pods that are replaced when they
are full. Not run by `make bench`, since it takes minutes.
"""

import asyncio
import contextlib
import functools
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
import machine  # noqa: E402
import msgspec  # noqa: E402
import pods  # noqa: E402
from figures import Figure, Gate  # noqa: E402

from kilnwork.api import api_resources, kinds, meta  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from kilnwork.kube import errors  # noqa: E402
from support import up_server as up_support  # noqa: E402

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
    """Number and size of changes on one watch of the worker Pods of a cluster."""

    def __init__(self, kube: kube_client.Client, cluster: str) -> None:
        self._kube = kube
        self._selector = f"kilnwork.dev/cluster={cluster}"
        self.changes = self.bytes = self.largest = 0

    async def follow(self, version: str) -> None:
        while True:
            async for change in self._kube.watch(
                api_resources.PODS, "default", resource_version=version, type=dict,
                label_selector=self._selector,
            ):  # fmt: skip
                version = change.resource_version
                if change.object:
                    size = len(msgspec.json.encode(change.object))
                    self.changes += 1
                    self.bytes += size
                    self.largest = max(self.largest, size)


class _State(msgspec.Struct, frozen=True):
    terminated: dict[str, Any] | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str
    state: _State = _State()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    ephemeral_containers: tuple[_Container, ...] = ()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    ephemeral_container_statuses: tuple[_Container, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    """The counted fields of a Pod; the rest of a large Pod is skipped."""

    metadata: meta.ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class Reports:
    """Times at which the node reported the end of each container and at which its Task had it, both
    as one client's watch sees them.
    """

    def __init__(self, kube: kube_client.Client) -> None:
        self._kube = kube
        self._reported: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self.most: dict[str, int] = {}
        """Containers of each Pod, by its uid."""
        self.largest = 0
        """Bytes of a Pod, as read every other second."""

    async def follow(self) -> None:
        await asyncio.gather(self._pods(), self._tasks(), self._sizes())

    def took(self) -> list[float]:
        """Return the seconds from report to Task of all finished ones, in order."""
        both = self._reported.keys() & self._ended.keys()
        return sorted(self._ended[uid] - self._reported[uid] for uid in both)

    async def _pods(self) -> None:
        listed = await self._kube.list(api_resources.PODS, "default", type=meta.Partial)
        version = listed.resource_version
        while True:
            async for change in self._kube.watch(
                api_resources.PODS, "default", resource_version=version, type=_Pod
            ):
                version, now = change.resource_version, time.perf_counter()
                if change.object is None:
                    continue
                uid = change.object.metadata.uid
                count = len(change.object.spec.ephemeral_containers)
                self.most[uid] = max(count, self.most.get(uid, 0))
                for one in reversed(change.object.status.ephemeral_container_statuses):
                    if one.state.terminated is not None:
                        self._reported.setdefault(one.name.split("-")[1], now)

    async def _sizes(self) -> None:
        while True:
            await asyncio.sleep(2)
            listed = await self._kube.list(api_resources.PODS, "default", type=meta.Partial)
            for one in listed.items:
                path = f"{api_resources.PODS.base('default')}/{one.metadata.name}"
                with contextlib.suppress(errors.NotFound):
                    found = await self._kube.raw("GET", path)
                    self.largest = max(self.largest, len(found.body))

    async def _tasks(self) -> None:
        listed = await self._kube.list(kinds.TASKS, "default", type=meta.Partial)
        version = listed.resource_version
        while True:
            async for change in self._kube.watch(
                kinds.TASKS, "default", resource_version=version, type=dict
            ):
                version, now = change.resource_version, time.perf_counter()
                if change.object and "finishTime" in (change.object.get("status") or {}):
                    uid = change.object["metadata"]["uid"].replace("-", "")
                    self._ended.setdefault(uid, now)


async def wait_ready(kube: kube_client.Client, name: str) -> None:
    while True:
        found = await kube.get(kinds.TASK_CLUSTERS, name, "default")
        if found.get("status", {}).get("availableReplicas") == WORKERS:
            return
        await asyncio.sleep(0.1)


async def measured(
    kube: kube_client.Client, of: str, count: int, *, alone: int = 0
) -> tuple[float, list[float], Traffic, float]:
    """Return the seconds for `count` tasks, the seconds of each of `alone` single tasks, the
    traffic of Pods, and writes a task.
    """
    singles = [task(f"{of}-alone-{number}", of) for number in range(alone)]
    took = [await pods.run_all(kube, kinds.TASKS, [one]) for one in singles]
    listed = await kube.list(api_resources.PODS, "default", type=meta.Partial)
    traffic = Traffic(kube, of)
    following = asyncio.create_task(traffic.follow(listed.resource_version))
    before = await pods.version(kube)
    names = [f"{of}-{number}" for number in range(count)]
    seconds = await pods.run_all(kube, kinds.TASKS, [task(name, of) for name in names])
    await asyncio.sleep(1)  # what is written after the end
    writes = (await pods.version(kube) - before) / count
    following.cancel()
    return seconds, took, traffic, writes


async def reports(server: up_support.UpServer) -> Iterator[Figure]:
    """Measure from the report of a container's end to the state of its Task: one at a time, then 8
    at a time.
    """
    name, figures = "containers", []
    async with kube_client.Client(kube_config.load(server.data / "kubeconfig")) as kube:
        await kube.create(kinds.TASK_CLUSTERS, cluster(name), "default")
        await wait_ready(kube, name)
        await pods.run_all(kube, kinds.TASKS, [task("first", name)])
        for how, size in (("alone", 1), ("8 at a time", COUNT)):
            seen = Reports(kube)
            following = asyncio.create_task(seen.follow())
            await asyncio.sleep(0.5)  # both watches are there
            for begin in range(0, COUNT, size):
                names = [f"{how.partition(' ')[0]}-{n}" for n in range(begin, begin + size)]
                await pods.run_all(kube, kinds.TASKS, [task(one, name) for one in names])
            await asyncio.sleep(0.5)
            following.cancel()
            took = seen.took()
            assert len(took) == COUNT, len(took)
            more = {"p50 ms": round(statistics.median(took) * 1000, 1)}
            gate = Gate(at_most=100) if size == 1 else None  # else it is the queue that is measured
            figures.append(
                Figure(
                    f"{how}: container reported over → Task, p99",
                    took[int(COUNT * 0.99)] * 1000, "ms", None, gate, more,
                )
            )  # fmt: skip
    return iter(figures)


async def compare(server: up_support.UpServer) -> Iterator[Figure]:
    """Measure both runtimes, one after the other."""
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


async def many(server: up_support.UpServer) -> Iterator[Figure]:
    """Run thousands of tasks through Pods that are replaced; measure what the server holds
    meanwhile.
    """
    name, states, rates = "containers", [], []
    async with kube_client.Client(kube_config.load(server.data / "kubeconfig")) as kube:
        await kube.create(kinds.TASK_CLUSTERS, cluster(name), "default")
        await wait_ready(kube, name)
        await pods.run_all(kube, kinds.TASKS, [task("first", name)])
        seen = Reports(kube)
        following = asyncio.create_task(seen.follow())
        began = time.perf_counter()
        states.append(server_usage(server))
        for part in range(4):
            bodies = [task(f"many-{part}-{number}", name) for number in range(MANY // 4)]
            rates.append(MANY // 4 / await pods.run_all(kube, kinds.TASKS, bodies))
            states.append(server_usage(server))
            print(f"  {part + 1} of 4: {rates[-1]:.1f}/s", states[-1], flush=True)
        took = time.perf_counter() - began
        following.cancel()
        listed = await kube.list(kinds.TASKS, "default", type=dict)
        good = sum(t["status"]["state"] == "Success" for t in listed.items)
        lost = sum(t["status"].get("losses", 0) for t in listed.items)
    more = {"succeeded": good - 1, "losses": lost, "Pods": len(seen.most), "seconds": round(took)}
    first, last = states[1], states[-1]
    late = seen.took()
    return iter(
        [
            Figure(f"{MANY:,} tasks through 3 Pods: last quarter", rates[-1], "/s", rates[0],
                   Gate(at_least=0.8, ratio=True), more),
            Figure("containers of one Pod, at most", max(seen.most.values()), "",
                   gate=Gate(at_most=499)),
            Figure("largest Pod", seen.largest / 1024, "KiB", gate=Gate(at_most=512)),
            Figure("container reported over → Task, p99", late[int(len(late) * 0.99)] * 1000, "ms",
                   more={"p50 ms": round(statistics.median(late) * 1000, 1)}),
            Figure("server's memory after it, and after a quarter", last["MiB"], "MiB",
                   first["MiB"], more=dict(enumerate(states))),
            Figure("server's processor, of a task of the last quarter",
                   (last["CPU s"] - states[-2]["CPU s"]) * 4000 / MANY, "ms",
                   (first["CPU s"] - states[0]["CPU s"]) * 4000 / MANY),
        ]
    )  # fmt: skip


def server_usage(server: up_support.UpServer) -> dict[str, float]:
    """Return memory, CPU seconds and database sizes of `kiln up` so far."""
    assert server.process is not None
    home = Path(f"/proc/{server.process.pid}")
    status = (home / "status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
    ticks = (home / "stat").read_text().rpartition(")")[2].split()
    found = {"MiB": round(resident, 1), "CPU s": sum(map(int, ticks[11:13])) / machine.TICKS}
    for file in sorted(server.data.rglob("*.db*")):
        found[f"{file.name} MiB"] = round(file.stat().st_size / 2**20, 1)
    return found


SHAPES = {"compare": compare, "reports": reports, "many": many}


def shapes(directory: Path) -> dict[str, frame.Shape]:
    """Return all measurements by name."""

    def run(kind: str) -> Iterator[Figure]:
        with (
            tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=directory) as scratch,
            up_support.serving(Path(scratch)) as server,
        ):
            yield from asyncio.run(SHAPES[kind](server))

    return {kind: functools.partial(run, kind) for kind in SHAPES}


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="ephemeral").parse_args()
    return frame.run(shapes(options.directory), options)


if __name__ == "__main__":
    sys.exit(main())
