"""Measures how long a gang takes to start on kubelets, beside as many bare Pods of the same size.

    python -m hack.kube run --nodes 2 --image IMAGE --crd FILE … -- python bench/gangs.py
                            [--repeat N] [--no-gates] [--wait S] [--json FILE]

`make bench-cluster` does so. Both in turn on one cluster: from the first request until all Pods are
Running. The bare Pods are of the image of the workers and fill the same room; they do nothing.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import frame
from figures import Figure, Gate

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from hack.image import worker as image  # noqa: E402

from kilnwork.api import api_resources, kinds, meta, pod  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from kilnwork.kube import errors  # noqa: E402
from support import kube_cluster, kube_manager, kube_sets, waiting  # noqa: E402

WORKERS = 4
CPU = "700m"
"""Two of them fit on each node of two cores."""

LOOK_S = 0.02
NAMESPACE = "default"


def gang(name: str) -> meta.JsonObject:
    """Return a SyncSet of that many workers, whose flow waits for nothing."""
    group = {"name": "worker", "replicas": WORKERS, "template": kube_sets.template(CPU)}
    return {
        "apiVersion": kinds.SYNC_SETS.api_version,
        "kind": kinds.SYNC_SETS.kind,
        "metadata": {"name": name},
        "spec": {
            "backend": "pods",
            "resources": {"groups": [group]},
            "flow": {"do": [{"rest": {"command": ["sleep", "600"]}}]},
        },
    }


def bare_pod(name: str) -> meta.JsonObject:
    """Return a Pod as large as a worker."""
    spec = kube_sets.template(CPU)["spec"]
    spec["containers"][0] |= {"image": image.name(), "command": ["sleep", "600"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"bench": "bare"}},
        "spec": spec,
    }


class Bench:
    """One cluster, on which gangs and bare Pods start alternately."""

    def __init__(self, kube: kube_client.Client) -> None:
        self._kube = kube

    async def start(
        self, kind: api_resources.Resource, bodies: Sequence[meta.JsonObject], *, selector: str
    ) -> float:
        """Create these objects, and wait until all selected Pods are Running; return the
        seconds.
        """
        began = time.perf_counter()
        await asyncio.gather(*(self._kube.create(kind, body, NAMESPACE) for body in bodies))
        while sum(one.status.phase == "Running" for one in await self._pods(selector)) < WORKERS:
            await asyncio.sleep(LOOK_S)
        took = time.perf_counter() - began
        for body in bodies:
            with contextlib.suppress(errors.NotFound):
                await self._kube.delete(
                    kind, body["metadata"]["name"], NAMESPACE, propagation="Background"
                )
        while await self._pods(selector):
            await asyncio.sleep(LOOK_S)
        return took

    async def _pods(self, selector: str) -> Sequence[pod.Pod]:
        listed = await self._kube.list(
            api_resources.PODS, NAMESPACE, type=pod.Pod, label_selector=selector
        )
        return listed.items


async def times(kubeconfig: Path, repeat: int) -> Figure:
    """Return start times of gangs, with bare Pods as the floor."""
    gangs, alone = [], []
    async with kube_client.Client(kube_config.load(kubeconfig)) as kube:
        bench = Bench(kube)
        for number in range(repeat + 1):
            bodies = [bare_pod(f"bare-{number}-{one}") for one in range(WORKERS)]
            alone.append(await bench.start(api_resources.PODS, bodies, selector="bench=bare"))
            name = f"gang-{number}"
            selector = f"kilnwork.dev/set={name}"
            gangs.append(await bench.start(kinds.SYNC_SETS, [gang(name)], selector=selector))
    return Figure(
        f"SyncSet of {WORKERS} workers, created → all are Running", statistics.median(gangs[1:]),
        "s", statistics.median(alone[1:]), Gate(at_most=1.3, ratio=True),
        more={"beside": "bare Pods of the same size", "all": [round(one, 2) for one in gangs[1:]]},
    )  # fmt: skip


def measured(repeat: int) -> Iterator[Figure]:
    """Install a manager, and measure."""
    kube = kube_cluster.Kube(Path(os.environ["KILN_KUBE_DIRECTORY"]))
    nodes = kube.real_nodes()
    for node in nodes:
        waiting.wait_until(
            lambda node=node: kube.node_is_ready(node), what=f"{node} is Ready", timeout_s=120
        )
    home = kube_manager.on_real_node(nodes[0], "--storage", "emptyDir")
    with kube_manager.installed(kube, home) as manager:
        yield asyncio.run(times(manager.kube.kubeconfig, repeat))


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="gangs").parse_args()
    return frame.run({"gangs": lambda: measured(options.repeat)}, options)


if __name__ == "__main__":
    sys.exit(main())
