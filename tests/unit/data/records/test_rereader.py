"""A file is read again from where it was left, in a thread that passes on what failed."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from kilnwork.data import errors
from kilnwork.data.records import rereader

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def file(tmp_path: Path) -> Iterator[BinaryIO]:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    with path.open("rb") as opened:
        yield opened


def test_bytes_follow_each_other_from_where_it_begins(file: BinaryIO) -> None:
    again = rereader.Rereader(file.fileno(), 3)
    read = [b"".join(map(bytes, again.next(count))) for count in (5, 0, 7)]
    again.skip(10)
    read.append(b"".join(map(bytes, again.next(4))))
    assert read == [CONTENT[3:8], b"", CONTENT[8:15], CONTENT[25:29]]


def test_a_file_with_fewer_bytes_became_shorter(file: BinaryIO) -> None:
    again = rereader.Rereader(file.fileno(), 0)
    assert sum(len(piece) for piece in again.next(len(CONTENT))) == len(CONTENT)
    with pytest.raises(errors.FileChanged, match="became shorter"):
        list(again.next(1))


def test_work_is_done_in_its_order_by_the_time_it_is_settled() -> None:
    thread, done = rereader.Thread(), list[int]()
    for number in range(10):
        thread.give(functools.partial(done.append, number))
    thread.settle()
    assert done == list(range(10))
    thread.close()


def test_what_work_raises_is_raised_once_it_is_settled() -> None:
    thread = rereader.Thread()

    def fail() -> None:
        raise OSError("disk")

    thread.give(fail)
    with pytest.raises(OSError, match="disk"):
        thread.settle()
    thread.settle()
    thread.close()
