"""The bad records of a mapped file."""

import json
import pickle
from collections.abc import Iterator

import pytest

from kilnwork.api import attempts, filejobs
from kilnwork.files import bad_records, part_work
from kilnwork.sdk import values


def _ref(data: bytes) -> values.Ref[bytes]:
    return values.Ref(attempts.Payload(attempts.PICKLE, pickle.dumps(data)))


def _done(*lines: int) -> part_work.Done:
    """A part with a bad record in each of these lines."""
    found = [{"line": line, "reason": f"r{line}", "raw": "x"} for line in lines]
    data = b"".join(json.dumps(one).encode() + b"\n" for one in found)
    return part_work.Done(
        records=filejobs.Records.of(7, len(lines), 3), lines=_ref(b""), own=b"", errors=_ref(data)
    )


class _Parts:
    """Parts of a file; `read` counts those that were given."""

    def __init__(self, *parts: part_work.Done) -> None:
        self.parts = parts
        self.read = 0

    def __call__(self) -> Iterator[part_work.Done]:
        for one in self.parts:
            self.read += 1
            yield one


@pytest.fixture
def parts() -> _Parts:
    return _Parts(_done(2, 5), _done(), _done(9))


@pytest.fixture
def found(parts: _Parts) -> bad_records.BadRecords:
    return bad_records.BadRecords(parts)


def test_bad_records_come_in_the_order_of_the_file_each_time(
    found: bad_records.BadRecords,
) -> None:
    assert [one["line"] for one in found] == [2, 5, 9]
    assert list(found) == list(found)
    assert len(found) == 3


@pytest.mark.parametrize(("index", "line"), [(0, 2), (2, 9), (-1, 9), (-3, 2)])
def test_a_record_is_found_by_its_index(
    found: bad_records.BadRecords, index: int, line: int
) -> None:
    assert found[index]["line"] == line


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_outside_is_refused(found: bad_records.BadRecords, index: int) -> None:
    with pytest.raises(IndexError, match=f"3 bad records, no number {index}"):
        found[index]


@pytest.mark.parametrize(
    "part", [slice(None), slice(1), slice(1, None), slice(-1, None), slice(None, None, -1)]
)
def test_a_slice_is_that_of_a_list(found: bad_records.BadRecords, part: slice) -> None:
    assert found[part] == list(found)[part]


def test_only_parts_before_an_index_are_read(found: bad_records.BadRecords, parts: _Parts) -> None:
    assert found[0]["reason"] == "r2"
    assert parts.read == 1


def test_bad_records_equal_a_list_of_the_same(found: bad_records.BadRecords) -> None:
    assert found == list(found)
    assert found != list(found)[1:]
    assert found != "abc"


def test_the_text_names_the_number_and_the_first(found: bad_records.BadRecords) -> None:
    assert repr(found) == "<BadRecords: 3, the first in line 2: r2>"
    assert repr(bad_records.BadRecords(_Parts(_done()))) == "<BadRecords: none>"
