"""What slots call for the items of an index set; files in a directory say how an item fares."""

import time
from pathlib import Path

import kilnwork as kiln

HOLD_S = 60.0


def square(item: int, directory: str) -> int:
    """Return the square. `fail-N`: the item fails; `once-N`: it does so once; `hold`: all wait;
    `print-N`: it prints; `child-N`: a task of its own multiplies."""
    place = Path(directory)
    with (place / "calls").open("a") as calls:
        calls.write(f"{item}\n")
    until = time.monotonic() + HOLD_S
    while (place / "hold").exists() and time.monotonic() < until:
        time.sleep(0.01)
    once = place / f"once-{item}"
    if once.exists():
        once.unlink()
        raise ValueError(f"item {item} fails once")
    if (place / f"fail-{item}").exists():
        raise ValueError(f"item {item} cannot be done")
    if (place / f"print-{item}").exists():
        print(f"item {item}")
    if (place / f"child-{item}").exists():
        return multiply.submit(item, item).result()
    return item * item


@kiln.task
def multiply(one: int, other: int) -> int:
    """Return the product."""
    return one * other


def square_index(index: int | str, directory: str) -> int:
    """Return the square of an index as `square` does; `directory` has the same files."""
    return square(int(index), directory)
