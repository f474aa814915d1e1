"""Tasks of the journal as text: the table, short ids, parents, Python errors."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.cli import task_lists
from kilnwork.kit import clock, ids

PARENT = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10"
CHILD = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2b11"
NOW = 1_700_000_000.0


def at(seconds: float) -> str:
    return clock.rfc3339_micro(NOW - seconds)


def item(**facts: Any) -> task_lists.Item:
    made = {
        "id": CHILD,
        "namespace": "default",
        "name": facts.get("id", CHILD),
        "state": "Success",
        "reason": "Succeeded",
        "attempts": 1,
        "creationTime": at(200),
    }
    return {**made, **facts}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("   ") if cell]


def test_table_has_names_states_and_times() -> None:
    items = [
        item(
            function="words:count",
            state="Failed",
            reason="Raised",
            attempts=2,
            startTime=at(190),
            finishTime=at(189.95),
            parent=f"{PARENT}/1/1",
            parentName="all",
        ),
        item(id=PARENT, name="all", state="Running", reason="Started", startTime=at(185.0)),
        item(id=str(PARENT).replace("10", "12"), state="Pending", reason="NoFreeSlot", attempts=0),
    ]
    header, *rows = (cells(line) for line in task_lists.table(items, now=NOW))
    assert header == ["ID", "NAME", "STATE", "ATTEMPTS", "AGE", "TOOK", "PARENT"]
    assert rows == [
        ["5c1f2b11", "words:count", "Failed (Raised)", "2", "3m", "50ms", "all"],
        ["5c1f2a10", "all", "Running", "1", "3m", "3m", "<none>"],
        ["5c1f2a12", "<none>", "Pending (NoFreeSlot)", "0", "3m", "<none>", "<none>"],
    ]


def test_running_suspended_task_shows_that_it_is_suspended() -> None:
    running = item(state="Running", reason="Started", suspended=True)
    assert task_lists.state(running) == "Running (Suspended)"
    assert task_lists.state(item(state="Pending", reason="Suspended")) == "Pending (Suspended)"


def test_wide_table_has_whole_ids_and_functions() -> None:
    header, row = task_lists.table([item(function="m:f", message="x")], now=NOW, wide=True)
    assert row.startswith(f"{CHILD}   m:f ")
    assert header.split()[7:9] == ["FUNCTION", "CLUSTER"]


def test_namespaces_come_first() -> None:
    header, row = task_lists.table([item(namespace="far")], now=NOW, namespaces=True)
    assert (header.split()[0], row.split()[0]) == ("NAMESPACE", "far")


text = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=80)


@given(st.lists(st.tuples(text, text, text, st.floats(0, 1e7)), max_size=5))
def test_table_fits_into_its_width(facts: list[tuple[str, str, str, float]]) -> None:
    items = [
        item(
            id=ids.new_uid(), name=name, reason=reason, parent=f"{PARENT}/1/1", parentName=parent,
            creationTime=at(age), startTime=at(age), attempts=100,
        )
        for name, reason, parent, age in facts
    ]  # fmt: skip
    lines = task_lists.table(items, now=NOW)
    assert max(len(line) for line in lines) <= task_lists.WIDTH
    for one, line in zip(items, lines[1:], strict=True):
        assert line.startswith(task_lists.short_id(one["id"]))


def test_short_ids_are_long_enough_to_be_unique() -> None:
    first, second = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10", "0199a0d2-7c1e-7d35-8a51-1d4c5c1f2a10"
    other = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2b10"
    assert task_lists.short_ids([first, second, other]) == {
        first: "0d4c5c1f2a10",
        second: "1d4c5c1f2a10",
        other: "5c1f2b10",
    }
    assert task_lists.short_ids([]) == {}
    assert task_lists.short_ids([first, first]) == {first: "5c1f2a10"}


@given(st.lists(st.binary(min_size=16, max_size=16), unique=True, max_size=20))
def test_each_short_id_ends_exactly_one_id(raw: list[bytes]) -> None:
    known = [ids.task_text(ids.TaskId(one)) for one in raw]
    for whole, short in task_lists.short_ids(known).items():
        assert [one for one in known if one.replace("-", "").endswith(short)] == [whole]
        assert len(short) >= task_lists.SHORT_ID


async def as_pages(items: list[task_lists.Item]) -> AsyncIterator[task_lists.Item]:
    for one in items:
        yield one


@pytest.mark.parametrize(
    ("by", "wanted"),
    [("took", ["b", "a", "c"]), ("cpu", ["c", "a", "b"]), ("peak", ["a", "b", "c"])],
)
async def test_highest_values_come_first(by: task_lists.Measure, wanted: list[str]) -> None:
    items = [
        item(name="a", startTime=at(90), finishTime=at(80), cpuSeconds=2.0, peakMemoryBytes=9),
        item(name="b", startTime=at(50), cpuSeconds=0.5, peakMemoryBytes=8),  # still runs
        item(name="c", startTime=at(90), finishTime=at(89), cpuSeconds=8.0, peakMemoryBytes=7),
        item(name="not started"),
    ]
    found = await task_lists.sort_by_measure(as_pages(items), by=by, limit=3, now=NOW)
    assert ([one["name"] for one in found.items], found.more) == (wanted, 1)
    found = await task_lists.sort_by_measure(as_pages(items), by=by, limit=0, now=NOW)
    assert ([one["name"] for one in found.items], found.more) == ([*wanted, "not started"], 0)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 12))
async def test_highest_values_equal_the_sorted_list(values: list[int], limit: int) -> None:
    items = [item(name=str(n), peakMemoryBytes=value) for n, value in enumerate(values)]
    found = await task_lists.sort_by_measure(as_pages(items), by="peak", limit=limit, now=NOW)
    assert found.items == sorted(items, key=lambda one: -one["peakMemoryBytes"])[:limit]
    assert found.more == max(0, len(values) - limit)


def test_parent_is_shown_by_name_function_or_short_id() -> None:
    of = f"{PARENT}/1/2"
    assert task_lists.parent({"parent": of, "parentName": "all", "parentFunction": "m:f"}) == "all"
    unnamed = {"parent": of, "parentName": PARENT, "parentFunction": "m:total"}
    assert task_lists.parent(unnamed) == "total (5c1f2a10)"
    assert task_lists.parent({"parent": of}) == "5c1f2a10"
    assert task_lists.parent({}) is None


def test_error_is_printed_after_its_cause() -> None:
    cause = {"type": "OSError", "text": "gone", "traceback": "Traceback\nOSError: gone\n"}
    error = {"type": "ValueError", "text": "bad", "notes": ["in part 7"], "cause": cause}
    assert list(task_lists.traceback(error)) == [
        "Traceback",
        "OSError: gone",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "ValueError: bad",
        "in part 7",
    ]
    assert list(task_lists.traceback(None)) == []
