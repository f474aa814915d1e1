"""Measures Tasks that are Pods beside bare Pods on a kubelet: a second, and API writes.

    python -m hack.kube run --node --image IMAGE --crd FILE … -- python bench/kubelet_pods.py
                            [--repeat N] [--no-gates] [--wait S] [--json FILE]

`make bench-cluster` does so. As `pods.py` on the local node: both in turn on one cluster, created
and awaited by the same client. The manager is itself a Pod of that node.
"""

import asyncio
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import frame
import pods
from figures import Figure, Gate

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from hack.image import worker as image  # noqa: E402

from kilnwork.api import api_resources, kinds, meta  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from support import kube_cluster, kube_manager, waiting  # noqa: E402

COUNT = 24
SETTLE_S = 3.0
"""Until what is written after the end of the last one is written."""


def bare(name: str, node: str) -> meta.JsonObject:
    body = pods.pod(name)
    _place(body["spec"], node)
    return body


def task(name: str, node: str, *, sidecar: bool) -> meta.JsonObject:
    body = pods.task(name, sidecar=sidecar)
    _place(body["spec"]["pod"]["spec"], node)
    return body


def _place(spec: meta.JsonObject, node: str) -> None:
    """Place a Pod on that node, with an image that it has and without a token."""
    spec |= {"nodeName": node, "automountServiceAccountToken": False}
    spec["containers"][0] |= {"image": image.name(), "imagePullPolicy": "IfNotPresent"}


def writes(manager: kube_manager.Manager) -> int:
    """Return the writes to Pods and Tasks, by the API server's metrics."""
    return manager.requests("pods|tasks", verb="POST|PUT|PATCH|DELETE|APPLY")


async def rates(manager: kube_manager.Manager, node: str, repeat: int) -> Iterator[Figure]:
    """Measure Pods a second, bare and as Tasks, alternating, and API writes."""
    alone, tasks, served, written = [], [], [], []
    async with kube_client.Client(kube_config.load(manager.kube.kubeconfig)) as kube:
        await pods.run_all(kube, kinds.TASKS, [task("t-first", node, sidecar=True)])
        for number in range(repeat):
            names = [f"{number}-{n}" for n in range(COUNT)]
            before = writes(manager)
            bodies = [bare(f"b-{n}", node) for n in names]
            alone.append(COUNT / await pods.run_all(kube, api_resources.PODS, bodies))
            await asyncio.sleep(SETTLE_S)
            between = writes(manager)
            bodies = [task(f"t-{n}", node, sidecar=False) for n in names]
            tasks.append(COUNT / await pods.run_all(kube, kinds.TASKS, bodies))
            await asyncio.sleep(SETTLE_S)
            written.append((writes(manager) - between - (between - before)) / COUNT)
            bodies = [task(f"t-s-{n}", node, sidecar=True) for n in names]
            served.append(COUNT / await pods.run_all(kube, kinds.TASKS, bodies))
            await pods.clear(kube)
    floor = statistics.median(alone)
    return iter(
        [
            Figure(
                "Tasks that are Pods, on a kubelet", statistics.median(tasks), "/s", floor,
                Gate(at_least=0.9, ratio=True),
            ),
            Figure(
                "such Tasks, with a sidecar", statistics.median(served), "/s", floor,
                more={"beside": "bare Pods of one container"},
            ),
            Figure(
                "API writes of such a Task", statistics.median(written), "",
                gate=Gate(at_most=4),
                more={"without": "the Task itself and what the kubelet writes"},
            ),
        ]
    )  # fmt: skip


def measured(repeat: int) -> Iterator[Figure]:
    """Install a manager on the node with a kubelet, and measure."""
    kube = kube_cluster.Kube(Path(os.environ["KILN_KUBE_DIRECTORY"]))
    [node] = kube.real_nodes()
    waiting.wait_until(lambda: kube.node_is_ready(node), what=f"{node} is Ready", timeout_s=120)
    home = kube_manager.on_real_node(node, "--storage", "emptyDir")
    with kube_manager.installed(kube, home) as manager:
        yield from asyncio.run(rates(manager, node, repeat))


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="kubelet_pods").parse_args()
    return frame.run({"kubelet": lambda: measured(options.repeat)}, options)


if __name__ == "__main__":
    sys.exit(main())
