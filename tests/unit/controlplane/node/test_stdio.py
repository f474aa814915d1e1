"""What a shim holds of a container's input and output, when descriptors run out."""

from pathlib import Path

import pytest

from kilnwork.controlplane.node import stdio
from support import file_descriptors


@pytest.mark.parametrize(
    ("tty", "room"), [*((True, room) for room in range(3)), *((False, room) for room in range(6))]
)
def test_failed_open_leaves_nothing_open(tmp_path: Path, tty: bool, room: int) -> None:  # noqa: FBT001
    before = file_descriptors.open_descriptors()
    held = stdio.Stdio(tmp_path, 0)
    with file_descriptors.limit_new(room), pytest.raises(OSError, match=r"open files|pty"):
        held.open(stdin=True, once=False, tty=tty)
    assert file_descriptors.open_descriptors() == before
    assert not held.pipes
    assert not any(tmp_path.iterdir())
