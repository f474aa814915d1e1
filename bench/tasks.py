"""Measures Python futures on `kiln.start()`: bursts, latencies, chains, waits, start, memory.

    python bench/tasks.py [--repeat N] [--only WORD] [--no-gates] [--wait S] [--json FILE]

Every figure has a floor measured alternately with it: `floors.py` is the shape of a task system
with nothing in it. Run by `make bench`. Exits with 1 when a gate is missed.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import floors
import frame
import home as homes
import machine
import work
from figures import Figure, Gate

HERE = Path(__file__).resolve().parent
SIZES = 1_000
"""Different sizes of arguments in a burst."""
PADDING = ["x" * size for size in range(SIZES)]
ROUNDS = 500
HOPS = 1_000


def submit_and_collect(count: int) -> tuple[float, list[float]]:
    """Submit and collect one future per call; return total seconds, and seconds of each call."""
    echo, began, futures, ended = work.echo, [], [], []
    clock = time.perf_counter
    for number in range(count):
        began.append(clock())
        futures.append(echo.submit(number, PADDING[number % SIZES]))
    for number, future in enumerate(futures):
        if future.result() != number:
            raise AssertionError(f"call {number} gave {future.result()!r}")
        ended.append(clock())
    return ended[-1] - began[0], [e - b for b, e in zip(began, ended, strict=True)]


def burst(scratch: Path, *, durable: bool, count: int, repeat: int, delay_s: float = 0.0) -> Figure:
    """Measure calls a second, alternating with the floor; durable ones are counted again in the
    journal.
    """
    rates, floor_rates, latencies, commits = [], [], [], []
    with (
        floors.Floor(scratch, durable=durable, delay_s=delay_s) as floor,
        homes.Home(scratch, durable=durable, delay_s=delay_s) as home,
    ):
        submit_and_collect(warm := 2_000)
        for _ in range(repeat):
            floor_rates.append(count / floor.burst(count))
            before = home.commits() if durable else 0
            seconds, each = submit_and_collect(count)
            commits.append(home.commits() - before if durable else 0)
            rates.append(count / seconds)
            latencies += each
        home.end()
        if durable:
            verify(home, warm + repeat * count)
    more: dict[str, Any] = {
        "p50 ms": round(machine.percentile(latencies, 50) * 1e3, 1),
        "p99 ms": round(machine.percentile(latencies, 99) * 1e3, 1),
    }
    if durable:
        more["tasks a commit"] = round(count / machine.median(commits), 1)
    kind = "durable" if durable else "volatile"
    slow = f", {delay_s * 1e3:g} ms a commit" if delay_s else ""
    gate = Gate(at_least=0.25 if durable else 0.2, ratio=True)
    return Figure(
        f"burst of {count:,}, {kind}{slow}",
        machine.median(rates),
        "/s",
        machine.median(floor_rates),
        None if delay_s else gate,
        more,
    )


def verify(home: homes.Home, count: int) -> None:
    """Check that every task of a burst is in the journal once and succeeded at its first
    attempt.
    """
    found = home.rows()
    expected = {"integrity": "ok", "tasks": count, "rows": count, "first": count, "other": 0}
    if found != expected:
        raise AssertionError(f"the journal has {found}, expected {expected}")


def latencies(scratch: Path, *, durable: bool, repeat: int) -> Iterator[Figure]:
    """Measure one call at a time, and chains."""
    trips, floor_trips, hops, floor_hops = [], [], [], []
    with (
        floors.Floor(scratch, durable=durable) as floor,
        homes.Home(scratch, durable=durable),
    ):
        submit_and_collect(200)
        for _ in range(repeat):
            floor_trips += [floor.burst(1) for _ in range(ROUNDS)]
            trips += [submit_and_collect(1)[0] for _ in range(ROUNDS)]
            floor_hops.append(floor.hops(HOPS) / HOPS)
            hops.append(machine.timed(lambda: work.hop.submit(HOPS).result()) / HOPS)
    kind = "durable" if durable else "volatile"
    p99 = {"p99 µs": round(machine.percentile(trips, 99) * 1e6)}
    yield Figure(
        f"round trip, {kind}",
        machine.median(trips) * 1e6,
        "µs",
        machine.median(floor_trips) * 1e6,
        None if durable else Gate(at_most=400),
        p99,
    )
    yield Figure(
        f"hop of a chain, {kind}",
        machine.median(hops) * 1e6,
        "µs",
        machine.median(floor_hops) * 1e6,
        Gate(at_most=1_000) if durable else None,
    )


def waiting_parents(scratch: Path, *, depth: int, repeat: int) -> Iterator[Figure]:
    """Measure nested parents that wait for their children, and the processes for that."""
    seconds, floor_seconds = [], []
    with (
        floors.Floor(scratch, durable=False) as floor,
        homes.Home(scratch, durable=False) as home,
    ):
        # Both slots are open before processes are counted.
        for future in [work.pause.submit(0.3), work.pause.submit(0.3)]:
            future.result()
        before = home.processes()
        for _ in range(repeat):
            floor_seconds.append(floor.hops(depth) / depth)
            began = time.perf_counter()
            if work.descend.submit(depth).result() != depth:
                raise AssertionError("the waiting parents counted wrong")
            seconds.append((time.perf_counter() - began) / depth)
        extra = len(home.processes() - before)
    yield Figure(
        f"waiting parents, {depth:,} deep, a hop",
        machine.median(seconds) * 1e6,
        "µs",
        machine.median(floor_seconds) * 1e6,
        Gate(at_most=1_000),
        {"first µs": round(seconds[0] * 1e6)},
    )
    yield Figure(
        f"waiting parents, {depth:,} deep, extra", extra, "processes", None, Gate(at_most=0)
    )


def started(argv: list[str]) -> tuple[float, subprocess.Popen[str]]:
    """Return the seconds until a fresh interpreter reports its first result; it keeps running."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait_for_word(process, "first")
    return time.perf_counter() - began, process


