"""The ends of a process's input and output, also when descriptors run out."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.controlplane.node import execs, streams

EVERYTHING = (streams.STDIN, streams.STDOUT, streams.STDERR)


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@contextlib.contextmanager
def room_for(count: int) -> Iterator[None]:
    """Only so many more descriptors can be opened: gaps are filled, then the limit is set."""
    fillers, highest = [os.dup(0)], max(map(int, descriptors()))
    while fillers[-1] <= highest:
        fillers.append(os.dup(0))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1 + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for filler in fillers:
            os.close(filler)


@pytest.mark.parametrize("room", range(6))
async def test_what_cannot_be_made_whole_leaves_nothing_open(room: int) -> None:
    before = descriptors()
    with room_for(room), pytest.raises(OSError, match="Too many open files"):
        execs.ends(EVERYTHING, tty=False)
    assert descriptors() == before


@pytest.mark.parametrize("room", range(3))
async def test_nor_does_a_terminal(room: int) -> None:
    before = descriptors()
    with room_for(room), pytest.raises(OSError, match=r"open files|pty"):
        execs.ends(EVERYTHING, tty=True)
    assert descriptors() == before


@pytest.mark.parametrize("tty", [False, True])
async def test_all_are_closed_in_the_end(tty: bool) -> None:  # noqa: FBT001
    before = descriptors()
    made = execs.ends((streams.STDOUT,), tty=tty)
    made.give_away()
    made.close()
    assert descriptors() == before
