"""A driver that can be killed and restarted: `python -m support.fault_driver DIRECTORY SHAPE`.

Every call has a key, so a restarted driver attaches to the calls of the one before. The last line
of output is the shape's result as JSON. With a third argument its session has no directory.
"""

import json
import sys
from pathlib import Path

import kilnwork as kiln
from support import fault_tasks

LEAVES = 60
PARTS = 12
SLOW_S = 13


def fan_out() -> object:
    """Make many calls at once from the driver."""
    futures = [
        fault_tasks.leaf.options(key=f"leaf-{number}").submit(number, 10 + number % 20)
        for number in range(LEAVES)
    ]
    return [future.result() for future in futures]


def fan_in() -> object:
    """Make one call that waits for many."""
    return fault_tasks.fan.options(key="fan").submit(LEAVES).result()


def chain() -> object:
    """Make one call whose result comes from the thirtieth call after it."""
    return fault_tasks.relay.options(key="relay").submit(30).result()


def recursion() -> object:
    """Make nested waits."""
    return fault_tasks.recursion.options(key="recursion").submit(25, 7).result()


def map_reduce() -> object:
    """Map and reduce a file in parts."""
    path = Path(sys.argv[1]) / "words.txt"
    if not path.exists():
        lines = [f"{'a ' * (number % 5)}b{number % 3}" for number in range(600)]
        made = path.with_suffix(f".{id(lines)}")
        made.write_text("\n".join(lines) + "\n")
        made.replace(path)
    return fault_tasks.mapreduce.options(key="mapreduce").submit(str(path), PARTS).result()


def slow() -> object:
    """Make two calls that take longer than a lease, one for each slot."""
    calls = fault_tasks.leaf
    futures = [calls.options(key=f"slow-{n}").submit(n, SLOW_S * 1000) for n in (1, 2)]
    return [future.result() for future in futures]


def stuck() -> object:
    """Make two calls that take longer than any test."""
    return [each.result() for each in [fault_tasks.leaf.submit(n, 600_000) for n in (1, 2)]]


SHAPES = {
    "fan-out": fan_out,
    "fan-in": fan_in,
    "chain": chain,
    "recursion": recursion,
    "map-reduce": map_reduce,
}
ALL = {**SHAPES, "slow": slow, "stuck": stuck}
RESULTS: dict[str, object] = {
    "fan-out": [number * number for number in range(LEAVES)],
    "fan-in": sum(number * number for number in range(LEAVES)),
    "chain": 0,
    "recursion": [25, 13],
    "map-reduce": {"a": 1200, "b0": 200, "b1": 200, "b2": 200},
    "slow": [1, 4],
}
TASKS = {
    "fan-out": LEAVES,
    "fan-in": LEAVES + 1,
    "chain": 31,
    "recursion": 1 + 26 + 41,
    "map-reduce": 1 + PARTS + 1,
    "slow": 2,
}
"""How many tasks each shape is."""


def main() -> None:
    directory, shape, *volatile = sys.argv[1:]
    with kiln.start(None if volatile else Path(directory) / "home", slots=2):
        result = ALL[shape]()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
