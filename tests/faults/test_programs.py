"""Random programs of the public Python API under kills and pauses come to what the model says.

Each seed is a program, its faults and their moments. A few run in the plain suite;
KILN_FAULT_PROGRAMS says how many, and `python -m tests.faults.campaign` runs thousands.
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
def test_a_random_program_comes_to_what_the_model_says(seed: int) -> None:
    report = run.run(seed)
    assert report.kind == "ok", (
        f"{report.kind} after {report.hits}: {report.text}\n"
        f"kept: {report.directory}\n"
        f"repeat: python -m tests.faults.campaign programs --seeds {seed} --keep"
    )
