"""Effects of the calls of a random program: one line per start, in a file that only grows.

Written by tasks and the driver with single appends, so that a kill leaves whole lines. Read by
`run`, which finds there what ran twice without a reason.
"""

import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "KILN_PROGRAM_EFFECTS"


class Effect(NamedTuple):
    """One line. `kind`: start, fail, crash, hang, spawned or seen; `at`: its offset in the file."""

    at: int
    kind: str
    node: str
    task: str
    run: int
    attempt: int
    pid: int


def note(kind: str, node: str, task: str = "-", run: int = 0, attempt: int = 0) -> None:
    """Append a line to the file that the environment names."""
    line = f"{kind} {node} {task} {run} {attempt} {os.getpid()}\n"
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> list[Effect]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    found = []
    for at, line in enumerate(text.splitlines()):
        words = line.split(" ")
        if len(words) == 6:
            kind, node, task, run, attempt, pid = words
            found.append(Effect(at, kind, node, task, int(run), int(attempt), int(pid)))
    return found


def count(kind: str, node: str) -> int:
    """Return how many lines of this kind a call has written so far."""
    return sum(each.kind == kind and each.node == node for each in read(Path(os.environ[VARIABLE])))
