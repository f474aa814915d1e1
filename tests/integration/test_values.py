"""Large values, Refs and parts of files, passed between a driver and real slots."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.data import errors, local_blobs
from support import value_tasks

LARGE = 300_000


@pytest.fixture(scope="module")
def session() -> Iterator[kiln.Session]:
    with kiln.start(slots=2) as opened:
        yield opened


def entries(session: kiln.Session) -> set[bytes]:
    return {entry.digest for entry in session.blobs.entries()}


def test_large_arguments_and_results_pass(session: kiln.Session) -> None:
    before = entries(session)
    assert value_tasks.size.submit(bytes(LARGE)).result(30) == LARGE
    assert len(entries(session) - before) == 1
    assert value_tasks.large.submit(LARGE).result(30) == bytes(LARGE)


def test_value_is_shared_by_many_tasks(session: kiln.Session) -> None:
    ref = kiln.put("ab" * LARGE)
    before = entries(session)
    found = value_tasks.size.map([ref] * 20)
    assert kiln.get(list(found), timeout=30) == [2 * LARGE] * 20
    assert value_tasks.sizes.submit({"a": ref, "b": "c"}).result(30) == {"a": 2 * LARGE, "b": 1}
    assert entries(session) == before
    assert kiln.get(ref) == "ab" * LARGE


def test_change_of_a_value_in_a_task_is_private(session: kiln.Session) -> None:
    ref = kiln.put(bytearray(LARGE))
    found = value_tasks.changed.map([ref] * 4)
    assert [each.result(30) for each in found] == [1] * 4
    assert kiln.get(ref) == bytearray(LARGE)


def test_refs_can_be_returned_and_passed_on(session: kiln.Session) -> None:
    ref = value_tasks.put_away.submit(LARGE).result(30)
    assert isinstance(ref, kiln.Ref)
    assert kiln.get(ref) == b"x" * LARGE
    assert value_tasks.size.submit(ref).result(30) == LARGE
    assert value_tasks.through_a_child.submit(ref).result(30) == 2 * LARGE


def test_file_is_passed_in_parts(session: kiln.Session, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{number}\n" for number in range(1000)))
    parts = kiln.split(tmp_path / "in.txt", 7)
    found = kiln.get(value_tasks.lines.map(parts), timeout=30)
    assert [int(line) for _, lines in found for line in lines] == list(range(1000))
    assert all(first == int(lines[0]) + 1 for first, lines in found)


def test_deleted_file_is_read_from_its_copy(session: kiln.Session, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("a\nb\n")
    shipped, bare = kiln.split(path, 2, ship=True), kiln.split(path, 2)
    path.unlink()
    assert kiln.get(value_tasks.lines.map(shipped), timeout=30) == [(1, ["a"]), (2, ["b"])]
    with pytest.raises(FileNotFoundError) as reported:
        value_tasks.lines.submit(bare[0]).result(30)
    assert "ship=True" in "".join(reported.value.__notes__)


def test_damaged_value_fails_its_task_by_name(session: kiln.Session) -> None:
    before = entries(session)
    ref = kiln.put(b"y" * LARGE)
    (digest,) = entries(session) - before
    path = session.blobs.path(digest)
    path.write_bytes(b"z" * path.stat().st_size)
    with pytest.raises(errors.BlobDamaged, match=local_blobs.text(digest)):
        value_tasks.size.submit(ref).result(30)
    assert kiln.put(b"y" * LARGE) == ref
    assert value_tasks.size.submit(ref).result(30) == LARGE


def test_missing_value_fails_its_task_by_name(session: kiln.Session) -> None:
    before = entries(session)
    ref = kiln.put(b"w" * LARGE)
    (digest,) = entries(session) - before
    session.blobs.path(digest).unlink()
    with pytest.raises(errors.BlobMissing, match=local_blobs.text(digest)):
        value_tasks.size.submit(ref).result(30)
    assert kiln.put(b"w" * LARGE) == ref
    assert value_tasks.size.submit(ref).result(30) == LARGE
