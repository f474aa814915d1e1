"""File jobs that are cancelled, deleted, paused and changed at random points, under kills.

Seeded: the seed is printed, KILN_FAULT_SEED repeats one. KILN_FAULT_FILES_RUNS: longer.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import file_faults, up_files, waiting

LONG = "KILN_FAULT_FILES_RUNS" in os.environ
RUNS = int(os.environ.get("KILN_FAULT_FILES_RUNS", "12")) // 4
FIRST_SEED = int(os.environ.get("KILN_FAULT_SEED", "20261121"))
SEEDS = [FIRST_SEED] if "KILN_FAULT_SEED" in os.environ else [FIRST_SEED + n for n in range(RUNS)]
LINES = 200
SPEC: dict[str, Any] = {
    "mapper": {"function": "fault_mappers:square"},
    "itemsPerPart": 5,
    "retry": {"maxAttempts": 1, "maxLosses": 50, "delaySeconds": 0.1, "maxDelaySeconds": 0.2},
}

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[file_faults.FaultFiles]:
    with file_faults.running(tmp_path_factory.mktemp("control"), delay_s=0.004) as made:
        yield made


@pytest.fixture
def world(started: file_faults.FaultFiles) -> file_faults.FaultFiles:
    started.forget_notes()
    return started


def seeded_random(seed: int) -> random.Random:
    print(f"seed {seed}: repeat with KILN_FAULT_SEED={seed}")
    return random.Random(seed)


def commit_records(world: file_faults.FaultFiles, found: Any) -> dict[str, bytes]:
    directory = world.directory / found["storageBlobPrefix"] / "commits"
    return {path.name: path.read_bytes() for path in directory.glob("[0-9]*")}


def kill_one_or_none(world: file_faults.FaultFiles, rng: random.Random, *kinds: str) -> None:
    kind = rng.choice([*kinds, ""])
    if kind:
        print("killed:", world.kill_one(kind, rng))


def wait_until_purged(world: file_faults.FaultFiles, directory: str) -> None:
    """Wait until all files of a deleted job are gone."""
    waiting.wait_until(
        lambda: not (world.directory / directory).exists(), what="its files are gone", timeout_s=60
    )


def delete(world: file_faults.FaultFiles, job: str) -> None:
    """Delete a job, and wait until its files are gone."""
    directory = world.document(job)["storageBlobPrefix"]
    assert world.ask("DELETE", f"/jobs/{job}").status == 202
    wait_until_purged(world, directory)


@pytest.mark.parametrize("seed", SEEDS)
def test_cancelled_job_commits_no_part_and_is_completed_by_a_redrive(
    world: file_faults.FaultFiles, tmp_path: Path, seed: int
) -> None:
    rng, gate = seeded_random(seed), tmp_path / "gate"
    data = file_faults.held(file_faults.content(rng, LINES - 1), gate, LINES - 1)
    expected = file_faults.by_one_process(data, reduced=False)
    job = world.post(data, SPEC)
    world.wait_for_notes(rng.randrange(LINES * 3 // 4), job)
    kill_one_or_none(world, rng, "slot", "agent")
    response = world.act(job, "cancel")
    assert response["phase"] in ("Cancelling", "Cancelled")
    kill_one_or_none(world, rng, "server", file_faults.ALL, "working")
    found = world.ended(job)
    assert (found["phase"], found["reason"]) == ("Cancelled", "Cancelled")
    assert not found.get("active")
    ended, parts = commit_records(world, found), world.parts(job)
    good = [part for part in parts if part["state"] == "Succeeded"]
    assert {part["state"] for part in parts} <= {"Succeeded", "Cancelled"}
    assert world.result(job, "?partial=true") == b"".join(
        file_faults.by_one_process(data[part["start"] : part["end"]], reduced=False).result
        for part in good
    )
    assert found["records"]["total"] == sum(part["lines"] for part in good)
    assert world.ask("GET", f"/jobs/{job}/results").status == 409
    gate.touch()
    world.act(job, "redrive")
    kill_one_or_none(world, rng, "slot", "server")
    world.ended(job)
    world.assert_sound(job, data, expected)
    after = commit_records(world, found)
    assert {name: after[name] for name in ended} == ended
    redone = {part["part"] for part in world.parts(job) if part["run"] > 1}
    assert redone == {part["part"] for part in parts} - {part["part"] for part in good}


@pytest.mark.parametrize("seed", SEEDS)
def test_deleted_job_leaves_no_files_or_tasks(world: file_faults.FaultFiles, seed: int) -> None:
    rng = seeded_random(seed)
    job = world.post(file_faults.content(rng, LINES - 1), SPEC)
    directory = world.document(job)["storageBlobPrefix"]
    world.wait_for_notes(rng.randrange(LINES), job)
    kill_one_or_none(world, rng, "slot", "zygote")
    assert world.ask("DELETE", f"/jobs/{job}").status == 202
    kill_one_or_none(world, rng, "server", file_faults.ALL, "agent")
    assert world.ask("GET", f"/jobs/{job}").status == 404
    assert job not in world.jobs()
    wait_until_purged(world, directory)
    noted = len(world.noted())
    other = world.post(b'{"n":1}\n', SPEC)  # queued behind any task that may be left
    world.ended(other)
    assert len(world.noted()) == noted + 1
    assert not (world.directory / directory).exists(), list(
        (world.directory / directory).rglob("*")
    )
    delete(world, other)


def test_pause_resume_and_parallelism_hold_despite_kills(
    world: file_faults.FaultFiles, tmp_path: Path
) -> None:
    rng, gate, last = seeded_random(FIRST_SEED), tmp_path / "gate", tmp_path / "last"
    data = file_faults.content(rng, LINES - 1)
    data = file_faults.held(data, gate, *range(60, 70))  # in two parts, one for each slot
    data = file_faults.held(data, last, LINES - 1)
    job = world.post(data, {**SPEC, "suspend": True})
    assert world.document(job)["phase"] == "Paused"

    def change(patch: bytes) -> None:
        kind = {"Content_Type": "application/merge-patch+json"}
        assert world.ask("PATCH", f"/jobs/{job}", patch, **kind).status == 200

    def running() -> int:
        count: int = world.document(job)["progress"]["parts"]["running"]
        return count

    world.kill_one("server", rng)
    assert (world.document(job)["phase"], world.noted()) == ("Paused", [])
    change(b'{"suspend": false, "parallelism": 2}')
    world.wait_for_notes(20, job)
    world.kill_one("working", rng)
    world.act(job, "pause")
    gate.touch()
    waiting.wait_until(lambda: running() == 0, what="what ran has ended")
    assert world.document(job)["phase"] == "Paused"
    begun = {n // 5 for _, n in world.noted()}
    world.kill_one("agent", rng)
    world.kill_one("server", rng)
    other = world.post(b'{"n":1}\n', SPEC)  # workers are up, but leave that job alone
    world.ended(other)
    world.assert_sound(other, b'{"n":1}\n', up_files.ExpectedResult(b'{"n":1,"square":1}\n', [], 1))
    late = {n // 5 for _, n in world.noted()} - begun
    assert len(late) <= 2  # parts that the two slots had already; again, if they were lost
    noted = len(world.noted())
    change(b'{"parallelism": 1}')
    world.act(job, "resume")
    for step in range(1, 4):
        world.wait_for_notes(noted + 10 * step, job)
        assert running() <= 1
        world.kill_one("working", rng)
    last.touch()
    change(b'{"parallelism": null}')
    waiting.wait_until(lambda: running() == 2 or world.over(job), what="both slots have a part")
    world.ended(job)
    world.assert_sound(job, data, file_faults.by_one_process(data, reduced=False))


def test_mapper_that_always_crashes_fails_the_job_despite_kills(
    world: file_faults.FaultFiles,
) -> None:
    rng = seeded_random(FIRST_SEED)
    spec = {**SPEC, "mapper": {"function": "fault_mappers:crashing"}, "maxCrashes": 4}
    job = world.post(b"".join(b'{"n":%d}\n' % n for n in range(1000)), spec)
    world.wait_for_notes(1, job)
    world.kill_one("server", rng)
    found = world.ended(job)
    assert (found["phase"], found["reason"]) == ("Failed", "MapperCrashes")
    assert "exit" in found["message"]
    assert len(world.noted()) <= 12  # of 200 parts
    assert found["progress"]["parts"]["failed"] < 10
    delete(world, job)


@pytest.mark.parametrize("more", [0, -1], ids=["as-many", "one-more"])
def test_bad_records_are_counted_once_despite_kills(
    world: file_faults.FaultFiles, more: int
) -> None:
    rng = seeded_random(FIRST_SEED)
    data = file_faults.content(rng, LINES - 1)
    expected = file_faults.by_one_process(data, reduced=False)
    job = world.post(data, {**SPEC, "maxFailedRecords": len(expected.bad) + more})
    world.kill_at([30, 90, 150], rng, job)
    found = world.ended(job)
    if more == 0:
        world.assert_sound(job, data, expected)
        return
    assert (found["phase"], found["reason"]) == ("Failed", "TooManyBadRecords")
    assert str(len(expected.bad)) in found["message"]
    delete(world, job)
