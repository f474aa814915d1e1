"""Measures kilnwork on the real Kubernetes that hack/kube builds: creates, caches, tasks, writes.

    python bench/cluster.py [--only WORD] [--count N] [--repeat N] [--no-gates] [--wait S]
                            [--directory DIR] [--json FILE]

It starts a control plane of its own on loopback; client and servers share the machine. Ends with 1
when a gate is missed.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import frame
import machine
from figures import Figure, Gate

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import cluster_home as homes  # noqa: E402
from hack.kube import cluster  # noqa: E402

from kilnwork.api import api_resources, crd, kinds, meta  # noqa: E402
from kilnwork.kube import client, config, errors, tls, transport  # noqa: E402

_JSON = {"Content-Type": "application/json"}
FILLER = "x" * 1200
"""Makes a Pod or Task of some 2 kB, the size of real ones."""


def pod(number: int) -> meta.JsonObject:
    """Return a Pod that fits no node, so that only the API server and the scheduler work on it."""
    container = {"name": "c", "image": "localhost/none:1", "env": [{"name": "A", "value": FILLER}]}
    return {
        "metadata": {"name": f"p{number:05}"},
        "spec": {"containers": [container], "nodeSelector": {"none": "such"}},
    }


def task(number: int) -> meta.JsonObject:
    """Return a Task as a user writes it."""
    spec = {"clusterName": "none", "command": ["true"], "args": [FILLER]}
    return {"metadata": {"name": f"t{number:05}"}, "spec": spec}


async def create_all(
    kubeconfig: Path, kind: api_resources.Resource, bodies: list[meta.JsonObject]
) -> tuple[float, list[float]]:
    """Create everything at once, limited by the client's requests in flight; return total and
    single seconds.
    """
    each: list[float] = []
    async with client.Client(config.load(kubeconfig)) as kube:

        async def one(body: meta.JsonObject) -> None:
            began = time.perf_counter()
            await kube.create(kind, body, "default")
            each.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(one(body) for body in bodies))
        return time.perf_counter() - began, each


async def delete_all(kubeconfig: Path, kind: api_resources.Resource) -> None:
    """Delete everything and wait until it is gone; the server ends a request that takes over a
    minute.
    """
    async with client.Client(config.load(kubeconfig), timeout_s=120) as kube:
        while (await kube.list(kind, "default", type=meta.Partial)).items:
            with contextlib.suppress(errors.Unavailable):
                await kube.raw("DELETE", kind.base("default"), query={"gracePeriodSeconds": "0"})


async def send_encoded(kubeconfig: Path, bodies: list[meta.JsonObject]) -> float:
    """The floor: as many requests in flight, encoded beforehand, their responses dropped."""
    settings = config.load(kubeconfig)
    context = tls.context(settings)
    encoded = iter([json.dumps({"apiVersion": "v1", "kind": "Pod", **body}) for body in bodies])
    url = settings.server + api_resources.PODS.base("default")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=context)) as http:

        async def work() -> None:
            for body in encoded:
                async with http.post(url, data=body, headers=_JSON) as response:
                    await response.read()
                    if response.status != 201:
                        raise AssertionError(f"the server responded {response.status}")

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(transport.IN_FLIGHT)))
        return time.perf_counter() - began


def creates(running: cluster.Cluster, count: int, repeat: int) -> Iterator[Figure]:
    """Measure Pods a second through one client without a fixed rate, alternating with the floor."""
    rates, floors, each, cpu = [], [], [], []
    bodies = [pod(n) for n in range(count)]
    for _ in range(repeat):
        floors.append(count / asyncio.run(send_encoded(running.kubeconfig, bodies)))
        asyncio.run(delete_all(running.kubeconfig, api_resources.PODS))
        used = time.process_time()
        seconds, waits = asyncio.run(create_all(running.kubeconfig, api_resources.PODS, bodies))
        cpu.append((time.process_time() - used) / count * 1e3)
        asyncio.run(delete_all(running.kubeconfig, api_resources.PODS))
        rates.append(count / seconds)
        each += waits
    more = {"rates": [round(r) for r in rates], "p99 ms": round(machine.percentile(each, 99) * 1e3)}
    yield Figure(
        f"Pods created, {count:,} at once",
        machine.median(rates),
        "/s",
        machine.median(floors),
        Gate(at_least=300),
        more,
    )
    yield Figure("Pods created: CPU of the client for each", machine.median(cpu), "ms")


def caches(running: cluster.Cluster, count: int) -> Iterator[Figure]:
    """Measure a process that follows Tasks as the manager does: time until it is in sync, and its
    memory.
    """
    asyncio.run(create_all(running.kubeconfig, kinds.TASKS, [task(n) for n in range(count)]))
    argv = [sys.executable, str(HERE / "follower.py"), str(running.kubeconfig), str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        before = json.loads(child.stdout.readline())
        began = time.perf_counter()
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        after = json.loads(child.stdout.readline())
        seconds = time.perf_counter() - began
        pss = machine.memory_mib([child.pid])[1]
        child.stdin.close()
    asyncio.run(delete_all(running.kubeconfig, kinds.TASKS))
    what = f"cache of {count:,} Tasks"
    yield Figure(f"{what}: in step after", seconds * 1e3, "ms")
    yield Figure(f"{what}: CPU until then", (after["cpu"] - before["cpu"]) * 1e3, "ms")
    yield Figure(f"{what}: memory, PSS", pss, "MiB")
    added = (pss - before["pss"]) * 1024 / count
    yield Figure(f"{what}: memory an object", added, "KiB", None, Gate(at_most=10))


async def run_one(kube: client.Client, name: str, scratch: Path) -> tuple[float, float]:
    """Return the seconds from sending a Task until its code runs, and until a watch reports it."""
    note = scratch / name
    listed = await kube.list(kinds.TASKS, homes.NAMESPACE, type=meta.Partial)
    changes = kube.watch(
        kinds.TASKS,
        homes.NAMESPACE,
        resource_version=listed.resource_version,
        type=dict,
        field_selector=f"metadata.name={name}",
    )
    running = asyncio.Event()
    ended = asyncio.Event()

    async def follow() -> None:
        async with contextlib.aclosing(changes):
            async for change in changes:
                state = (change.object or {}).get("status", {}).get("state")
                if state == "Running":
                    running.set()
                if state in ("Success", "Failed"):
                    running.set()
                    ended.set()
                    return

    following = asyncio.create_task(follow())
    command = ("sh", "-c", f"date +%s.%N > {note}; sleep 0.1")
    began = time.time()
    await kube.create(kinds.TASKS, homes.task(name, *command), homes.NAMESPACE)
    await asyncio.wait_for(running.wait(), 30)
    seen = time.time() - began
    await asyncio.wait_for(ended.wait(), 30)
    await following
    return float(note.read_text()) - began, seen


async def ended(kube: client.Client, prefix: str, count: int) -> None:
    """Wait until so many Tasks of this prefix are a Success."""

    async def all_of_them() -> bool:
        listed = await kube.list(kinds.TASKS, homes.NAMESPACE, type=dict)
        states = [
            t.get("status", {}).get("state")
            for t in listed.items
            if t["metadata"]["name"].startswith(prefix)
        ]
        if "Failed" in states:
            raise AssertionError(f"a task of {prefix} failed")
        return states.count("Success") >= count

    await homes.until(all_of_them, what=f"{count} tasks end", timeout_s=300)


def latencies(home: homes.Home, rounds: int, scratch: Path) -> Iterator[Figure]:
    """Measure one Task after the other on a warm worker.

    The status comes later: a state that ends at once is not written, so a short task costs one
    write.
    """

    async def measured() -> list[tuple[float, float]]:
        async with client.Client(config.load(home.kubeconfig)) as kube:
            await run_one(kube, "warm", scratch)
            return [await run_one(kube, f"one-{n}", scratch) for n in range(rounds)]

    code, seen = zip(*asyncio.run(measured()), strict=True)
    what = "object to running on a warm worker"
    for name, each, gate in ((what, code, 25), (f"{what}, as the object says", seen, None)):
        yield Figure(
            f"{name}, p50", machine.median(each) * 1e3, "ms", None,
            gate and Gate(at_most=gate), {"p99 ms": round(machine.percentile(each, 99) * 1e3, 1)},
        )  # fmt: skip


def writes(home: homes.Home, count: int) -> Iterator[Figure]:
    """Measure the writes to the API server, by its own metrics."""
    spawn = [sys.executable, str(HERE / "parent.py"), str(count)]
    bodies = {
        "declared": [homes.task(f"declared-{n}", "true") for n in range(count)],
        "spawned": [homes.task("spawned-0", *spawn)],
    }
    for name, made in bodies.items():
        before = home.writes()
        asyncio.run(create_all(home.kubeconfig, kinds.TASKS, made))
        asyncio.run(_ended(home, name, len(made)))
        used = home.writes() - before
        used["tasks"] -= len(made)  # those were ours
        each = sum(used.values()) / count
        most = 2.0 if name == "declared" else 0.05
        yield Figure(
            f"API writes per {name} task, {count:,} of them", each, "", None, Gate(at_most=most),
            {key: value for key, value in used.items() if value},
        )  # fmt: skip


async def _ended(home: homes.Home, prefix: str, count: int) -> None:
    async with client.Client(config.load(home.kubeconfig)) as kube:
        await ended(kube, prefix, count)


def many_tasks(home: homes.Home, count: int) -> Iterator[Figure]:
    """Measure a manager with so many Tasks in its caches, all suspended so that it has no work."""
    before, ticks = machine.memory_mib([home.manager_pid])[1], _cpu_s(home.manager_pid)
    bodies = [homes.task(f"many-{n}", "true", FILLER, suspend=True) for n in range(count)]
    seconds, _ = asyncio.run(create_all(home.kubeconfig, kinds.TASKS, bodies))
    asyncio.run(_suspended(home, count))
    used = _cpu_s(home.manager_pid) - ticks
    after = machine.memory_mib([home.manager_pid])[1]
    what = f"manager with {count:,} Tasks"
    yield Figure(f"{what}: memory, PSS", after, "MiB", None, None, {"MiB before": before})
    yield Figure(
        f"{what}: CPU to take them in", used, "s", None, None, {"created in s": round(seconds, 1)}
    )
    began, ticks = time.perf_counter(), _cpu_s(home.manager_pid)
    time.sleep(10)
    idle = (_cpu_s(home.manager_pid) - ticks) / (time.perf_counter() - began) * 100
    yield Figure(f"{what}: CPU idle", idle, "% of a core", None, Gate(at_most=5))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / machine.TICKS


async def _suspended(home: homes.Home, count: int) -> None:
    """Wait until each Task reports that it is suspended."""
    async with client.Client(config.load(home.kubeconfig)) as kube:

        async def all_of_them() -> bool:
            listed = await kube.list(kinds.TASKS, homes.NAMESPACE, type=dict)
            reasons = [t.get("status", {}).get("reason") for t in listed.items]
            return reasons.count("Suspended") >= count

        await homes.until(all_of_them, what=f"{count} tasks are suspended", timeout_s=600)


def shapes(
    running: cluster.Cluster, options: argparse.Namespace, scratch: Path
) -> dict[str, Callable[[], Iterator[Figure]]]:
    """Return all measurements by the word that `--only` takes."""

    def tasks() -> Iterator[Figure]:
        with homes.Home(running, scratch) as home:
            yield from latencies(home, 100, scratch)
            yield from writes(home, 200)
            yield from many_tasks(home, options.count * 10)

    return {
        "creates": lambda: creates(running, options.count, options.repeat),
        "cache": lambda: caches(running, options.count * 10),
        "tasks": tasks,
    }


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    parser = frame.parser(__doc__, name="cluster")
    parser.add_argument("--count", type=int, default=1000, help="Pods; ten times as many Tasks")
    parser.set_defaults(repeat=3, wait=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kiln-bench-", dir=options.directory) as directory:
        scratch = Path(directory)
        manifest = scratch / "crds.json"
        manifest.write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": list(crd.crds().values())})
        )
        running = cluster.Cluster(cluster.Settings(directory=scratch / "kube", crds=[manifest]))
        try:
            running.start()
            return frame.run(shapes(running, options, scratch), options, again=False)
        finally:
            running.remove()


if __name__ == "__main__":
    sys.exit(main())
