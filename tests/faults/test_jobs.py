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
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kit import clock
from support import up_server as up_support
from support import waiting

RUNS = int(os.environ.get("KILN_FAULT_JOBS_RUNS", "2"))
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "20261124"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else [FIRST_SEED + n for n in range(RUNS)]
CONFIGS = 3
KILLS = 3
# Longer than the kills usually take, so that ticks come due before, between and after them.
SCHEDULED_S = 16

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


def config(number: int, log: Path, *, last: int) -> dict[str, Any]:
    """Return a JobConfig with a Job of two tasks each second or two, until the second `last`,
    which makes up for missed ticks.
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
                "constraints": {"notAfter": clock.rfc3339(last)},
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


def every_tick_is_decided(server: up_support.UpServer, last: int) -> bool:
    """Return whether no schedule has a tick left: `last` was the last one of each."""
    configs = server.get("jobconfigs")["items"]
    return {one.get("status", {}).get("lastScheduled") for one in configs} == {clock.rfc3339(last)}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_tick_runs_once_despite_kills(
    server: up_support.UpServer, tmp_path: Path, seed: int
) -> None:
    print(f"seed {seed}: repeat with KILN_FAULT_SEED={seed}")
    rng, log = random.Random(seed), tmp_path / "log"
    # The schedules end by themselves: an edit, even one that disables them, would drop ticks that
    # a busy server has not taken up yet. The last second is even, hence a tick of each of them.
    last = int(time.time()) // 2 * 2 + SCHEDULED_S
    objects = [config(number, log, last=last) for number in range(CONFIGS)]
    server.kiln("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.5, 2.5))
        server.kill()
        time.sleep(rng.choice((0.0, 0.0, 1.5)))
        server.start()
    waiting.wait_until(
        lambda: every_tick_is_decided(server, last), what="every tick is decided", timeout_s=90
    )
    waiting.wait_until(lambda: all_jobs_finished(server), what="all Jobs are over", timeout_s=90)
    found = {one["metadata"]["name"]: one for one in server.get("jobs")["items"]}
    assert {one["status"]["phase"] for one in found.values()} == {"Succeeded"}, found
    for number in range(CONFIGS):
        assert_every_tick_has_a_job(
            server, f"tick-{number}", set(found), last=last, step=1 + number % 2
        )
    assert_every_index_ran_once(log.read_text().split(), set(found))


def assert_every_tick_has_a_job(
    server: up_support.UpServer, name: str, jobs: set[str], *, last: int, step: int
) -> None:
    """Assert that each tick from the creation of the JobConfig to the last one has a Job."""
    ticks = sorted(int(one.rpartition("-")[2]) for one in jobs if one.startswith(f"{name}-"))
    found = server.get("jobconfigs", name)
    created = int(clock.parse_rfc3339(found["metadata"]["creationTimestamp"]))
    assert ticks == [tick for tick in range(created + 1, last + 1) if tick % step == 0]
    assert len(ticks) >= 2
    assert not found["status"].get("missed")


def assert_every_index_ran_once(lines: list[str], jobs: set[str]) -> None:
    """Assert that each index of each Job ran; twice only in another attempt, after a loss."""
    assert {line.split("/")[0] for line in lines} == jobs
    assert {tuple(line.split("/")[:2]) for line in lines} == {
        (job, index) for job in jobs for index in ("0", "1")
    }
    assert max(Counter(lines).values()) == 1
    assert {line.split("/")[2] for line in lines} == {"1"}
