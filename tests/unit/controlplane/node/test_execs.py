"""The ends of a process's input and output, also when descriptors run out."""

import pytest

from kilnwork.controlplane.node import execs, streams
from support import descriptors

EVERYTHING = (streams.STDIN, streams.STDOUT, streams.STDERR)


@pytest.mark.parametrize("room", range(6))
async def test_what_cannot_be_made_whole_leaves_nothing_open(room: int) -> None:
    before = descriptors.opened()
    with descriptors.room_for(room), pytest.raises(OSError, match="Too many open files"):
        execs.ends(EVERYTHING, tty=False)
    assert descriptors.opened() == before


@pytest.mark.parametrize("room", range(3))
async def test_nor_does_a_terminal(room: int) -> None:
    before = descriptors.opened()
    with descriptors.room_for(room), pytest.raises(OSError, match=r"open files|pty"):
        execs.ends(EVERYTHING, tty=True)
    assert descriptors.opened() == before


@pytest.mark.parametrize("tty", [False, True])
async def test_all_are_closed_in_the_end(tty: bool) -> None:  # noqa: FBT001
    before = descriptors.opened()
    made = execs.ends((streams.STDOUT,), tty=tty)
    made.give_away()
    made.close()
    assert descriptors.opened() == before
