"""The measured task functions, in a module of their own, so that slots import them by name."""

import time
from pathlib import Path

import kilnwork as kiln


@kiln.task
def echo(number: int, padding: str) -> int:
    """Return the argument: a no-op with arguments of any size."""
    return number


@kiln.task
def hop(left: int) -> int | kiln.Future[int]:
    """Submit the next task of a chain and end."""
    return hop.submit(left - 1) if left else 0


@kiln.task
def descend(left: int) -> int:
    """Wait for the next task of a chain, and count."""
    return int(descend.submit(left - 1).result()) + 1 if left else 0


@kiln.task
def pause(seconds: float) -> float:
    """Keep a slot busy."""
    time.sleep(seconds)
    return seconds


def nothing() -> None:
    """Do nothing; for tasks that are not futures."""


def note(path: str) -> None:
    """Write down the current time, as seconds since the epoch."""
    with Path(path).open("a") as notes:
        notes.write(f"{time.time()!r}\n")


def nothing_with(shard: dict[str, object]) -> None:
    """Do nothing with a shard."""
