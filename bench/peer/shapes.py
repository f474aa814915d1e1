"""The same shapes of work for every compared system; time is measured here, not in their scripts.

Used by the `on_*.py` beside it, each run by `peers.py` with an interpreter that has that system:
the standard library only. A script implements the shapes in its system's own best idiom.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine

SIZES = 1_000
HOPS = 1_000
DEPTH = 40
ROUNDS = 300
MAX_S = 10


class Peer(Protocol):
    """One system. A shape that it does not support raises NotImplementedError and gets no
    figure.
    """

    version: str

    def start(self) -> None:
        """Start the system with two workers on this machine."""

    def stop(self) -> None:
        """Stop all of it."""

    def call(self, number: int, padding: str) -> int:
        """Return the result of one no-op that returns `number`."""

    def burst(self, calls: Sequence[tuple[int, str]]) -> Sequence[int]:
        """Run many no-ops at once; return all results in order."""

    def busy(self, seconds: float) -> None:
        """Let both workers sleep at the same time; return when they have finished."""

    def chain(self, length: int) -> None:
        """Run a chain in which each task submits the next and ends; return when the last one
        has.
        """

    def descend(self, depth: int) -> int:
        """Run a chain in which each task waits for the next one's result and adds one."""


class Report:
    """Figures by shape; an unsupported shape is left out."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    def take(self, measure: Callable[[], dict[str, float]]) -> None:
        """Add the figures of `measure`."""
        try:
            self.figures |= measure()
        except NotImplementedError:
            return


def bursts(peer: Peer, count: int) -> dict[str, float]:
    """Measure calls a second; each argument size is repeated every SIZES calls."""
    calls = [(number, "x" * (number % SIZES)) for number in range(count)]
    began = time.perf_counter()
    results = peer.burst(calls)
    seconds = time.perf_counter() - began
    if list(results) != list(range(count)):
        raise AssertionError("a burst came back wrong")
    return {"burst /s": count / seconds}


def rounds(peer: Peer, count: int) -> dict[str, float]:
    """Measure one call after another, for ten seconds at most."""
    seconds: list[float] = []
    for number in range(count):
        if sum(seconds) > MAX_S:
            break
        began = time.perf_counter()
        if peer.call(number, "") != number:
            raise AssertionError("a call came back wrong")
        seconds.append(time.perf_counter() - began)
    return {
        "round trip µs": machine.median(seconds) * 1e6,
        "round trip p99 µs": machine.percentile(seconds, 99) * 1e6,
    }


def chains(peer: Peer, length: int) -> dict[str, float]:
    """Measure one hop of a chain without waiting tasks."""
    return {"chain hop µs": machine.timed(lambda: peer.chain(length)) / length * 1e6}


def descents(peer: Peer, depth: int, repeat: int) -> dict[str, float]:
    """Measure one hop when every parent waits, and the processes and memory for that."""
    before, hops = processes(), []
    for _ in range(repeat):
        began = time.perf_counter()
        if peer.descend(depth) != depth:
            raise AssertionError("the waiting parents counted wrong")
        hops.append((time.perf_counter() - began) / depth)
    after = processes()
    return {
        "waiting hop, first µs": hops[0] * 1e6,
        "waiting hop µs": machine.median(hops) * 1e6,
        "extra processes": len(after - before),
        "PSS after MiB": machine.memory_mib(after)[1],
    }


def idle(peer: Peer) -> dict[str, float]:
    """Measure the memory of the whole tree, this process included, when both workers have run
    something.
    """
    peer.busy(0.3)
    time.sleep(2)
    pids = processes()
    rss, pss = machine.memory_mib(pids)
    return {"idle PSS MiB": pss, "idle RSS MiB": rss, "idle processes": len(pids)}


def processes() -> set[int]:
    """Return this process and all that it has started."""
    mark = os.environ.get("KILN_BENCH_MARK")
    return machine.tree(os.getpid(), mark=f"KILN_BENCH_MARK={mark}" if mark else None)


def main(peer: Peer) -> None:
    """Print "first" at the first result; then, if requested, print all figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="not only the first result")
    parser.add_argument("--calls", type=int, default=10_000)
    options, _ = parser.parse_known_args()
    peer.start()
    try:
        peer.call(0, "")
        print("first", flush=True)
        if options.all:
            print(json.dumps(measure(peer, options.calls)), flush=True)
    finally:
        peer.stop()


def measure(peer: Peer, calls: int) -> dict[str, Any]:
    """Measure everything, lightest first, so that memory at rest is not memory after load."""
    report, strangers = Report(), machine.OtherProcesses()
    report.take(lambda: idle(peer))
    peer.burst([(number, "") for number in range(100)])
    strangers.start()
    report.take(lambda: bursts(peer, calls))
    report.take(lambda: rounds(peer, ROUNDS))
    report.take(lambda: chains(peer, HOPS))
    report.take(lambda: descents(peer, DEPTH, 3))
    return {"version": peer.version, "others %": strangers.percent(), **report.figures}
