"""Measures kilnwork on the real Kubernetes that hack/kube builds: creates, caches.

    python bench/cluster.py [--only WORD] [--count N] [--no-gates] [--wait S] [--json FILE]

It starts a control plane of its own on loopback; client and servers share the machine. Ends with 1
when a gate is missed.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import figures
import machine
from figures import Figure, Gate

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from hack.kube import cluster  # noqa: E402

from kilnwork.api import crd, meta, resource  # noqa: E402
from kilnwork.kube import client, config  # noqa: E402

FILLER = "x" * 1200
"""Makes a Pod or Task of some 2 kB, the size of real ones."""


def pod(number: int) -> meta.JsonObject:
    """One that fits no node, so that only the API server and the scheduler work on it."""
    container = {"name": "c", "image": "localhost/none:1", "env": [{"name": "A", "value": FILLER}]}
    return {
        "metadata": {"name": f"p{number:05}"},
        "spec": {"containers": [container], "nodeSelector": {"none": "such"}},
    }


def task(number: int) -> meta.JsonObject:
    """One as a user writes it."""
    spec = {"clusterName": "none", "command": ["true"], "args": [FILLER]}
    return {"metadata": {"name": f"t{number:05}"}, "spec": spec}


async def create_all(
    kubeconfig: Path, kind: resource.Resource, bodies: list[meta.JsonObject]
) -> tuple[float, list[float]]:
    """Everything at once, which the client bounds by requests in flight: seconds, and of each."""
    each: list[float] = []
    async with client.Client(config.load(kubeconfig)) as kube:

        async def one(body: meta.JsonObject) -> None:
            began = time.perf_counter()
            await kube.create(kind, body, "default")
            each.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(one(body) for body in bodies))
        return time.perf_counter() - began, each


async def delete_all(kubeconfig: Path, kind: resource.Resource) -> None:
    """And wait until they are gone."""
    async with client.Client(config.load(kubeconfig), timeout_s=120) as kube:
        await kube.raw("DELETE", kind.base("default"), query={"gracePeriodSeconds": "0"})
        while (await kube.list(kind, "default", type=meta.Partial)).items:
            await asyncio.sleep(0.2)


def creates(running: cluster.Cluster, count: int, repeat: int) -> Iterator[Figure]:
    """Pods a second through one client, no fixed rate."""
    rates, each = [], []
    for _ in range(repeat):
        seconds, waits = asyncio.run(
            create_all(running.kubeconfig, resource.PODS, [pod(n) for n in range(count)])
        )
        asyncio.run(delete_all(running.kubeconfig, resource.PODS))
        rates.append(count / seconds)
        each += waits
    yield Figure(
        f"Pods created, {count:,} at once",
        machine.median(rates),
        "/s",
        None,
        Gate(at_least=300),
        {
            "rates": [round(rate) for rate in rates],
            "p99 ms": round(machine.percentile(each, 99) * 1e3),
        },
    )


def caches(running: cluster.Cluster, count: int) -> Iterator[Figure]:
    """A process that follows Tasks as the manager does: when it is in step, and what it holds."""
    asyncio.run(create_all(running.kubeconfig, resource.TASKS, [task(n) for n in range(count)]))
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
    asyncio.run(delete_all(running.kubeconfig, resource.TASKS))
    what = f"cache of {count:,} Tasks"
    yield Figure(f"{what}: in step after", seconds * 1e3, "ms")
    yield Figure(f"{what}: CPU until then", (after["cpu"] - before["cpu"]) * 1e3, "ms")
    yield Figure(f"{what}: memory, PSS", pss, "MiB")
    added = (pss - before["pss"]) * 1024 / count
    yield Figure(f"{what}: memory an object", added, "KiB", None, Gate(at_most=10))


def shapes(
    running: cluster.Cluster, options: argparse.Namespace
) -> dict[str, Callable[[], Iterator[Figure]]]:
    """Everything that is measured, by the word that `--only` takes."""
    return {
        "creates": lambda: creates(running, options.count, options.repeat),
        "cache": lambda: caches(running, options.count * 10),
    }


def measure(options: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], list[Figure]]:
    """All figures that were asked for, and what a reader must know of the machine meanwhile."""
    manifest = scratch / "crds.json"
    manifest.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": list(crd.crds().values())})
    )
    running = cluster.Cluster(cluster.Settings(folder=scratch / "kube", crds=[manifest]))
    facts, taken = machine.facts(), []
    patience = machine.Patience(options.wait)
    try:
        running.start()
        for name, shape in shapes(running, options).items():
            if options.only and options.only not in name:
                continue
            patience.wait_until_quiet()
            strangers = machine.Strangers()
            found = list(shape())
            for figure in found:
                figure.more["others %"] = strangers.percent()
            print("\n".join(figures.table(found).splitlines()[1:]), flush=True)
            taken += found
    finally:
        running.remove()
    facts["quiet"] = all(figure.more["others %"] < machine.QUIET_PERCENT for figure in taken)
    return facts, taken


def main() -> int:
    """Measure, print, write; 1 when a gate was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1000, help="Pods; ten times as many Tasks")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", metavar="WORD", help="only shapes with this word in their name")
    parser.add_argument("--no-gates", action="store_true", help="end with 0 whatever was measured")
    parser.add_argument(
        "--wait", type=float, default=60, help="seconds to spend on waiting for quiet"
    )
    parser.add_argument("--json", type=Path, default=HERE / "results" / "cluster.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kiln-bench-") as scratch:
        facts, taken = measure(options, Path(scratch))
    print(f"\n{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}")
    if not facts["quiet"]:
        print("others used this machine meanwhile: the control plane counts as ours, they do not")
    print(figures.table(taken))
    print(figures.notes(taken))
    figures.write(options.json, facts, taken)
    missed = [figure.what for figure in taken if figure.failed]
    if missed:
        print(f"gates missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed and not options.no_gates else 0


if __name__ == "__main__":
    sys.exit(main())
