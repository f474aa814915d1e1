"""SIGKILL of `kiln up` while schedules make Jobs: no tick is lost, and none runs twice.

Seeded: the seed is printed, KILN_FAULT_SEED repeats one. KILN_FAULT_JOBS_RUNS is the number of runs
(2).
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support import up_server as up_support
from support import waiting

RUNS = int(os.environ.get("KILN_FAULT_JOBS_RUNS", "2"))
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "20261124"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else [FIRST_SEED + n for n in range(RUNS)]
CONFIGS = 3
KILLS = 3

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[up_support.UpServer]:
    made = up_support.UpServer(tmp_path / "data", workdir=tmp_path, slots=4)
    made.start()
    try:
        yield made
    finally:
        made.stop()
    assert made.leftovers() == {}


def config(number: int, log: Path) -> dict[str, Any]:
    """Return a JobConfig with a Job of two tasks each second or two, which makes up for missed
    ticks.
    """
    line = "${job.name}/${task.index_num}/$KILN_RUN/$KILN_ATTEMPT"
    retry = {"maxAttempts": 1, "maxLosses": 50}
    template = {
        "taskTemplate": {"command": ["sh", "-c", f"echo {line} >> {log}"]},
        "parallelism": {"withCount": 2},
        "retry": retry,
    }
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "JobConfig",
        "metadata": {"name": f"tick-{number}"},
        "spec": {
            "concurrency": {"policy": ["Allow", "Enqueue", "Allow"][number], "maxQueued": 1000},
            "schedule": {
                "cron": {"expression": ["* * * * * * *", "*/2 * * * * * *"][number % 2]},
                "missedRuns": {"policy": "All", "maxRuns": 1000},
            },
            "template": {"spec": template},
        },
    }


def all_jobs_finished(server: up_support.UpServer) -> bool:
    """Return whether there are Jobs, and all are finished."""
    phases = [one.get("status", {}).get("phase") for one in server.get("jobs")["items"]]
    final = {"Succeeded", "Failed", "Killed", "AdmissionError"}
    return bool(phases) and all(phase in final for phase in phases)


def disable_schedule(server: up_support.UpServer, name: str) -> None:
    """Disable a schedule, and wait until no tick of it is to come."""
    text = '{"spec": {"schedule": {"disabled": true}}}'
    server.kubectl("patch", "kjc", name, "--type", "merge", "-p", text)

    def disabled() -> bool:
        status = server.get("jobconfigs", name).get("status") or {}
        return status.get("state") == "ReadyDisabled"

    waiting.wait_until(disabled, what=f"{name} is disabled", timeout_s=90)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_tick_runs_once_despite_kills(
    server: up_support.UpServer, tmp_path: Path, seed: int
) -> None:
    print(f"seed {seed}: repeat with KILN_FAULT_SEED={seed}")
    rng, log = random.Random(seed), tmp_path / "log"
    objects = [config(number, log) for number in range(CONFIGS)]
    server.kiln("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.5, 2.5))
        server.kill()
        time.sleep(rng.choice((0.0, 0.0, 1.5)))
        server.start()
    for number in range(CONFIGS):
        disable_schedule(server, f"tick-{number}")
    waiting.wait_until(lambda: all_jobs_finished(server), what="all Jobs are over", timeout_s=90)
    found = {one["metadata"]["name"]: one for one in server.get("jobs")["items"]}
    assert {one["status"]["phase"] for one in found.values()} == {"Succeeded"}, found
    for number in range(CONFIGS):
        assert_every_tick_has_a_job(server, f"tick-{number}", set(found), step=1 + number % 2)
    assert_every_index_ran_once(log.read_text().split(), set(found))


def assert_every_tick_has_a_job(
    server: up_support.UpServer, name: str, jobs: set[str], *, step: int
) -> None:
    """Assert that each tick between the first and the last has a Job."""
    ticks = sorted(int(one.rpartition("-")[2]) for one in jobs if one.startswith(f"{name}-"))
    assert len(ticks) >= 2
    assert ticks == list(range(ticks[0], ticks[-1] + 1, step))
    status = server.get("jobconfigs", name)["status"]
    assert not status.get("missed")
    last = datetime.fromisoformat(status["lastScheduled"]).astimezone(UTC).timestamp()
    assert last == ticks[-1]


def assert_every_index_ran_once(lines: list[str], jobs: set[str]) -> None:
    """Assert that each index of each Job ran; twice only in another attempt, after a loss."""
    assert {line.split("/")[0] for line in lines} == jobs
    assert {tuple(line.split("/")[:2]) for line in lines} == {
        (job, index) for job in jobs for index in ("0", "1")
    }
    assert max(Counter(lines).values()) == 1
    assert {line.split("/")[2] for line in lines} == {"1"}
