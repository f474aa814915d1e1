"""From a loop to futures: submit, map, wait, retry. Run it with `python futures.py`."""

import math
import random
import sys

import kilnwork as kiln


@kiln.task
def primes(first: int, last: int) -> int:
    """Count the primes from `first` up to, not including, `last`."""
    return sum(all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(max(2, first), last))


@kiln.task
def add(*counts: int) -> int:
    return sum(counts)


@kiln.task(retries=5, retry_on=ConnectionError, retry_delay=0)
def fetch(number: int) -> int:
    """Fail now and then, as networks do; succeed at the third attempt."""
    if kiln.context().attempt < 3:
        raise ConnectionError(f"no response for {number}")
    return number


@kiln.task
def divide(a: int, b: int) -> float:
    return a / b


def main() -> None:
    ranges = [(first, first + 1_000) for first in range(0, 20_000, 1_000)]

    # The loop that everybody has, and the same with futures: submit() returns at once.
    looped = [primes(first, last) for first, last in ranges]
    futures = [primes.submit(first, last) for first, last in ranges]
    assert [future.result() for future in futures] == looped

    # Futures are arguments too: `add` starts when all of them are there, and no sooner.
    assert add.submit(*futures).result() == sum(looped) == 2_262

    # map() takes one sequence for each argument; as_completed() gives what is ready first.
    mapped = primes.map(*zip(*random.sample(ranges, len(ranges)), strict=True))
    assert sum(future.result() for future in kiln.as_completed(mapped)) == 2_262

    # Retries are asked for, never assumed, and only for the exceptions that are named.
    assert fetch.submit(7).result() == 7

    # What a task raises is raised here, with its own type and the traceback from there.
    try:
        divide.submit(1, 0).result()
    except ZeroDivisionError as error:
        print(f"as it should: {error!r}")
    else:
        raise AssertionError("nothing was raised")

    done, not_done = kiln.wait([divide.submit(1, n) for n in (1, 2, 4)], timeout=30)
    assert len(done) == 3
    assert not not_done
    print("2262 primes below 20,000, counted three times: ok")


if __name__ == "__main__":
    with kiln.connect() if "--connect" in sys.argv else kiln.start():
        main()
