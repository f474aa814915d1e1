"""A thread reads a file again from a given position, and passes on its errors."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from kilnwork.data import errors
from kilnwork.data.records import reread_thread

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def file(tmp_path: Path) -> Iterator[BinaryIO]:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    with path.open("rb") as opened:
        yield opened


def test_bytes_are_read_in_order_from_the_start(file: BinaryIO) -> None:
    again = reread_thread.Rereader(file.fileno(), 3)
    read = [b"".join(map(bytes, again.next(count))) for count in (5, 0, 7)]
    again.skip(10)
    read.append(b"".join(map(bytes, again.next(4))))
    assert read == [CONTENT[3:8], b"", CONTENT[8:15], CONTENT[25:29]]


def test_file_that_became_shorter_is_reported(file: BinaryIO) -> None:
    again = reread_thread.Rereader(file.fileno(), 0)
    assert sum(len(piece) for piece in again.next(len(CONTENT))) == len(CONTENT)
    with pytest.raises(errors.FileChanged, match="became shorter"):
        list(again.next(1))


def test_settle_waits_for_work_in_order() -> None:
    thread, done = reread_thread.RereadThread(), list[int]()
    for number in range(10):
        thread.give(functools.partial(done.append, number))
    thread.settle()
    assert done == list(range(10))
    thread.close()


def test_settle_raises_what_work_has_raised() -> None:
    thread = reread_thread.RereadThread()

    def fail() -> None:
        raise OSError("disk")

    thread.give(fail)
    with pytest.raises(OSError, match="disk"):
        thread.settle()
    thread.settle()
    thread.close()
