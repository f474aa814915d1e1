"""Lists of both stores: filters, pages, and a bound on the rows that one page reads."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import memory_store, port
from kilnwork.dispatch.journal.sqlite import journal, queries
from kilnwork.dispatch.machine import instructions, records, task_starts
from kilnwork.kit import ids

NS = records.Cluster(("ns", "default"))
OTHER = records.Cluster(("other", "default"))
PARENT = ids.TaskId(b"p" * 16)
S = api_task.State


def an_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def template(row: int, function: str, cluster: records.Cluster = NS) -> records.Template:
    spec = api_task.TaskSpec(call=api_task.Call(function=function))
    return records.Template(row, cluster, spec)


def call(number: int, of: records.Template, **facts: Any) -> records.Task:
    return records.Task(
        number, an_id(number), 1, of.cluster.key[0], "", of.cluster, False, of.spec,
        template=of, arguments=attempts.Payload(attempts.JSON, b"[[],{}]"), created=1.0,
        pending_since=1.0, **facts,
    )  # fmt: skip


def declared(number: int, **spec: Any) -> records.Task:
    submission = model.Submission(
        task=an_id(number), namespace="ns", name=f"t{number}", spec=api_task.TaskSpec(**spec)
    )
    task = task_starts.new_run(number, submission, NS)
    task.created = task.pending_since = 1.0
    return task


@pytest.fixture(params=["journal", "volatile"])
def reader(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[port.Reader]:
    """Yield the reader of a store with rows 1 to 6 (see the first lines of the body)."""
    add, sub, far = template(1, "m:add"), template(2, "m:sub"), template(3, "m:add", OTHER)
    parent = attempts.AttemptRef(PARENT, 1, 1)
    tasks = [
        call(1, add),
        call(2, sub, parent=parent, child_key="m:sub#1"),
        call(3, far),
        declared(4, command=("true",)),
        declared(5, call=api_task.Call(function="m:add")),
        call(6, add, state=S.FAILED, finished=2.0),
    ]
    store: port.Store = memory_store.MemoryStore()
    if request.param == "journal":
        store = journal.Journal(tmp_path / "journal.db")
    store.open()
    store.start(lambda call: call(), on_failure=lambda error: None)
    ended = threading.Event()
    finals = [task for task in tasks if task.state.final]
    batch = instructions.Batch(dirty=dict.fromkeys(tasks), templates=[add, sub, far], finals=finals)
    store.write(batch, lambda _: ended.set())
    assert ended.wait(30)
    yield store.reader
    store.close()


def numbers(views: list[model.TaskView]) -> list[int]:
    return [int.from_bytes(view.task, "big") for view in views]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [6, 5, 4, 2, 1]),
        ({"state": S.FAILED}, [6]),
        ({"declared": True}, [5, 4]),
        ({"declared": False}, [6, 2, 1]),
        ({"parent": PARENT}, [2]),
        ({"function": "m:add"}, [6, 5, 1]),
        ({"function": "m:add", "declared": False, "state": S.PENDING}, [1]),
        ({"function": "m:nothing"}, []),
    ],
)
def test_filters_select_tasks_of_a_namespace(
    reader: port.Reader, wanted: dict[str, Any], found: list[int]
) -> None:
    views, cursor = reader.tasks("ns", wanted=model.TaskQuery(**wanted))
    assert (numbers(views), cursor) == (found, None)
    assert all(view.function == wanted.get("function", view.function) for view in views)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [6, 5, 4, 3, 2, 1]),
        ({"state": S.PENDING}, [5, 4, 3, 2, 1]),
        ({"state": S.RUNNING}, []),
        ({"function": "m:add"}, [6, 5, 3, 1]),
    ],
)
def test_list_without_namespace_covers_all_namespaces(
    reader: port.Reader, wanted: dict[str, Any], found: list[int]
) -> None:
    views, cursor = reader.tasks(None, wanted=model.TaskQuery(**wanted))
    assert (numbers(views), cursor) == (found, None)


def test_last_page_has_no_continuation(reader: port.Reader) -> None:
    first, cursor = reader.tasks("ns", limit=2)
    assert (numbers(first), cursor) == ([6, 5], 5)
    rest, cursor = reader.tasks("ns", limit=3, below=cursor)
    assert (numbers(rest), cursor) == ([4, 2, 1], None)
    assert reader.tasks("ns", below=1) == ([], None)


@pytest.mark.parametrize("reader", ["journal"], indirect=True)
def test_page_reads_at_most_page_rows_rows(
    reader: port.Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE_ROWS", 2)
    wanted, pages, below = model.TaskQuery(parent=PARENT), [], None
    while True:
        views, below = reader.tasks("ns", wanted=wanted, below=below)
        pages.append(numbers(views))
        if below is None:
            break
    assert pages == [[], [], [2]]


@pytest.mark.parametrize("reader", ["journal"], indirect=True)
def test_unfinished_tasks_are_found_without_reading_finished_rows(
    reader: port.Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Task 6 is finished: the first page begins below it."""
    monkeypatch.setattr(queries, "PAGE_ROWS", 3)
    wanted = model.TaskQuery(state=S.PENDING)
    first, below = reader.tasks("ns", wanted=wanted)
    assert (numbers(first), below) == ([5, 4], 3)
    rest, below = reader.tasks("ns", wanted=wanted, below=below)
    assert (numbers(rest), below) == ([2, 1], None)


@pytest.mark.parametrize("reader", ["journal"], indirect=True)
@pytest.mark.parametrize(
    ("namespace", "digits", "found"),
    [
        ("ns", "000002", [2]),
        ("ns", "0000002", [2]),
        ("ns", "00000002", [2]),
        ("ns", "000003", []),
        ("ns", "100002", []),
        ("ns", "000000", [1, 2]),
        ("other", "000000", [3]),
    ],
)
def test_abbreviated_ids_match_by_beginning_or_end(
    reader: queries.Queries, namespace: str, digits: str, found: list[int]
) -> None:
    """All of these ids begin with zeros."""
    got = reader.abbreviated(namespace, digits, limit=2)
    assert [int.from_bytes(one, "big") for one in got] == found
