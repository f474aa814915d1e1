"""Workers and servers of file jobs that are stopped for longer than a lease, and then continue.

Each test takes more than ten seconds, since leases do: they run with `make test-faults` only.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kit import processes
from support import file_faults, up_files, waiting

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(150),
    pytest.mark.skipif("KILN_FAULT_FILES_RUNS" not in os.environ, reason="long: make test-faults"),
]

SPEC: dict[str, Any] = {
    "mapper": {"function": "fault_mappers:gated"},
    "itemsPerPart": 10,
    "retry": {"maxAttempts": 1, "maxLosses": 5, "delaySeconds": 0.1},
}
GATED = 45
CLUSTER = """
apiVersion: kilnwork.dev/v1alpha1
kind: TaskCluster
metadata: {name: default}
spec: {replicas: 2, slotsPerWorker: 1}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[file_faults.FaultFiles]:
    made = file_faults.FaultFiles(tmp_path, delay_s=0.0)
    try:
        made.server.start()
        made.server.kiln("apply", "-f", "-", stdin=CLUSTER)
        waiting.wait_until(
            lambda: has_two_workers(made), what="two workers", timeout_s=40, every_s=0.3
        )
        yield made
    finally:
        processes.signal_all(made.server.leftovers(), signal.SIGCONT)
        made.destroy()


def has_two_workers(world: file_faults.FaultFiles) -> bool:
    """Return whether exactly two workers, with a slot each, are connected."""
    slots = world.server.get("taskclusters", "default").get("status", {}).get("slots", {})
    return bool(slots.get("total") == 2 == len(world.pids("agent")))


def start_job(world: file_faults.FaultFiles, gate: Path) -> tuple[str, bytes, int]:
    """Start a job one part of which waits for the gate; return its id, its file, and the pid of the
    slot that has this part.
    """
    waits = b',"gate":%s' % json.dumps(str(gate)).encode()
    data = b"".join(b'{"n":%d%b}\n' % (n, waits * (n == GATED)) for n in range(100))
    job = world.post(data, SPEC)
    waiting.wait_until(
        lambda: world.document(job)["progress"]["parts"]["succeeded"] == 9,
        what="the other parts are done",
    )
    [slot] = [pid for pid, n in world.noted() if n == GATED]
    return job, data, slot


def expected_result() -> up_files.ExpectedResult:
    result = b"".join(b'{"n":%d}\n' % n for n in range(100))
    return up_files.ExpectedResult(result, [], 100)


def stored_files(world: file_faults.FaultFiles, job: str) -> dict[str, bytes]:
    directory = world.directory / world.document(job)["storageBlobPrefix"]
    return {path.name: path.read_bytes() for path in directory.rglob("[0-9]*") if path.is_file()}


def test_worker_that_resumes_late_does_not_change_a_redone_part(
    world: file_faults.FaultFiles, tmp_path: Path
) -> None:
    """The frozen worker loses its lease, another does the part; then the first one continues."""
    gate = tmp_path / "gate"
    job, data, slot = start_job(world, gate)
    stats = processes.read_all()
    zygote = stats[slot].parent
    stopped = [stats[zygote].parent, zygote, slot]
    processes.signal_all(stopped, signal.SIGSTOP)
    gate.touch()
    world.ended(job, timeout_s=60)
    world.assert_sound(job, data, expected_result())
    [part] = [one for one in world.parts(job) if 0 <= GATED + 1 - one["firstLine"] < one["lines"]]
    assert part["attempt"] > 1
    before = stored_files(world, job)
    processes.signal_all([slot, zygote, stopped[0]], signal.SIGCONT)
    waiting.wait_until(
        lambda: slot not in processes.read_all(), what="the slot ends: its lease is over"
    )
    after = stored_files(world, job)  # the late slot may have written an output; no record names it
    assert {name: after[name] for name in before} == before
    assert {name.partition(".")[0] for name in after.keys() - before.keys()} <= {"5-1-1"}
    world.assert_sound(job, data, expected_result())
    found = world.document(job)
    world.stop()
    world.assert_tidy(found)


def test_paused_server_counts_no_part_as_lost(
    world: file_faults.FaultFiles, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job, data, _ = start_job(world, gate)
    assert world.server.process is not None
    world.server.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(14)  # a lease lasts 10 s
    finally:
        world.server.process.send_signal(signal.SIGCONT)
    gate.touch()
    world.ended(job)
    world.assert_sound(job, data, expected_result())
    assert world.document(job).get("losses", 0) == 0
