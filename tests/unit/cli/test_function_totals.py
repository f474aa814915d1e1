"""Totals of the calls of a function."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from kilnwork.cli import function_totals, task_lists
from kilnwork.kit import clock

NOW = 1_700_000_000.0
SLOW = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2b11"
OTHER = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2b12"


def item(function: str, start: float | None, end: float | None, **facts: Any) -> task_lists.Item:
    made = {"id": OTHER, "function": function, "state": "Success", **facts}
    if start is not None:
        made["startTime"] = clock.rfc3339_micro(NOW - start)
    if end is not None:
        made["finishTime"] = clock.rfc3339_micro(NOW - end)
    return made


async def listed(items: Sequence[task_lists.Item]) -> AsyncIterator[task_lists.Item]:
    for one in items:
        yield one


ITEMS = [
    item("m:fast", 100, 99, cpuSeconds=0.5, peakMemoryBytes=1 << 20),
    item("m:fast", 90, 87, id=SLOW, cpuSeconds=0.25, peakMemoryBytes=3 << 20, state="Failed"),
    item("m:fast", None, None, state="Failed"),  # its input failed: it has not started
    item("m:slow", 20, None, state="Running"),
    item("", 50, 49, cpuSeconds=9.0),
]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("took", ["m:slow", "m:fast", "<commands>"]),
        ("cpu", ["<commands>", "m:fast", "m:slow"]),
        ("peak", ["m:fast", "<commands>", "m:slow"]),
    ],
)
async def test_highest_totals_come_first(by: task_lists.Measure, order: list[str]) -> None:
    found = await function_totals.by_function(listed(ITEMS), by=by, now=NOW)
    assert [one.function for one in found] == order


async def test_table_has_a_row_per_function() -> None:
    found = await function_totals.by_function(listed(ITEMS), by="took", now=NOW)
    header, *rows = [line.split() for line in function_totals.table(found)]
    assert header == list(function_totals.HEADER)
    assert rows == [
        ["m:slow", "1", "0", "20s", "20s", "20s", "<none>", "<none>", "5c1f2b12"],
        ["m:fast", "3", "2", "4.0s", "2.0s", "3.0s", "0.8s", "3.0", "MiB", "5c1f2b11"],
        ["<commands>", "1", "0", "1.0s", "1.0s", "1.0s", "9.0s", "<none>", "5c1f2b12"],
    ]


async def test_document_has_camel_case_members() -> None:
    found = await function_totals.by_function(listed(ITEMS[:3]), by="took", now=NOW)
    assert function_totals.document(found) == {
        "items": [
            {
                "function": "m:fast",
                "tasks": 3,
                "failed": 2,
                "started": 2,
                "tookSeconds": pytest.approx(4.0),
                "meanSeconds": pytest.approx(2.0),
                "maxSeconds": pytest.approx(3.0),
                "cpuSeconds": pytest.approx(0.75),
                "peakMemoryBytes": 3 << 20,
                "slowest": SLOW,
            }
        ]
    }


async def test_unstarted_tasks_have_no_times() -> None:
    found = await function_totals.by_function(listed(ITEMS[2:3]), by="took", now=NOW)
    assert function_totals.table(found)[1].split() == ["m:fast", "1", "1"] + ["<none>"] * 6
    assert found[0].mean_seconds == 0
