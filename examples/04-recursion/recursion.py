"""Tasks that wait for the tasks they submit, a thousand deep. Run it with `python recursion.py`."""

import sys

import kilnwork as kiln

DEPTH = 1_000


@kiln.task
def depth(left: int) -> int:
    """Wait for the next level: with two slots, 998 levels wait without one."""
    return depth.submit(left - 1).result() + 1 if left else 0


@kiln.task
def fibonacci(n: int) -> int:
    """Compute the textbook's tree: two children at each node, waited for at once."""
    if n < 2:
        return n
    return sum(kiln.gather(fibonacci.submit(n - 1), fibonacci.submit(n - 2)).result())


@kiln.task
def add(a: int, b: int) -> int:
    return a + b


@kiln.task
def planned(n: int) -> int | kiln.Future[int]:
    """Compute the same tree without waiting: a task submits its children and ends."""
    if n < 2:
        return n
    return add.submit(planned.submit(n - 1), planned.submit(n - 2))


def main() -> None:
    assert depth.submit(DEPTH).result() == DEPTH
    print(f"{DEPTH:,} tasks, each waiting for the next: ok")
    assert fibonacci.submit(12).result() == 144
    print("a tree of 465 tasks that wait for their children: ok")
    assert planned.submit(12).result() == 144
    print("the same tree without waiting: ok")


if __name__ == "__main__":
    with kiln.connect() if "--connect" in sys.argv else kiln.start():
        main()
