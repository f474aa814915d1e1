"""Commit records in every kind of store: the first writer of the record of a part's run wins for
all.
"""

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors, part_commits
from kilnwork.data.stores import port
from support import object_stores

DONE = filejobs.PartOutcome.SUCCEEDED


@pytest.fixture(params=object_stores.KINDS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[port.Store]:
    with object_stores.open_store(request.param, tmp_path) as made:
        yield made


def a_commit(part: int = 1, run: int = 1, *, attempt: int = 1) -> filejobs.Commit:
    return filejobs.Commit(
        part=part,
        run=run,
        attempt=attempt,
        outcome=DONE,
        records=filejobs.Records(total=3, succeeded=1, failed=1, skipped=1),
        output=filejobs.StoredFile(
            key=f"out/{part}-{run}-{attempt}.ndjson", bytes=10, lines=1, sha256="0" * 64
        ),
        started=1.5,
        finished=2.5,
        worker="w-1",
    )


def test_commit_record_round_trips(store: port.Store) -> None:
    assert part_commits.find(store, 1, 1) is None
    assert part_commits.publish(store, a_commit()) == a_commit()
    assert part_commits.find(store, 1, 1) == a_commit()
    assert store.head("commits/1-1")


def test_first_commit_wins_and_later_ones_get_it_returned(store: port.Store) -> None:
    first = part_commits.publish(store, a_commit(attempt=2))
    assert part_commits.publish(store, a_commit(attempt=1)) == first
    assert part_commits.publish(store, a_commit(attempt=3)) == first
    assert part_commits.publish(store, first) == first
    assert part_commits.find(store, 1, 1) == first


def test_each_run_of_a_part_has_its_own_record(store: port.Store) -> None:
    part_commits.publish(store, a_commit(run=1))
    part_commits.publish(store, a_commit(run=2))
    part_commits.publish(store, a_commit(part=10, run=1))
    part_commits.publish(store, a_commit(part=0, run=1))
    store.put("commits/notes.txt", b"no record")
    assert sorted(part_commits.list_runs(store)) == [(0, 1), (1, 1), (1, 2), (10, 1)]
    found = part_commits.read_latest(store)
    assert list(found) == [0, 1, 10]
    assert {part: commit.run for part, commit in found.items()} == {0: 1, 1: 2, 10: 1}


def test_failed_part_accepts_no_later_commit(store: port.Store) -> None:
    ended = part_commits.fail_part(
        store, 1, 1, outcome=filejobs.PartOutcome.CANCELLED, message="cancelled by alice", at=7.0
    )
    assert (ended.attempt, ended.outcome) == (part_commits.SERVER, filejobs.PartOutcome.CANCELLED)
    assert part_commits.publish(store, a_commit()) == ended
    assert part_commits.publish(store, a_commit(2)) == a_commit(2)
    won = part_commits.fail_part(
        store, 2, 1, outcome=filejobs.PartOutcome.FAILED, message="late", at=8.0
    )
    assert won == a_commit(2)


def test_twelve_concurrent_commits_all_get_the_same_record(store: port.Store) -> None:
    gate = threading.Barrier(12)

    def end(attempt: int) -> filejobs.Commit:
        gate.wait()
        if attempt == 0:
            return part_commits.fail_part(
                store, 3, 1, outcome=filejobs.PartOutcome.FAILED, message="", at=1.0
            )
        return part_commits.publish(store, a_commit(3, attempt=attempt))

    with futures.ThreadPoolExecutor(12) as pool:
        results = list(pool.map(end, range(12)))
    assert results == [part_commits.find(store, 3, 1)] * 12


@pytest.mark.parametrize("raw", [b"", b"{", b'{"part": 1}', b"null"])
def test_damaged_record_raises_object_damaged(store: port.Store, raw: bytes) -> None:
    store.put("commits/1-1", raw)
    with pytest.raises(errors.ObjectDamaged, match="redrive"):
        part_commits.find(store, 1, 1)
    with pytest.raises(errors.ObjectDamaged):
        part_commits.read_latest(store)


def test_record_under_the_name_of_another_part_raises_object_damaged(store: port.Store) -> None:
    part_commits.publish(store, a_commit(1))
    store.put("commits/2-1", port.read_all(store, "commits/1-1"))
    with pytest.raises(errors.ObjectDamaged, match="part 1, run 1"):
        part_commits.publish(store, a_commit(2))
