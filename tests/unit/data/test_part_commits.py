"""Commit records: the first record of a part's run is its result."""

from pathlib import Path

import msgspec
import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors, part_commits
from kilnwork.data.stores import local


@pytest.fixture
def store(tmp_path: Path) -> local.LocalStore:
    return local.LocalStore(tmp_path / "job")


def commit(part: int, run: int, *, attempt: int = 1) -> filejobs.Commit:
    done = filejobs.PartOutcome.SUCCEEDED
    return filejobs.Commit(part=part, run=run, attempt=attempt, outcome=done)


def test_later_attempts_get_the_first_record(store: local.LocalStore) -> None:
    assert part_commits.find(store, 1, 1) is None
    first = part_commits.publish(store, commit(1, 1, attempt=1))
    assert part_commits.publish(store, commit(1, 1, attempt=2)) == first
    failed = filejobs.PartOutcome.FAILED
    assert part_commits.fail_part(store, 1, 1, outcome=failed, message="", at=5.0) == first
    assert part_commits.find(store, 1, 1) == first


def test_failed_part_has_record_of_the_server(store: local.LocalStore) -> None:
    found = part_commits.fail_part(
        store, 2, 3, outcome=filejobs.PartOutcome.CANCELLED, message="why", at=5.0
    )
    assert (found.attempt, found.message, found.started, found.finished) == (0, "why", 5.0, 5.0)
    assert part_commits.find(store, 2, 3) == found


def test_latest_returns_highest_run_of_each_part(store: local.LocalStore) -> None:
    for part, run in ((1, 2), (1, 10), (1, 9), (0, 1)):
        part_commits.publish(store, commit(part, run))
    for key in ("commits/x-1", "commits/1-x", "commits/5"):
        store.put(key, b"")
    assert sorted(part_commits.list_runs(store)) == [(0, 1), (1, 2), (1, 9), (1, 10)]
    assert part_commits.read_latest(store) == {0: commit(0, 1), 1: commit(1, 10)}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is no commit record"),
        (msgspec.json.encode(commit(1, 2)), "it is that of part 1, run 2"),
        (msgspec.json.encode(commit(2, 1)), "it is that of part 2, run 1"),
    ],
)
def test_record_under_wrong_key_is_damaged(
    store: local.LocalStore, content: bytes, reason: str
) -> None:
    store.put("commits/1-1", content)
    with pytest.raises(errors.ObjectDamaged, match=reason):
        part_commits.find(store, 1, 1)
