"""Measured figures, their table and JSON, and the gates that they must pass.

Used by `tasks.py` and `peers.py`. The standard library only.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit on a figure: `at_least` or `at_most`, of its value or its ratio."""

    at_least: float | None = None
    at_most: float | None = None
    ratio: bool = False

    def passed_by(self, figure: "Figure") -> bool:
        """Return whether the figure passes; one without a floor passes every gate on the ratio."""
        value = figure.ratio if self.ratio else figure.value
        if value is None:
            return True
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        sign, bound = ("≥", self.at_least) if self.at_most is None else ("≤", self.at_most)
        return f"{sign} {bound:g}{' ×' if self.ratio else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    unit: str
    floor: float | None = None
    gate: Gate | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Return the figure divided by its floor: small is good for times, large is good for
        rates.
        """
        return self.value / self.floor if self.floor else None

    @property
    def failed(self) -> bool:
        """Return whether it has a gate and misses it."""
        return self.gate is not None and not self.gate.passed_by(self)


def number(value: float) -> str:
    """Format with three significant digits and thousands separators."""
    if abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.3g}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Pad columns to their widest cell; the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def table(figures: Iterable[Figure]) -> str:
    """Return the table of `make bench`: figure, floor, ratio, gate and further counts."""
    head = ("", "figure", "unit", "floor", "ratio", "gate", "")
    return aligned([head, *(_row(figure) for figure in figures)])


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.what,
        number(figure.value),
        figure.unit,
        "" if figure.floor is None else number(figure.floor),
        "" if figure.ratio is None else number(figure.ratio),
        "" if figure.gate is None else str(figure.gate),
        "MISSED" if figure.failed else "",
    )


def notes(figures: Iterable[Figure]) -> str:
    """Return the further counts, a line for each figure that has some."""
    return "\n".join(
        f"  {figure.what}: " + ", ".join(f"{name} {value}" for name, value in figure.more.items())
        for figure in figures
        if figure.more
    )


def write(path: Path, facts: dict[str, Any], figures: Iterable[Figure]) -> None:
    """Write all figures as JSON."""
    rows = [
        {**asdict(figure), "ratio": figure.ratio, "passed": not figure.failed} for figure in figures
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": facts, "figures": rows}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