def wait_for_word(process: subprocess.Popen[str], word: str) -> None:
    """Wait until the process has printed `word`."""
    if process.stdout is None or (line := process.stdout.readline().strip()) != word:
        raise AssertionError(f"expected {word!r}, it said {line!r}")


def finish(process: subprocess.Popen[str]) -> None:
    """Let the process end, and check that it exits with 0."""
    process.communicate(timeout=30)
    if process.returncode:
        raise AssertionError(f"{process.args!r} ended with {process.returncode}")


def first_result(repeat: int) -> Iterator[Figure]:
    """Measure a fresh interpreter: import, start, first result."""
    seconds, floor_seconds = [], []
    for _ in range(repeat * 3 + 1):
        took, process = started([str(HERE / "floors.py"), "--role", "first"])
        finish(process)
        floor_seconds.append(took)
        took, process = started([str(HERE / "first.py")])
        finish(process)
        seconds.append(took)
    yield Figure(
        "import, start, first result",
        machine.median(seconds[1:]) * 1e3,
        "ms",
        machine.median(floor_seconds[1:]) * 1e3,
        Gate(at_most=350),
    )


def memory() -> Iterator[Figure]:
    """Measure the whole idle tree (driver, dispatcher, agent, zygote, two slots)."""
    held = {}
    for name, argv in (
        ("floor", [str(HERE / "floors.py"), "--role", "first"]),
        ("kiln", [str(HERE / "first.py"), "idle"]),
    ):
        _, process = started(argv)
        if name == "kiln":
            wait_for_word(process, "idle")
        time.sleep(2)
        pids = machine.tree(process.pid)
        held[name] = (*machine.memory_mib(pids), len(pids))
        finish(process)
    (floor_rss, floor_pss, _), (rss, pss, count) = held["floor"], held["kiln"]
    yield Figure("memory idle, PSS", pss, "MiB", floor_pss, Gate(at_most=70), {"processes": count})
    yield Figure("memory idle, RSS", rss, "MiB", floor_rss)


def shapes(scratch: Path, repeat: int) -> dict[str, Callable[[], Iterator[Figure]]]:
    """Return all measurements by the word that `--only` takes."""

    def bursts(*, durable: bool, delay_s: float = 0.0) -> Iterator[Figure]:
        yield burst(scratch, durable=durable, count=10_000, repeat=repeat, delay_s=delay_s)
        large = max(1, repeat // 3)
        yield burst(scratch, durable=durable, count=100_000, repeat=large, delay_s=delay_s)

    def waits() -> Iterator[Figure]:
        yield from waiting_parents(scratch, depth=40, repeat=repeat)
        yield from waiting_parents(scratch, depth=1_000, repeat=repeat)

    return {
        "volatile-burst": lambda: bursts(durable=False),
        "durable-burst": lambda: bursts(durable=True),
        "slow-disk": lambda: bursts(durable=True, delay_s=0.005),
        "volatile-latency": lambda: latencies(scratch, durable=False, repeat=repeat),
        "durable-latency": lambda: latencies(scratch, durable=True, repeat=repeat),
        "waits": waits,
        "first": lambda: first_result(repeat),
        "memory": memory,
    }


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="tasks").parse_args()
    return frame.run(shapes(options.directory, options.repeat), options)


if __name__ == "__main__":
    sys.exit(main())
