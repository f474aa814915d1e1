"""A `kiln up` under a mixed load, killed and paused meanwhile, loses and repeats nothing.

Each seed determines what is written, requested and killed, and when. One runs in the plain suite;
KILN_FAULT_MIXED is the number of seeds, and `python -m tests.faults.campaign mixed` runs many.
"""

import os

import pytest

from support.mixed_load import run

RUNS = int(os.environ.get("KILN_FAULT_MIXED", "1"))
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "1"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else range(FIRST_SEED, FIRST_SEED + RUNS)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_mixed_load_loses_and_repeats_no_task(seed: int) -> None:
    report = run.run(seed)
    assert report.kind == "ok", (
        f"{report.kind} after {report.hits}: {report.text}\n"
        f"kept: {report.directory}\n"
        f"repeat: python -m tests.faults.campaign mixed --seeds {seed} --keep"
    )
