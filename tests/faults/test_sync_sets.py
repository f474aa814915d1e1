"""A SyncSet of 64 shards comes to what one process makes of it, whatever is killed or damaged.

Each seed says what is hit, and when. Two run in the plain suite; KILN_FAULT_SETS says how many, and
`python -m tests.faults.campaign sets` runs many, and goes on where it stopped.
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
def test_a_set_under_faults_comes_to_what_one_process_makes_of_it(seed: int) -> None:
    """Statement 7 of docs/decisions/0043-sync-sets.md; the seed says on which backend."""
    report = run.run(seed)
    assert report.kind == "ok", (
        f"{report.kind} after {report.hits}: {report.text}\n"
        f"kept: {report.directory}\n"
        f"repeat: python -m tests.faults.campaign sets --seeds {seed} --keep"
    )
