"""A part or its reducer killed by SIGKILL at any point; the next attempt completes it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import filejobs
from kilnwork.data import part_commits
from kilnwork.jobs.work import reduce
from support import local_parts

CONTENT = b"".join(b'{"n":%d}\n' % n if n % 5 else b"bad\n" for n in range(1, 21))
RESULTS = b"".join(b'{"n":%d}\n' % n for n in range(1, 21) if n % 5)
SPEC: dict[str, Any] = {"mapper": {"function": "support.mapper_functions:same"}}


def run_until_effect(kind: str, work: msgspec.Struct, at: int) -> bool:
    """Run the work in a process that kills itself at its nth effect; return False if there were
    fewer.
    """
    command = [sys.executable, "-m", "support.crashing_part", kind]
    raw = msgspec.json.encode(work).decode()
    done = subprocess.run([*command, raw, str(at)], check=False, cwd="tests", timeout=30)
    assert done.returncode in (0, -9)
    return done.returncode == -9


@pytest.mark.timeout(120)
def test_part_survives_a_kill_at_any_effect(tmp_path: Path) -> None:
    for at in range(1, 100):
        here = local_parts.World(tmp_path / str(at), CONTENT, **SPEC)
        died = run_until_effect("part", here.work(), at)
        before = part_commits.find(here.store, 1, 1)
        commit = here.map(attempt=at + 1)
        assert before in (None, commit)
        assert here.content(commit.output) == RESULTS
        assert [each["line"] for each in here.reports(commit)] == [5, 10, 15, 20]
        assert commit.records == filejobs.Records(total=20, succeeded=16, failed=4)
        if not died:
            assert before == commit
            break
    assert at > 8


@pytest.mark.timeout(120)
def test_part_survives_repeated_kills(tmp_path: Path) -> None:
    here = local_parts.World(tmp_path, CONTENT, **SPEC)
    at = 1
    while run_until_effect("part", here.work(), at):
        at += 1
    (commit,) = part_commits.read_latest(here.store).values()
    assert here.content(commit.output) == RESULTS


@pytest.mark.timeout(120)
def test_reducer_survives_a_kill_at_any_effect(tmp_path: Path) -> None:
    for at in range(1, 100):
        here = local_parts.World(tmp_path / str(at), CONTENT, itemsPerPart=10, **SPEC)
        runs = tuple((here.map(part.number).part, 1) for part in here.manifest.parts)
        work = filejobs.ReduceWork(store=here.store.url, job="job", parts=runs, run=1)
        died = run_until_effect("reduce", work, at)
        before = part_commits.find(here.store, reduce.PART, 1)
        assert here.reduce_call(attempt=at + 1) == {"damaged": []}
        commit = part_commits.find(here.store, reduce.PART, 1)
        assert commit is not None
        assert before in (None, commit)
        assert here.content(commit.output) == RESULTS
        assert [each["line"] for each in here.reports(commit)] == [5, 10, 15, 20]
        if not died:
            break
    assert at > 8
