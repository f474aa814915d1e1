"""Outputs of parts are read in order and compared with the commit records."""

import hashlib
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest

from kilnwork.api import filejobs
from kilnwork.data import part_commits
from kilnwork.data.stores import local
from kilnwork.jobs.work import output_reader

TWO = ((1, 1), (2, 1))


def commit(store: local.LocalStore, part: int, data: bytes) -> None:
    key = f"parts/{part}"
    store.put(key, data)
    file = filejobs.StoredFile(
        key=key, bytes=len(data), lines=data.count(b"\n"), sha256=hashlib.sha256(data).hexdigest()
    )
    outcome = filejobs.PartOutcome.SUCCEEDED
    part_commits.publish(
        store, filejobs.Commit(part=part, run=1, attempt=1, outcome=outcome, output=file)
    )


@pytest.fixture
def store(tmp_path: Path) -> local.LocalStore:
    made = local.LocalStore(tmp_path)
    commit(made, 1, b"a\n")
    commit(made, 2, b"b\nc\n")
    return made


@pytest.fixture
def reader(store: local.LocalStore) -> Iterator[output_reader.PartOutputReader]:
    with futures.ThreadPoolExecutor(1) as aside:
        yield output_reader.PartOutputReader(store, on_progress=lambda read: None, aside=aside)


def test_results_are_read_in_order_with_their_sum(
    store: local.LocalStore, reader: output_reader.PartOutputReader
) -> None:
    found = output_reader.outputs_of(store, TWO)
    assert b"".join(reader.read_outputs(found)) == b"a\nb\nc\n"
    results, bad = reader.sum_outputs(found)
    assert (results.lines, results.bytes, bad) == (3, 6, None)
    assert results.sha256 == hashlib.sha256(b"a\nb\nc\n").hexdigest()


def test_part_without_successful_commit_is_reported(store: local.LocalStore) -> None:
    with pytest.raises(output_reader.OutputDamaged, match="part 3, run 1, has no commit"):
        output_reader.outputs_of(store, (*TWO, (3, 1)))
    failed = filejobs.Commit(part=3, run=1, attempt=1, outcome=filejobs.PartOutcome.FAILED)
    part_commits.publish(store, failed)
    with pytest.raises(output_reader.OutputDamaged, match="has ended as Failed"):
        output_reader.outputs_of(store, ((3, 1),))


def test_altered_bytes_are_found_by_reading_all(
    store: local.LocalStore, reader: output_reader.PartOutputReader
) -> None:
    found = output_reader.outputs_of(store, TWO)
    store.put("parts/2", b"b\nX\n")
    assert output_reader.find_missing(store, TWO) == []
    with pytest.raises(output_reader.OutputDamaged, match="is not what was written") as damaged:
        list(reader.read_outputs(found))
    assert damaged.value.found.part == 2


def test_missing_or_short_file_is_found_without_reading(store: local.LocalStore) -> None:
    store.delete(["parts/1"])
    store.put("parts/2", b"b")
    first, second = output_reader.find_missing(store, TWO)
    assert "its parts/1 is gone" in first.message
    assert "has 1 bytes instead of 4" in second.message
