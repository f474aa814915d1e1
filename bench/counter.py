"""Measures what docs/reference/performance.md states about one machine; prints a table and JSON.

    python bench/counter.py [--repeat N] [--json FILE]

Every figure has a floor measured in the same run: a ratio survives a noisy machine, a duration does
not. Run by `make bench`; needs only this checkout's environment.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kilnwork.api import kinds  # noqa: E402 -- the path comes first
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from support import up_server as up_support  # noqa: E402

KILN = up_support.KILN


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def command(*argv: str) -> Callable[[], object]:
    """Run a process to its end; drop its output."""
    return lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def median_ms(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1000, 1)


def start_up(repeat: int) -> list[dict[str, Any]]:
    """Measure `kiln --help` and a bare interpreter, alternating."""
    bare, helped = [], []
    for _ in range(repeat * 3):
        bare.append(timed(command(sys.executable, "-c", "pass")))
        helped.append(timed(command(KILN, "--help")))
    return [
        {
            "what": "kiln --help",
            "ms": median_ms(helped),
            "floor": "python -c pass",
            "floor_ms": median_ms(bare),
            "aim_ms": 60,
        }
    ]


def ready(directory: Path, repeat: int) -> list[dict[str, Any]]:
    """Measure from the command to /readyz 200: on an empty directory, and on a used one."""
    first, again = [], []
    for number in range(repeat):
        server = up_support.UpServer(directory / f"ready-{number}", workdir=directory)
        first.append(timed(server.start))
        server.stop()
        again.append(timed(server.start))
        server.stop()
    floor = [
        timed(command(sys.executable, "-c", "import aiohttp, uvicorn, cryptography, apsw"))
        for _ in range(repeat)
    ]
    shared = {"floor": "import of its libraries", "floor_ms": median_ms(floor), "aim_ms": 1000}
    return [
        {"what": "kiln up ready, new directory", "ms": median_ms(first), **shared},
        {"what": "kiln up ready, used directory", "ms": median_ms(again), **shared},
    ]


def counter(directory: Path, repeat: int) -> list[dict[str, Any]]:
    """Measure 51 tasks, each created through the API by the one before, once the cluster is
    ready.
    """
    walls, programs = [], []
    example = ROOT / "examples" / "01-counter"
    for number in range(repeat):
        server = up_support.UpServer(directory / f"counter-{number}", workdir=example)
        server.start()
        try:
            server.kiln("apply", "-f", "cluster.yaml")
            server.kiln("wait", "taskcluster/counter", "--for", "condition=Available")
            start = time.perf_counter()
            server.kiln("apply", "-f", "start.yaml")
            asyncio.run(succeeded(server, "task-50"))
            walls.append(time.perf_counter() - start)
        finally:
            server.stop()
    imports = "import http.client, json, os, ssl, sys, time"
    programs = [timed(command(sys.executable, "-c", imports)) for _ in range(51)]
    return [
        {
            "what": "counter, 51 tasks",
            "ms": median_ms(walls),
            "floor": "51 interpreters with the program's imports",
            "floor_ms": round(sum(programs) * 1000, 1),
            "aim_ms": 5000,
        }
    ]


async def succeeded(server: up_support.UpServer, name: str) -> None:
    """Wait by watch until the Task has succeeded."""
    config = kube_config.load(server.data / "kubeconfig")
    async with kube_client.Client(config) as client:
        listed = await client.list(kinds.TASKS, "default", type=dict)
        done = {o["metadata"]["name"]: o.get("status", {}).get("state") for o in listed.items}
        if done.get(name) == "Success":
            return
        async for change in client.watch(
            kinds.TASKS, "default", resource_version=listed.resource_version, type=dict
        ):
            seen = change.object or {"metadata": {"name": ""}}
            if (
                seen["metadata"]["name"] == name
                and seen.get("status", {}).get("state") == "Success"
            ):
                return


async def object_to_running(server: up_support.UpServer, tasks: int) -> list[float]:
    """Return the seconds from just before the POST to the first instruction of the task's own
    program.
    """
    config = kube_config.load(server.data / "kubeconfig")
    delays = []
    async with kube_client.Client(config) as client:
        await client.list(kinds.TASKS, "default", type=dict)  # no task waits for a connection
        for number in range(tasks):
            name = f"latency-{number}"
            created = time.time()
            await client.create(
                kinds.TASKS,
                {
                    "apiVersion": kinds.TASKS.api_version,
                    "kind": "Task",
                    "metadata": {"name": name},
                    "spec": {"command": ["sh", "-c", 'date +%s.%N > "$KILN_OUTPUT"']},
                },
                "default",
            )
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                task = await client.get(kinds.TASKS, name, "default")
                if task.get("status", {}).get("state") == "Success":
                    break
                await asyncio.sleep(0.005)
            delays.append(float(task["status"]["result"]["value"]) - created)
    return delays


def latency(directory: Path, tasks: int) -> list[dict[str, Any]]:
    """Measure the latency from object to running on a warm worker."""
    server = up_support.UpServer(directory / "latency", workdir=directory)
    server.start()
    try:
        server.kiln("run", "--watch", "--", "true")
        delays = sorted(asyncio.run(object_to_running(server, tasks)))
    finally:
        server.stop()
    floor = []
    for _ in range(20):
        created = time.time()
        shown = subprocess.run(["date", "+%s.%N"], capture_output=True, text=True, check=True)
        floor.append(float(shown.stdout) - created)
    shared = {"floor": "starting date(1)", "floor_ms": median_ms(floor)}
    p99 = delays[min(len(delays) - 1, int(len(delays) * 0.99))]
    return [
        {"what": "object → running, p50", "ms": median_ms(delays), **shared, "aim_ms": 25},
        {"what": "object → running, p99", "ms": round(p99 * 1000, 1), **shared, "aim_ms": 100},
    ]


def main() -> None:
    """Measure all figures, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=100, help="tasks for the latency figures")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "results" / "counter.json")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="kiln-bench.") as scratch:
        directory = Path(scratch)
        rows = start_up(options.repeat)
        rows += ready(directory, options.repeat)
        rows += counter(directory, options.repeat)
        rows += latency(directory, options.tasks)
    print(f"{'':32}{'ms':>9}{'aim':>7}{'floor':>9}{'ratio':>7}  floor is")
    for row in rows:
        ratio = row["ms"] / row["floor_ms"]
        print(
            f"{row['what']:32}{row['ms']:9.1f}{row['aim_ms']:7}{row['floor_ms']:9.1f}"
            f"{ratio:7.1f}  {row['floor']}"
        )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
