"""Random programs of the public Python API, under kills and pauses, match the model.

Each seed is a program, its faults and their moments. A few run in the plain suite;
KILN_FAULT_PROGRAMS is the number of seeds, and `python -m tests.faults.campaign` runs thousands.
"""

import os

import pytest

from support.programs import run

RUNS = int(os.environ.get("KILN_FAULT_PROGRAMS", "2"))
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "1"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else range(FIRST_SEED, FIRST_SEED + RUNS)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_program_matches_the_model(seed: int) -> None:
    report = run.run(seed)
    assert report.kind == "ok", (
        f"{report.kind} after {report.hits}: {report.text}\n"
        f"kept: {report.directory}\n"
        f"repeat: python -m tests.faults.campaign programs --seeds {seed} --keep"
    )
