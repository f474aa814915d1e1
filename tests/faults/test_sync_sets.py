"""A SyncSet of 64 shards gives the result of one process, despite kills and damaged data.

Each seed determines what is hit, and when. Two run in the plain suite; KILN_FAULT_SETS is the
number of seeds, and `python -m tests.faults.campaign sets` runs many, and resumes where it stopped.
"""

import os

import pytest

from support.sets import run

RUNS = int(os.environ.get("KILN_FAULT_SETS", "2"))
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "1"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else range(FIRST_SEED, FIRST_SEED + RUNS)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_set_under_faults_matches_the_result_of_one_process(seed: int) -> None:
    """Statement 7 of docs/decisions/0043-sync-sets.md; the seed chooses the backend."""
    report = run.run(seed)
    assert report.kind == "ok", (
        f"{report.kind} after {report.hits}: {report.text}\n"
        f"kept: {report.directory}\n"
        f"repeat: python -m tests.faults.campaign sets --seeds {seed} --keep"
    )
