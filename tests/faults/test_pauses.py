"""Processes paused for longer than a lease, then continued: no task ends twice, none fails.

Each test takes more than ten seconds, since leases do: they run with `make test-faults` only.
"""

import os
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

APPEND = 'echo "$KILN_ATTEMPT" >> "$NOTES"; sleep "$1"; echo "\\"$KILN_ATTEMPT\\"" > "$KILN_OUTPUT"'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_support.UpServer]:
    made = up_support.UpServer(tmp_path / "data", workdir=tmp_path, slots=2)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        processes.signal_all(made.leftovers(), signal.SIGKILL)


def scale_cluster(server: up_support.UpServer, workers: int, slots: int) -> None:
    """Give cluster `default` that many workers with that many slots, and wait for them."""
    cluster = (
        "apiVersion: kilnwork.dev/v1alpha1\nkind: TaskCluster\nmetadata: {name: default}\n"
        f"spec: {{replicas: {workers}, slotsPerWorker: {slots}}}\n"
    )
    server.kiln("apply", "-f", "-", stdin=cluster)
    waiting.wait_until(
        lambda: total_slots(server) == workers * slots,
        what=f"{workers} workers are ready",
    )


def total_slots(server: up_support.UpServer) -> int:
    status = server.get("taskclusters", "default").get("status", {})
    total: int = status.get("slots", {}).get("total", 0)
    return total


def start_task(
    server: up_support.UpServer, name: str, notes: Path, seconds: float, **retry: int
) -> None:
    """Start a task that notes each attempt, and wait until it runs."""
    lines = [
        "apiVersion: kilnwork.dev/v1alpha1",
        "kind: Task",
        f"metadata: {{name: {name}}}",
        "spec:",
        f"  command: [sh, -c, '{APPEND}', sh, '{seconds}']",
        f"  env: [{{name: NOTES, value: '{notes}'}}]",
        f"  retry: {{maxLosses: {retry.get('losses', 3)}}}",
    ]
    server.kiln("apply", "-f", "-", stdin="\n".join(lines))
    waiting.wait_until(lambda: notes.exists() and notes.read_text(), what=f"{name} runs")


def task_status(server: up_support.UpServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get("tasks", name).get("status", {})
    return found


def wait_until_ended(
    server: up_support.UpServer, name: str, *, timeout_s: float = 60
) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        now = task_status(server, name)
        return now if now.get("state") in {"Success", "Failed", "Killed"} else {}

    return waiting.wait_until(look, what=f"{name} ends", timeout_s=timeout_s, every_s=0.3)


def agent_pid(server: up_support.UpServer, pod: str) -> int:
    """Return the pid of the agent of a worker Pod."""
    for pid, command in server.leftovers().items():
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if "kilnwork.worker" in command and f"KILN_WORKER={pod}".encode() in environ:
            return pid
    raise AssertionError(f"no agent of {pod}")


def test_late_report_of_an_agent_paused_past_its_lease_is_ignored(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    scale_cluster(server, 2, 1)
    notes = tmp_path / "notes"
    start_task(server, "sleeper", notes, 12)
    waiting.wait_until(
        lambda: task_status(server, "sleeper").get("state") == "Running", what="it runs"
    )
    first = task_status(server, "sleeper")["podName"]
    pid = agent_pid(server, first)
    os.kill(pid, signal.SIGSTOP)
    try:
        waiting.wait_until(lambda: notes.read_text() == "1\n2\n", what="attempt 2", timeout_s=30)
        time.sleep(3)  # attempt 1 has ended by now, unreported
    finally:
        os.kill(pid, signal.SIGCONT)
    final = wait_until_ended(server, "sleeper")
    assert (final["state"], final["attempts"], final["losses"]) == ("Success", 2, 1)
    assert final["result"]["value"] == "2"
    assert final["podName"] != first
    assert notes.read_text() == "1\n2\n"
    waiting.wait_until(
        lambda: total_slots(server) == 2,
        what="the agent is back",
    )


def test_paused_server_loses_and_fails_no_task(server: up_support.UpServer, tmp_path: Path) -> None:
    scale_cluster(server, 1, 2)
    long, short = tmp_path / "long", tmp_path / "short"
    start_task(server, "long", long, 22, losses=0)
    start_task(server, "short", short, 3, losses=0)
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(15)
    server.process.send_signal(signal.SIGCONT)
    assert wait_until_ended(server, "short")["state"] == "Success"
    final = wait_until_ended(server, "long")
    assert (final["state"], final.get("losses", 0)) == ("Success", 0)
    assert short.read_text() == "1\n"


def test_server_down_longer_than_a_lease_does_not_fail_the_task(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    scale_cluster(server, 1, 2)
    notes = tmp_path / "notes"
    start_task(server, "one", notes, 20, losses=0)
    server.kill()
    time.sleep(12)
    server.start()
    final = wait_until_ended(server, "one")
    assert (final["state"], final["attempts"], final["losses"]) == ("Success", 2, 1)
