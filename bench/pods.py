"""Measures Tasks that are Pods beside bare Pods on one machine: a second, API writes, kills.

    python bench/pods.py [--only WORD] [--repeat N] [--no-gates] [--wait S] [--directory DIR]
                         [--json FILE]

One `kiln up` runs both in turn, created and awaited by the same client. Run by `make bench`.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import frame  # noqa: E402
from figures import Figure, Gate  # noqa: E402

from kilnwork.api import api_resources, kinds, meta  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from support import up_server as up_support  # noqa: E402

COUNT = 60
IN_FLIGHT = 8
"""Enough that two cores never wait for the next one."""
GRACE_S = 1
KILLS = 20

_OVER = {"Success", "Failed", "Killed", "Succeeded"}


def spec(*argv: str) -> meta.JsonObject:
    """Return a Pod of one container."""
    container = {"name": "main", "image": "busybox", "command": list(argv)}
    return {"restartPolicy": "Never", "containers": [container]}


def pod(name: str) -> meta.JsonObject:
    return {"metadata": {"name": name}, "spec": spec("true")}


def task(name: str, *argv: str, sidecar: bool = True) -> meta.JsonObject:
    """Return a Task; `sidecar`: with the sidecar that serves the worker contract, as by default."""
    timeouts = {"killGraceSeconds": GRACE_S}
    template = {"spec": spec(*(argv or ("true",)))}
    if not sidecar:
        template["metadata"] = {"annotations": {"kilnwork.dev/sidecar": "false"}}
    return {"metadata": {"name": name}, "spec": {"pod": template, "timeouts": timeouts}}


class Ends:
    """When each object of a kind was first seen in a state, by a watch."""

    def __init__(self, kube: kube_client.Client, kind: api_resources.Resource) -> None:
        self._kube = kube
        self._kind = kind
        self._seen: dict[tuple[str, str], asyncio.Future[float]] = {}

    def at(self, name: str, state: str = "over") -> asyncio.Future[float]:
        """Return when an object had that state, or had finished."""
        made = asyncio.get_running_loop().create_future()
        return self._seen.setdefault((name, state), made)

    async def follow(self, version: str) -> None:
        while True:
            async for change in self._kube.watch(
                self._kind, "default", resource_version=version, type=dict
            ):
                version = change.resource_version
                if change.object:
                    self._take(change.object)

    def _take(self, found: dict[str, Any]) -> None:
        status = found.get("status") or {}
        state = status.get("state") or status.get("phase") or ""
        name = found["metadata"]["name"]
        for what in (state, *(["over"] if state in _OVER else [])):
            waiting = self.at(name, what)
            if not waiting.done():
                waiting.set_result(time.perf_counter())


async def run_all(
    kube: kube_client.Client, kind: api_resources.Resource, bodies: Iterable[meta.JsonObject]
) -> float:
    """Create and await all of them, `IN_FLIGHT` at a time; return the seconds."""
    listed = await kube.list(kind, "default", type=meta.Partial)
    ends = Ends(kube, kind)
    following = asyncio.create_task(ends.follow(listed.resource_version))
    left = iter(bodies)

    async def work() -> None:
        for body in left:
            await kube.create(kind, body, "default")
            await ends.at(body["metadata"]["name"])

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    took = time.perf_counter() - began
    following.cancel()
    return took


async def version(kube: kube_client.Client) -> int:
    """Return the resourceVersion, which every write raises by one."""
    listed = await kube.list(api_resources.CONFIG_MAPS, "default", type=meta.Partial)
    return int(listed.resource_version)


async def clear(kube: kube_client.Client) -> None:
    """Remove all Tasks and bare Pods, and wait until their Pods are gone."""
    for kind in (kinds.TASKS, api_resources.PODS):
        listed = await kube.list(kind, "default", type=meta.Partial)
        for one in listed.items:
            if one.metadata.controller() is None:
                await kube.delete(kind, one.metadata.name, "default", propagation="Background")
    while any(
        one.metadata.name.startswith(("b-", "t-"))
        for one in (await kube.list(api_resources.PODS, "default", type=meta.Partial)).items
    ):
        await asyncio.sleep(0.2)


async def rates(server: up_support.UpServer, repeat: int) -> Iterator[Figure]:
    """Measure Pods a second, bare and as Tasks, alternating, and API writes."""
    bare, tasks, served, writes = [], [], [], []
    async with kube_client.Client(kube_config.load(server.data / "kubeconfig")) as kube:
        await run_all(kube, kinds.TASKS, [task("t-first")])
        for number in range(repeat):
            before = await version(kube)
            names = [f"{number}-{n}" for n in range(COUNT)]
            bare.append(
                COUNT / await run_all(kube, api_resources.PODS, [pod(f"b-{n}") for n in names])
            )
            between = await version(kube)
            same = [task(f"t-{n}", sidecar=False) for n in names]
            tasks.append(COUNT / await run_all(kube, kinds.TASKS, same))
            await asyncio.sleep(1)  # what is written after the end
            after = await version(kube)
            writes.append(((after - between) - (between - before)) / COUNT)
            full = [task(f"t-s-{n}") for n in names]
            served.append(COUNT / await run_all(kube, kinds.TASKS, full))
            await clear(kube)
    gate = Gate(at_least=0.7, ratio=True)
    return iter(
        [
            Figure(
                "Tasks that are Pods", statistics.median(tasks), "/s", statistics.median(bare), gate
            ),
            Figure(
                "such Tasks, with a sidecar", statistics.median(served), "/s",
                statistics.median(bare), more={"beside": "bare Pods of one container"},
            ),
            Figure(
                "API writes of such a Task", statistics.median(writes), "",
                gate=Gate(at_most=4),
                more={"without": "the Task itself and what the node writes"},
            ),
        ]
    )  # fmt: skip


async def kills(server: up_support.UpServer) -> Iterator[Figure]:
    """Measure from killTimestamp to Killed for containers that ignore SIGTERM, less the grace
    period.
    """
    took = []
    stubborn = ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
    async with kube_client.Client(kube_config.load(server.data / "kubeconfig")) as kube:
        listed = await kube.list(kinds.TASKS, "default", type=meta.Partial)
        ends = Ends(kube, kinds.TASKS)
        following = asyncio.create_task(ends.follow(listed.resource_version))
        for number in range(KILLS):
            name = f"t-kill-{number}"
            await kube.create(kinds.TASKS, task(name, *stubborn), "default")
            await ends.at(name, "Running")
            began = time.perf_counter()
            patch = {"spec": {"killTimestamp": "2020-01-01T00:00:00Z"}}
            await kube.merge_patch(kinds.TASKS, name, patch, "default")
            took.append(await ends.at(name, "Killed") - began - GRACE_S)
        following.cancel()
        await clear(kube)
    took.sort()
    last = took[int(len(took) * 0.99)] * 1000
    shown = {"p50 ms": round(statistics.median(took) * 1000)}
    figure = Figure(
        "kill → Killed beyond the grace, p99", last, "ms", gate=Gate(at_most=250), more=shown
    )
    return iter([figure])


def shapes(directory: Path, repeat: int) -> dict[str, frame.Shape]:
    """Return all measurements by name."""

    def measured(kind: str) -> Iterator[Figure]:
        with (
            tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=directory) as scratch,
            up_support.serving(Path(scratch)) as server,
        ):
            yield from asyncio.run(rates(server, repeat) if kind == "rates" else kills(server))

    return {"rates": lambda: measured("rates"), "kills": lambda: measured("kills")}


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="pods").parse_args()
    return frame.run(shapes(options.directory, options.repeat), options)


if __name__ == "__main__":
    sys.exit(main())
