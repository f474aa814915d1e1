"""A container's log is read back as kubectl asks for it, across both generations."""

import asyncio
import functools
from pathlib import Path

import pytest

from kilnwork.controlplane.node import log_reader, log_writer
from kilnwork.kit import clock
from support import waiting


def write(path: Path, *lines: str, limit: int = 1 << 20, now: clock.Clock | None = None) -> None:
    log = log_writer.LogWriter(path, limit=limit, now=now or clock.ManualClock())
    for line in lines:
        log.write("stdout", line.encode() + b"\n")
    log.close()


ALL = log_reader.LogOptions()


async def read(path: Path, options: log_reader.LogOptions = ALL) -> str:
    return b"".join([piece async for piece in log_reader.read(path, options)]).decode()


async def test_missing_log_is_empty(tmp_path: Path) -> None:
    assert await read(tmp_path / "0.log") == ""


async def test_partial_entries_are_joined(tmp_path: Path) -> None:
    line = "x" * 50_000
    write(tmp_path / "0.log", line, "y")
    assert await read(tmp_path / "0.log") == f"{line}\ny\n"


async def test_timestamps_precede_whole_lines(tmp_path: Path) -> None:
    write(tmp_path / "0.log", "a" * 20_000)
    text = await read(tmp_path / "0.log", log_reader.LogOptions(timestamps=True))
    assert text == "2023-11-14T22:13:20.000000Z " + "a" * 20_000 + "\n"


@pytest.mark.parametrize("count", [0, 1, 3, 99, 100, 101, 5000])
@pytest.mark.parametrize("limit", [1 << 20, 2500], ids=["one file", "two files"])
async def test_tail_lines_of_both_generations(tmp_path: Path, count: int, limit: int) -> None:
    path = tmp_path / "0.log"
    write(path, *(f"line {n}" for n in range(100)), limit=limit)
    everything = (await read(path)).splitlines()
    got = (await read(path, log_reader.LogOptions(tail_lines=count))).splitlines()
    assert got == everything[max(0, len(everything) - count) :]
    assert count == 0 or got[-1] == "line 99"


async def test_tail_lines_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    write(path, *("z" * 1000 + str(n) for n in range(400)))
    got = (await read(path, log_reader.LogOptions(tail_lines=200))).splitlines()
    assert [line[1000:] for line in got] == [str(n) for n in range(200, 400)]


async def test_lines_since_a_time(tmp_path: Path) -> None:
    now, path = clock.ManualClock(), tmp_path / "0.log"
    write(path, "old", now=now)
    now.advance(10)
    since = clock.rfc3339_micro(now.wall())
    write(path, "new", now=now)
    assert await read(path, log_reader.LogOptions(since=since)) == "new\n"


async def test_limit_bytes_truncates_output(tmp_path: Path) -> None:
    write(tmp_path / "0.log", "12345", "67890")
    assert await read(tmp_path / "0.log", log_reader.LogOptions(limit_bytes=8)) == "12345\n67"


async def test_following_reads_everything_through_rotation(tmp_path: Path) -> None:
    path, more = tmp_path / "0.log", True
    log = log_writer.LogWriter(path, limit=3000, now=clock.ManualClock())
    got: list[bytes] = []

    async def follow() -> None:
        options = log_reader.LogOptions(follow=True)
        async for piece in log_reader.read(path, options, more=lambda: more):
            got.append(piece)  # noqa: PERF401 - it is looked at meanwhile

    def has_read(lines: int) -> bool:
        return b"".join(got).count(b"\n") == lines

    async def produce() -> None:
        nonlocal more
        for number in range(200):
            log.write("stdout", f"line {number}\n".encode())
            if number % 40 == 39:  # who is two rotations behind would miss lines
                await waiting.wait_until_async(
                    functools.partial(has_read, number + 1), what=f"{number + 1} lines"
                )
        log.close()
        more = False

    await asyncio.gather(follow(), produce())
    assert b"".join(got).decode().splitlines() == [f"line {n}" for n in range(200)]
