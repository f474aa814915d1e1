"""SIGKILL at random points of the counter chain: it always ends at 50, and no process is left.

Seeded: the seed is printed, and KILN_FAULT_SEED repeats it. KILN_FAULT_RUNS is the number of runs
(4).
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.api import task as api_task
from kilnwork.kit import processes
from support import up_server as up_support
from support import waiting

RUNS = int(os.environ.get("KILN_FAULT_RUNS", "4"))
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "20261121"))
LOSSES = api_task.Retry().max_losses
ENDED = {"Success", "Failed", "Killed"}
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else [FIRST_SEED + n for n in range(RUNS)]


@pytest.fixture
def counter(tmp_path: Path, examples: Path) -> Iterator[up_support.UpServer]:
    server = up_support.UpServer(tmp_path / "data", workdir=examples / "01-counter")
    server.start()
    try:
        yield server
    finally:
        server.stop()
        left = server.leftovers()
        processes.signal_all(left, signal.SIGKILL)


def states(server: up_support.UpServer) -> dict[str, str]:
    items = server.get("tasks")["items"]
    return {t["metadata"]["name"]: t.get("status", {}).get("state", "") for t in items}


def pids_of(server: up_support.UpServer, kind: str) -> list[int]:
    """Return the pids of agents, or of processes of tasks."""
    marks = {"agent": "kilnwork.worker", "task": "counter.py"}
    return [pid for pid, command in server.leftovers().items() if marks[kind] in command]


def kill_one(server: up_support.UpServer, rng: random.Random, *kinds: str) -> str:
    """Send SIGKILL to the server (and restart it), an agent, or a task's process; return which."""
    kind = rng.choice(kinds)
    if kind == "server":
        server.kill()
        time.sleep(rng.uniform(0, 0.5))
        server.start()
        return kind
    found = pids_of(server, kind)
    if not found:
        return f"{kind} (none)"
    processes.signal_all([rng.choice(found)], signal.SIGKILL)
    return kind


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_chain_completes_despite_random_kills(counter: up_support.UpServer, seed: int) -> None:
    print(f"seed {seed}: repeat with KILN_FAULT_SEED={seed}")
    rng = random.Random(seed)
    counter.kiln("apply", "-f", "cluster.yaml", "-f", "start.yaml")
    kills: list[str] = []
    for _ in range(rng.randint(3, 5)):
        time.sleep(rng.uniform(0.2, 1.2))
        # Kills of agents and tasks may all hit one slow task: no more of them than its maxLosses.
        costly = len(kills) - kills.count("server") < LOSSES
        kills.append(kill_one(counter, rng, "server", *["agent", "task"] * costly))
    print("kills:", kills)
    # A task that was lost after it submitted its child runs again, beside the rest of the chain,
    # and may end after task-50.
    final = waiting.wait_until(
        lambda: "task-50" in (s := states(counter)) and not set(s.values()) - ENDED and s,
        what=f"the chain ends after {kills}",
        timeout_s=180,
        every_s=0.3,
    )
    assert final == {f"task-{n}": "Success" for n in range(51)}
    objects = {o["metadata"]["name"]: o for o in counter.get("taskobjects")["items"]}
    assert set(objects) == {"input", *(f"task-{n}-output" for n in range(50))}
    assert objects["task-49-output"]["data"] == {"count": "50", "limit": "50"}


@pytest.mark.faults
@pytest.mark.timeout(150)
def test_no_process_is_left_75_seconds_after_a_crash(counter: up_support.UpServer) -> None:
    counter.kiln("apply", "-f", "cluster.yaml")
    counter.kiln("run", "--cluster", "counter", "--", "sleep", "600")
    waiting.wait_until(
        lambda: any("sleep 600" in c for c in counter.leftovers().values()), what="the task runs"
    )
    counter.kill()
    try:
        waiting.wait_until(lambda: not counter.leftovers(), what="all processes gone", timeout_s=75)
    except AssertionError:
        assert counter.leftovers() == {}
        raise
