"""Copying lines to standard output without ever blocking."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.worker import line_buffer, pod_log_writer
from support import waiting


@pytest.fixture
async def pipe() -> AsyncIterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


async def test_unread_pipe_makes_the_writer_full_without_blocking(
    pipe: tuple[int, int],
) -> None:
    reading, writing = pipe
    copy = pod_log_writer.StdoutWriter(writing)
    rooms: list[bool] = []
    text = b"x" * pod_log_writer.FULL_BYTES * 2
    copy.write(text)
    assert copy.full
    copy.when_room(lambda: rooms.append(copy.full))
    found = bytearray()
    while len(found) < len(text):
        found += await asyncio.to_thread(os.read, reading, 65536)
    await waiting.wait_until_async(lambda: rooms, what="there is room")
    assert rooms == [False]
    assert bytes(found) == text
    copy.close()


async def test_writer_stops_quietly_when_the_reader_is_gone(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    copy = pod_log_writer.StdoutWriter(writing)
    copy.write(b"y" * pod_log_writer.FULL_BYTES * 2)
    rooms: list[int] = []
    copy.when_room(lambda: rooms.append(1))
    os.close(reading)
    await waiting.wait_until_async(lambda: rooms, what="writers go on")
    copy.write(b"more")
    assert not copy.full
    copy.close()


async def test_file_is_written_at_once(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    copy = pod_log_writer.StdoutWriter(descriptor)
    copy.write(b"z" * 1_000_000)
    assert (tmp_path / "out").stat().st_size == 1_000_000
    copy.close()
    os.close(descriptor)


async def test_closed_descriptor_is_not_an_error(pipe: tuple[int, int]) -> None:
    _, writing = pipe
    os.close(writing)
    copy = pod_log_writer.StdoutWriter(writing)
    copy.write(b"into the void")
    assert not copy.full


async def test_lines_stay_whole_and_long_lines_are_passed_on(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)
    shared = pod_log_writer.StdoutWriter(descriptor)
    left, right = line_buffer.Lines(shared), line_buffer.Lines(shared)
    left.write(b"le")
    right.write(b"right\nri")
    left.write(b"ft\n")
    right.close()
    left.write(b"l" * (line_buffer.MAX_LINE_BYTES + 1))
    left.close()
    written = (tmp_path / "out").read_bytes().splitlines()
    assert written == [b"right", b"left", b"ri", b"l" * (line_buffer.MAX_LINE_BYTES + 1)]
    os.close(descriptor)
