"""Functions that slots call for the indexes of a Job; files in a directory control them."""

import time
from pathlib import Path
from typing import Any

import kilnwork as kiln

HOLD_S = 60.0


def square(index: int | str, directory: str) -> int:
    """Return the square of the index.

    Control files: `fail-N` makes the index fail, `once-N` makes it fail once, `hold` and `hold-N`
    make it wait, `print-N` makes it print, `child-N` makes a child task multiply.
    """
    place, number = Path(directory), int(index)
    with (place / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    until = time.monotonic() + HOLD_S
    held = [place / "hold", place / f"hold-{number}"]
    while any(path.exists() for path in held) and time.monotonic() < until:
        time.sleep(0.01)
    once = place / f"once-{number}"
    if once.exists():
        once.unlink()
        raise ValueError(f"index {number} fails once")
    if (place / f"fail-{number}").exists():
        raise ValueError(f"index {number} cannot be done")
    if (place / f"print-{number}").exists():
        print(f"index {number}")
    if (place / f"child-{number}").exists():
        return multiply.submit(number, number).result()
    return number * number


def note(what: str, directory: str) -> str:
    """Record the call."""
    with (Path(directory) / "notes").open("a") as notes:
        notes.write(f"{what}\n")
    return what


def combine(directory: str, results: list[Any]) -> dict[str, Any]:
    """Return the arguments of a finalizer; it fails if `fail-combine` exists."""
    if (Path(directory) / "fail-combine").exists():
        raise ValueError("cannot be combined")
    return {"results": results}


def measure(what: str, results: list[Any]) -> dict[str, Any]:
    """Return the length and beginning of each text that a finalizer got."""
    return {"what": what, "results": [[len(one), one[:2]] for one in results]}


def larger(index: int | str, kilobytes: int) -> str:
    """Return so many kilobytes of text; many are stored as a blob."""
    return f"{index};" * (kilobytes * 512)


def large(index: int | str) -> str:
    """Return some kilobytes."""
    return f"{index}" * 8192


@kiln.task
def multiply(one: int, other: int) -> int:
    """Return the product."""
    return one * other
