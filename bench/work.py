"""The task functions that are measured; a module of its own, so that slots import them by name."""

import time
from pathlib import Path

import kilnwork as kiln


@kiln.task
def echo(number: int, padding: str) -> int:
    """A no-op whose arguments are as large as one wants."""
    return number


@kiln.task
def hop(left: int) -> int | kiln.Future[int]:
    """A chain in which each task is over when it has asked for the next."""
    return hop.submit(left - 1) if left else 0


@kiln.task
def descend(left: int) -> int:
    """A chain in which each task waits for the next, and counts."""
    return int(descend.submit(left - 1).result()) + 1 if left else 0


@kiln.task
def pause(seconds: float) -> float:
    """Keeps a slot busy."""
    time.sleep(seconds)
    return seconds


def nothing() -> None:
    """A no-op, for tasks that are no futures."""


def note(path: str) -> None:
    """Write down when this was, as seconds since the epoch."""
    with Path(path).open("a") as notes:
        notes.write(f"{time.time()!r}\n")


def nothing_with(shard: dict[str, object]) -> None:
    """A no-op that is given a shard."""
