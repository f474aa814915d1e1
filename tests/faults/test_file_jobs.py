"""SIGKILL at random points of file jobs: the result equals that of one process, and no file is
left.

Seeded: the seed is printed, KILN_FAULT_SEED repeats one. KILN_FAULT_FILES_RUNS is the number of
runs, then of 200 parts each; without it, a dozen of 40 parts.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import file_faults

LONG = "KILN_FAULT_FILES_RUNS" in os.environ
RUNS = int(os.environ.get("KILN_FAULT_FILES_RUNS", "12"))
PARTS, LINES, KILLS = (200, 6, (4, 8)) if LONG else (40, 5, (1, 3))
DELAY_S = 0.004
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "20261121"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else [FIRST_SEED + n for n in range(RUNS)]

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


def spec(rng: random.Random) -> dict[str, Any]:
    """Return the spec of a job with or without a reducer, and with or without limited
    parallelism.
    """
    made: dict[str, Any] = {
        "mapper": {"function": "fault_mappers:square"},
        "itemsPerPart": LINES,
        "retry": {"maxAttempts": 1, "maxLosses": 50, "delaySeconds": 0.1, "maxDelaySeconds": 0.2},
    }
    if rng.random() < 0.6:
        made["reducer"] = {"function": "fault_mappers:numbered"}
    if rng.random() < 0.3:
        made["parallelism"] = rng.randint(1, 8)
    return made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[file_faults.FaultFiles]:
    made = file_faults.FaultFiles(tmp_path, delay_s=DELAY_S)
    try:
        made.server.start()
        yield made
    finally:
        made.destroy()


@pytest.mark.parametrize("seed", SEEDS)
def test_file_job_completes_despite_random_kills(world: file_faults.FaultFiles, seed: int) -> None:
    rng = random.Random(seed)
    print(f"seed {seed}: repeat with KILN_FAULT_SEED={seed}")
    data, wanted = file_faults.content(rng, PARTS * LINES - 1), spec(rng)
    expected = file_faults.by_one_process(data, reduced="reducer" in wanted)
    job = world.post(data, wanted)
    notes = PARTS * LINES + ("reducer" in wanted) * PARTS * LINES // 10
    moments = sorted(rng.sample(range(notes), rng.randint(*KILLS)))
    kills = world.kill_at(moments, rng, job)
    try:
        found = world.ended(job, timeout_s=120)
        world.assert_sound(job, data, expected)
    except AssertionError:
        print(world.story(job))
        raise
    begun = [n for _, n in world.noted() if n >= 0]
    print(f"kills: {kills}; {len(begun) - len(set(begun))} records were begun more than once")
    assert set(begun) == {n for n in range(PARTS * LINES) if b'{"n":%d}' % n in data}
    world.stop()
    world.assert_tidy(found)
