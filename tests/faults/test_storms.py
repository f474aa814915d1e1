"""Many tasks while a process is killed repeatedly: each task runs, and again only after a loss.

Seeded; with `make test-faults` only, since they keep the machine busy.
"""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kit import processes
from support import up_server as up_support
from support import waiting

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(150),
    pytest.mark.skipif("KILN_FAULT_RUNS" not in os.environ, reason="long: make test-faults"),
]

TASKS = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_support.UpServer]:
    made = up_support.UpServer(tmp_path / "data", workdir=tmp_path, slots=4)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        processes.signal_all(made.leftovers(), signal.SIGKILL)


def apply_tasks(server: up_support.UpServer, *, losses: int) -> None:
    """Declare all tasks; each notes that it ran, and has its number as its result."""
    script = "echo x >> ran-$TASK_NAME; sleep 0.05; echo ${TASK_NAME#t-} > $KILN_OUTPUT"
    spec = {
        "command": ["sh", "-c", script],
        "retry": {"maxLosses": losses, "delaySeconds": 0},
    }
    kind = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "Task"}
    tasks = [{**kind, "metadata": {"name": f"t-{n}"}, "spec": spec} for n in range(TASKS)]
    server.kiln("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, tasks)))


def wait_until_all_ended(server: up_support.UpServer) -> dict[str, dict[str, Any]]:
    def look() -> dict[str, dict[str, Any]]:
        found = {t["metadata"]["name"]: t.get("status", {}) for t in server.get("tasks")["items"]}
        ended = [s for s in found.values() if s.get("state") in {"Success", "Failed", "Killed"}]
        return found if len(ended) == TASKS else {}

    return waiting.wait_until(look, what="all end", timeout_s=90, every_s=0.5)


def test_server_killed_repeatedly_loses_and_repeats_no_task(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    rng = random.Random(11)
    apply_tasks(server, losses=0)
    for _ in range(5):
        time.sleep(rng.uniform(0.05, 0.4))
        server.kill()
        server.start()
    found = wait_until_all_ended(server)
    assert {s["state"] for s in found.values()} == {"Success"}
    assert {(s["attempts"], s.get("losses", 0)) for s in found.values()} == {(1, 0)}
    for name, status in found.items():
        assert str(status["result"]["value"]) == name.removeprefix("t-")
        assert (tmp_path / f"ran-{name}").read_text() == "x\n"


def test_killed_agents_cost_only_the_attempts_they_ran(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    rng = random.Random(3)
    apply_tasks(server, losses=8)
    for _ in range(5):
        time.sleep(rng.uniform(0.05, 0.3))
        agents = [p for p, c in server.leftovers().items() if "kilnwork.worker" in c]
        processes.signal_all(agents, signal.SIGKILL)
    found = wait_until_all_ended(server)
    assert {s["state"] for s in found.values()} == {"Success"}
    for name, status in found.items():
        assert str(status["result"]["value"]) == name.removeprefix("t-")
        ran = (tmp_path / f"ran-{name}").read_text().count("x")
        assert 1 <= ran <= status["attempts"]
