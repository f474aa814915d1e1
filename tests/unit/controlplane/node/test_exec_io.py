"""Our ends of a process's input and output."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest

from kilnwork.controlplane.node import exec_io


@pytest.fixture
async def exit_stack() -> AsyncIterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


async def test_output_is_read_to_its_end(exit_stack: contextlib.ExitStack) -> None:
    output, theirs = exec_io.pipe_from()
    exit_stack.callback(output.close)
    reading = asyncio.create_task(output.read())
    await asyncio.sleep(0)
    os.write(theirs, b"x")
    assert await reading == b"x"
    os.close(theirs)
    assert await output.read() == b""


async def test_input_waits_for_a_slow_reader(exit_stack: contextlib.ExitStack) -> None:
    theirs, ours = exec_io.pipe_to()
    exit_stack.callback(os.close, theirs)
    exit_stack.callback(ours.close)
    content = b"x" * (1 << 20)
    writing = asyncio.create_task(ours.write(content))
    await asyncio.sleep(0)
    assert not writing.done()
    left = len(content)
    while left:
        left -= len(await asyncio.to_thread(os.read, theirs, 1 << 16))
    assert await writing


async def test_write_without_a_reader_returns_false(exit_stack: contextlib.ExitStack) -> None:
    theirs, ours = exec_io.pipe_to()
    exit_stack.callback(ours.close)
    os.close(theirs)
    assert not await ours.write(b"x")


async def test_terminal_is_resized(exit_stack: contextlib.ExitStack) -> None:
    terminal = exec_io.terminal()
    exit_stack.callback(os.close, terminal.theirs)
    exit_stack.callback(terminal.input.close)
    exit_stack.callback(terminal.output.close)
    terminal.input.resize(width=90, height=30)
    assert os.get_terminal_size(terminal.theirs) == (90, 30)
    os.write(terminal.theirs, b"hi")
    assert await terminal.output.read() == b"hi"
