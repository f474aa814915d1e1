"""A diamond of tasks, whole and with a broken branch. Run it with `python dag.py`."""

import sys

import kilnwork as kiln


@kiln.task
def load(count: int) -> list[int]:
    return list(range(1, count + 1))


@kiln.task
def squares(numbers: list[int]) -> list[int]:
    return [number * number for number in numbers]


@kiln.task
def reciprocals(numbers: list[int], shift: int = 0) -> list[float]:
    return [1 / (number + shift) for number in numbers]


@kiln.task
def combine(left: list[int], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


@kiln.task(accept_failures=True)
def combine_what_there_is(left: list[int], right: list[float] | Exception) -> float:
    """Run even if an input has failed, with the exception in its place."""
    return float(sum(left)) if isinstance(right, Exception) else combine(left, right)


def main() -> None:
    # load → squares, reciprocals → combine: futures as arguments are the whole graph.
    numbers = load.submit(4)
    whole = combine.submit(squares.submit(numbers), reciprocals.submit(numbers))
    assert abs(whole.result() - 10) < 1e-9
    print("the diamond: ok")

    # One branch divides by zero. What needs it never starts, and fails with the cause named.
    broken = reciprocals.submit(numbers, shift=-1)
    error = combine.submit(squares.submit(numbers), broken).exception()
    assert isinstance(error, kiln.InputFailed)
    assert isinstance(error.__cause__, ZeroDivisionError)
    print(f"as it should: {error}")

    # A task that accepts failures decides for itself what to make of them.
    partial = combine_what_there_is.submit(squares.submit(numbers), broken)
    assert partial.result() == 1 + 4 + 9 + 16
    print("the diamond with a broken branch: ok")


if __name__ == "__main__":
    with kiln.connect() if "--connect" in sys.argv else kiln.start():
        main()
