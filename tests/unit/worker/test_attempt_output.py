"""Output with back-pressure, on a real pipe."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kilnwork.worker import attempt_output, pod_log_writer
from support import waiting


@dataclass
class Pipe:
    """The task's end and ours; what was sent."""

    writing: int
    output: attempt_output.AttemptOutput
    sent: list[tuple[int, bytes]] = field(default_factory=list)

    def data(self) -> bytes:
        whole = bytearray()
        for offset, data in self.sent:
            whole[offset : offset + len(data)] = data
        return bytes(whole)

    async def print(self, data: bytes) -> int:
        """Write as much as the pipe takes within a few turns of the loop."""
        done = 0
        for _ in range(400):
            try:
                done += os.write(self.writing, data[done : done + 65536])
            except BlockingIOError:
                await asyncio.sleep(0)
            if done == len(data):
                break
        return done


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    sent: list[tuple[int, bytes]] = []
    nowhere = os.open(os.devnull, os.O_WRONLY)
    shared = pod_log_writer.StdoutWriter(nowhere)
    made = attempt_output.AttemptOutput(
        reading, send=lambda offset, data: sent.append((offset, data)), shared=shared
    )
    yield Pipe(writing, made, sent)
    made.finish()
    shared.close()
    os.close(nowhere)
    os.close(writing)


async def test_output_is_sent_with_its_offset(pipe: Pipe) -> None:
    await pipe.print(b"one\n")
    await waiting.wait_until_async(lambda: pipe.data() == b"one\n", what="the first line")
    await pipe.print(b"two\n")
    await waiting.wait_until_async(lambda: pipe.data() == b"one\ntwo\n", what="the second line")
    assert pipe.sent == [(0, b"one\n"), (4, b"two\n")]


async def test_small_writes_are_combined_into_few_frames(pipe: Pipe) -> None:
    for _ in range(200):
        await pipe.print(b"line\n")
        await asyncio.sleep(0)
    await waiting.wait_until_async(lambda: len(pipe.data()) == 1000, what="all of it")
    assert len(pipe.sent) < 20


async def test_task_blocks_while_output_is_not_acknowledged(pipe: Pipe) -> None:
    much = b"x" * (4 * attempt_output.KEPT_BYTES)
    taken = await pipe.print(much)
    assert attempt_output.KEPT_BYTES <= taken <= attempt_output.KEPT_BYTES + 3 * 65536
    pipe.output.drop_below(attempt_output.KEPT_BYTES // 2)
    assert await pipe.print(b"more") == 4


async def test_only_unacknowledged_output_is_sent_again(pipe: Pipe) -> None:
    await pipe.print(b"0123456789")
    await waiting.wait_until_async(lambda: pipe.sent, what="it was sent")
    pipe.sent.clear()
    pipe.output.send_again(4)
    assert pipe.sent == [(4, b"456789")]
    pipe.sent.clear()
    pipe.output.send_again(2)
    assert pipe.sent == [(4, b"456789")]
    pipe.output.send_again(10)
    assert pipe.sent == [(4, b"456789")]
    pipe.output.drop_below(99)


async def test_rest_of_output_is_read_at_the_end_even_if_much_is_unacknowledged(pipe: Pipe) -> None:
    taken = await pipe.print(b"x" * (2 * attempt_output.KEPT_BYTES))
    pipe.output.finish()
    assert len(pipe.data()) == taken
    pipe.output.finish()


async def test_output_that_fits_a_log_is_never_dropped(pipe: Pipe) -> None:
    block, total = bytes(range(256)) * 256, 0
    while total < 8 << 20:
        total += await pipe.print(block)
        pipe.output.drop_below(sum(len(data) for _, data in pipe.sent))
    pipe.output.finish()
    assert len(pipe.data()) == total


async def test_excess_output_is_dropped_while_the_dispatcher_reads(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning and the end are there, and the offsets say how much is missing."""
    monkeypatch.setattr(attempt_output, "WHOLE_BYTES", 0)
    block = bytes(range(256)) * 1024
    total = 0
    for number in range(64):
        total += await pipe.print(block)
        if number % 8 == 0:
            pipe.output.drop_below(pipe.sent[0][0] + 65536 * (number // 8 + 1))
    assert total == 64 * len(block)
    pipe.output.finish()
    got = sum(len(data) for _, data in pipe.sent)
    assert got < total
    end, last = 0, b""
    for offset, data in pipe.sent:
        assert offset >= end
        end, last = offset + len(data), data
    assert end == total
    assert pipe.sent[0][0] == 0
    assert block.endswith(last[-256:])
    after = [data for offset, data in pipe.sent if offset >= total - attempt_output.TAIL_BYTES // 2]
    assert sum(map(len, after)) >= attempt_output.TAIL_BYTES // 4
