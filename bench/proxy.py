"""Measures calls through the API server's proxy beside the same calls on this machine alone.

    python -m hack.kube run [--node --image IMAGE] --crd FILE … -- python bench/proxy.py [--count N]

`make bench-proxy` does so. The floor is a durable `kiln.start(DIRECTORY)` with as many slots, in
turn in the same run; on top of it the cluster has the proxy, TLS on three connections and a relay
in the worker. Prints what each process has computed for a round trip. On a node with a kubelet if
there is one, else on one of `kiln node`.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import machine
import pytest
from figures import Figure, table

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

import kilnwork as kiln  # noqa: E402
from support import kube_cluster, kube_manager, remote_driver, waiting  # noqa: E402

NAMESPACE = "drivers"
SLOTS = 2
SHOWN = 6
"""Processes in the table: those that compute most."""


@kiln.task
def same(value: int) -> int:
    return value


@kiln.task
def delegate(value: int) -> int:
    return same.submit(value)


@kiln.task
def chain(left: int) -> int:
    return chain.submit(left - 1) if left else 0


def round_trips(count: int) -> list[float]:
    """Return the seconds of each call, submitted when the one before has ended."""
    taken = []
    for value in range(count):
        began = time.perf_counter()
        same.submit(value).result(timeout=60)
        taken.append(time.perf_counter() - began)
    return taken


def rate(task: Callable[[int], object], count: int) -> float:
    """Return calls a second, all submitted at once; each result is waited for."""
    began = time.perf_counter()
    for future in [task(value) for value in range(count)]:
        future.result(timeout=120)  # type: ignore[attr-defined]
    return count / (time.perf_counter() - began)


def measure(count: int) -> dict[str, float]:
    """Return all figures of the current session, by name."""
    round_trips(50)
    trips = round_trips(count)
    hop_s = machine.timed(lambda: chain.submit(count).result(timeout=120)) / count
    return {
        "round trip, p50": machine.median(trips) * 1e6,
        "round trip, p99": machine.percentile(trips, 99) * 1e6,
        "hop of a chain": hop_s * 1e6,
        "burst": rate(same.submit, 10 * count),
        "tasks that delegate": rate(delegate.submit, 5 * count),
    }


def cpu_ticks() -> dict[str, int]:
    """Return the CPU ticks of each process of this sandbox, by pid and command."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (directory / "cmdline").read_bytes().decode().split("\0")
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            name = " ".join(Path(word).name for word in words[:3])
            found[f"{directory.name} {name}"] = int(fields[11]) + int(fields[12])
    return found


def cpu_of_round_trips(count: int) -> list[tuple[str, float]]:
    """Return the microseconds of CPU for each round trip, by process, the largest first."""
    before = cpu_ticks()
    round_trips(count)
    used = {name: ticks - before.get(name, ticks) for name, ticks in cpu_ticks().items()}
    each = [(name, ticks / machine.TICKS / count * 1e6) for name, ticks in used.items() if ticks]
    return sorted(each, key=lambda one: -one[1])[:SHOWN]


@contextlib.contextmanager
def installed(scratch: Path) -> Iterator[None]:
    """Install a manager with one worker, and put a kubeconfig for drivers into the environment."""
    kube = kube_cluster.Kube(Path(os.environ["KILN_KUBE_DIRECTORY"]))
    with contextlib.ExitStack() as stack:
        real = kube.real_nodes()
        if real:
            waiting.wait_until(lambda: kube.node_is_ready(real[0]), what=f"{real[0]} is Ready")
            home = kube_manager.on_real_node(real[0], "--storage", "emptyDir")
        else:
            node = kube_cluster.VirtualNode(
                kube, scratch, name="bench", more=("--workdir", str(kube_manager.COUNTER))
            )
            stack.callback(node.stop)
            node.start()
            home = kube_manager.on_virtual_node("bench")
        manager = kube_manager.Manager(kube, home)
        manager.install()
        kube.http.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).ok()
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the account is made")
        manager.allow_drivers(NAMESPACE)
        manager.start_cluster("default", namespace=NAMESPACE, slotsPerWorker=SLOTS)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("KUBECONFIG", str(kube.kubeconfig))
        remote_driver.hide_server(patch, scratch)
        yield


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=400)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with kiln.start(scratch / "home", slots=SLOTS):
            floors = [measure(count)]
        with installed(scratch), kiln.connect(namespace=NAMESPACE):
            found = measure(count)
            cpu = cpu_of_round_trips(count)
        with kiln.start(scratch / "again", slots=SLOTS):
            floors.append(measure(count))
    figures = [
        Figure(what, value, unit, sum(floor[what] for floor in floors) / 2)
        for what, value in found.items()
        for unit in ["/s" if what in ("burst", "tasks that delegate") else "µs"]
    ]
    print(table(figures))
    print("\nCPU of a round trip, by process")
    for process, micros in cpu:
        print(f"  {micros:6.0f} µs  {process}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
