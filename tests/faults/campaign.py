"""Run many seeds, for as long as wanted, and resume from a state file.

    python -m tests.faults.campaign programs --seeds 1:1000 --state programs.jsonl --jobs 2
    python -m tests.faults.campaign programs --seeds 17 --keep   # repeat one, and keep its files
    python -m tests.faults.campaign summary --state programs.jsonl

Exits with 1 if any seed that ran was not ok.
"""

import argparse
import dataclasses
import functools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest has it

from support import campaigns
from support.mixed_load import run as mixed
from support.programs import run as programs
from support.sets import run as sets


def one_program(seed: int, *, keep: bool) -> campaigns.Report:
    """Run a random program under faults."""
    return dataclasses.asdict(programs.run(seed, keep=keep))


def one_storm(seed: int, *, keep: bool) -> campaigns.Report:
    """Run a random program under many more faults."""
    return dataclasses.asdict(programs.run(seed, storm=True, keep=keep))


def one_load(seed: int, *, keep: bool) -> campaigns.Report:
    """Run a mixed load on a server that is killed."""
    return dataclasses.asdict(mixed.run(seed, keep=keep))


def one_set(seed: int, *, keep: bool) -> campaigns.Report:
    """Run a SyncSet of 64 shards whose processes and data are disturbed."""
    return dataclasses.asdict(sets.run(seed, keep=keep))


KINDS = {"programs": one_program, "storms": one_storm, "mixed": one_load, "sets": one_set}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=[*KINDS, "summary"])
    parser.add_argument("--seeds", default="1:1000", help="7, 1:1000, or 3,5,10:20")
    parser.add_argument("--state", type=Path, help="a file of JSON lines to go on from")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at the same time")
    parser.add_argument("--minutes", type=float, help="begin no further seed after so long")
    parser.add_argument("--again", action="store_true", help="run those that are done as well")
    parser.add_argument("--keep", action="store_true", help="keep the directory of each seed")
    options = parser.parse_args()
    if options.kind == "summary":
        reports = list(campaigns.read(options.state).values())
        print(campaigns.summary(reports))
        return 0 if all(report["kind"] == "ok" for report in reports) else 1
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    campaign = campaigns.Campaign(
        functools.partial(KINDS[options.kind], keep=options.keep),
        state=options.state,
        say=functools.partial(print, flush=True),
        deadline=deadline,
    )
    seeds = campaigns.seeds_of(options.seeds)
    return campaign.run(seeds, jobs=options.jobs, again=options.again)


if __name__ == "__main__":
    sys.exit(main())
