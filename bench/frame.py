"""Common frame of measurements: options, waiting for a quiet machine, table, JSON, gates.

Used by `cluster.py`, `files.py` and `tasks.py`, which define shapes: measuring functions by name.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import figures
import machine
from figures import Figure

Shape = Callable[[], Iterator[Figure]]

HERE = Path(__file__).resolve().parent


def measure_shape(shape: Shape, patience: machine.Patience, *, again: bool) -> list[Figure]:
    """Return the figures of one shape; `again`: repeat while other processes disturb it and
    patience lasts.
    """
    best: list[Figure] = []
    least = float("inf")
    while True:
        patience.wait_until_quiet()
        strangers = machine.OtherProcesses()
        taken = list(shape())
        others = strangers.percent()
        for figure in taken:
            figure.more["others %"] = others
        if others < least:
            best, least = taken, others
        if least < machine.QUIET_PERCENT or patience.over or not again:
            return best


def measure(
    shapes: Mapping[str, Shape], options: argparse.Namespace, *, again: bool
) -> tuple[dict[str, Any], list[Figure]]:
    """Return all requested figures, and facts about the machine meanwhile."""
    facts, taken = machine.facts(), []
    patience = machine.Patience(options.wait)
    for shape in _chosen(shapes, options.only or ""):
        found = measure_shape(shape, patience, again=again)
        print("\n".join(figures.table(found).splitlines()[1:]), flush=True)
        taken += found
    facts["quiet"] = all(figure.more["others %"] < machine.QUIET_PERCENT for figure in taken)
    return facts, taken


def _chosen(shapes: Mapping[str, Shape], word: str) -> list[Shape]:
    """Return the shapes with the word in their name. Exits if there are none."""
    found = [shape for name, shape in shapes.items() if word in name]
    if not found:
        print(
            f"--only {word}: no shape has that name; there are {', '.join(shapes)}", file=sys.stderr
        )
        sys.exit(2)
    return found


def parser(doc: str | None, *, name: str) -> argparse.ArgumentParser:
    """Return a parser with the common options. `name`: of the JSON file."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--only",
        metavar="WORD",
        help="only shapes with this word in their name; others name them all",
    )
    parser.add_argument("--no-gates", action="store_true", help="end with 0 whatever was measured")
    parser.add_argument(
        "--wait", type=float, default=180, help="seconds to spend on waiting for quiet"
    )
    parser.add_argument("--directory", type=Path, help="where data is written; not on tmpfs")
    parser.add_argument("--json", type=Path, default=HERE / "results" / f"{name}.json")
    return parser


def run(shapes: Mapping[str, Shape], options: argparse.Namespace, *, again: bool = True) -> int:
    """Measure, print and write figures; return 1 if a gate was missed. `again`: a shape may be
    repeated.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    facts, taken = measure(shapes, options, again=again)
    print(f"\n{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}")
    if not facts["quiet"]:
        print("others used this machine meanwhile: compare ratios, not figures")
    print(figures.table(taken))
    print(figures.notes(taken))
    figures.write(options.json, facts, taken)
    missed = [figure.what for figure in taken if figure.failed]
    if missed:
        print(f"gates missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed and not options.no_gates else 0
