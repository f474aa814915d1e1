"""SIGKILL at random points of futures: results are right; no task is lost or done twice, and no
process is left.

Seeded: the seed is printed, KILN_FAULT_SEED repeats one; KILN_FAULT_FUTURES_RUNS is the number of
runs (12).
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import fault_driver, fault_home, waiting

RUNS = int(os.environ.get("KILN_FAULT_FUTURES_RUNS", "12"))
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "20261121"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else [FIRST_SEED + n for n in range(RUNS)]

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[fault_home.FaultHome]:
    made = fault_home.FaultHome(tmp_path)
    try:
        yield made
    finally:
        made.destroy()


def kill_at_random_moments(home: fault_home.FaultHome, rng: random.Random, tasks: int) -> list[str]:
    """Kill two or three processes, each when a random number of tasks has begun; return their
    kinds.
    """
    kills = []
    for moment in sorted(rng.sample(range(tasks), rng.randint(2, 3))):
        waiting.wait_until(
            lambda at=moment: has_ended(home) or len(home.noted()) >= at,  # type: ignore[misc]
            what=f"{moment} tasks have begun",
            timeout_s=60,
            every_s=0.002,
        )
        time.sleep(rng.uniform(0, 0.03))
        kind, pick = rng.choice([*fault_home.KINDS, fault_home.ALL]), rng.randrange(8)
        if has_ended(home):
            break
        kills.append(kind if home.kill_one(kind, pick=pick) else f"{kind} (none)")
    return kills


def has_ended(home: fault_home.FaultHome) -> bool:
    return home.driver is None or home.driver.poll() is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_futures_complete_despite_random_kills(home: fault_home.FaultHome, seed: int) -> None:
    rng = random.Random(seed)
    shape = sorted(fault_driver.SHAPES)[seed % len(fault_driver.SHAPES)]
    print(f"seed {seed}, {shape}: repeat with KILN_FAULT_SEED={seed}")
    tasks = fault_driver.TASKS[shape]
    home.start(str(home.directory), shape)
    kills = kill_at_random_moments(home, rng, tasks)
    print("kills:", kills)
    assert home.result() == fault_driver.RESULTS[shape]
    home.wait_until_gone(timeout_s=75)
    home.assert_sound(tasks=tasks, losses=len(kills))
