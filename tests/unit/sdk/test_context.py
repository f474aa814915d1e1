"""What a running task knows of itself."""

import logging
from collections.abc import Iterator

import pytest

import kilnwork as kiln
from kilnwork.kit import ids
from kilnwork.sdk import context

TASK = ids.TaskId(bytes(range(16)))


@pytest.fixture
def inner() -> Iterator[context.Context]:
    told: list[tuple[float | None, str]] = []
    made = context.Context(TASK, run=2, attempt=3, name="n", report=lambda *it: told.append(it))
    context.begin(made)
    yield made
    context.end()


def test_outside_of_a_task_it_says_where_to_ask() -> None:
    with pytest.raises(kiln.NotInTask, match="call it in the function that you submit"):
        kiln.context()


def test_the_innermost_task_is_the_one_that_runs(inner: context.Context) -> None:
    assert kiln.context() is inner
    other = context.Context(TASK, run=1, attempt=1)
    context.begin(other)
    assert kiln.context() is other
    context.end()
    assert kiln.context() is inner


def test_it_names_the_attempt(inner: context.Context) -> None:
    assert (inner.task_id, inner.run, inner.attempt) == (ids.task_text(TASK), 2, 3)
    assert (inner.name, context.Context(TASK, run=1, attempt=1).name) == ("n", inner.task_id)
    assert repr(inner) == f"<Context n {inner.task_id}/2/3>"


def test_progress_is_reported_and_checked() -> None:
    told: list[tuple[float | None, str]] = []
    made = context.Context(TASK, run=1, attempt=1, report=lambda *it: told.append(it))
    made.progress(0.5, "half")
    made.progress(message="who knows")
    with pytest.raises(ValueError, match=r"progress\(50\): the fraction must be from 0 to 1"):
        made.progress(50)
    assert told == [(0.5, "half"), (None, "who knows")]
    context.Context(TASK, run=1, attempt=1).progress(1)


def test_it_is_cancelled_once_it_is_told_to_stop(inner: context.Context) -> None:
    assert not inner.cancelled
    inner.stop()
    assert inner.cancelled


def test_its_logger_writes_to_its_output_with_its_facts(
    inner: context.Context, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        inner.logger.info("step %d", 1, extra={"mine": 2})
    (logged,) = caplog.records
    assert logged.getMessage() == "step 1"
    facts = vars(logged)
    assert (facts["task_id"], facts["attempt"], facts["mine"]) == (inner.task_id, 3, 2)


def test_without_logging_set_up_it_writes_to_standard_error(
    inner: context.Context, capsys: pytest.CaptureFixture[str]
) -> None:
    root, mine = logging.getLogger(), logging.getLogger("kilnwork.task")
    before, root.handlers = root.handlers, []
    try:
        inner.logger.info("to be seen")
        inner.logger.debug("not to be seen")
        inner.logger.info("once each")
        lines = capsys.readouterr().err.splitlines()
    finally:
        root.handlers, mine.handlers, mine.propagate = before, [], True
        mine.setLevel(logging.NOTSET)
    assert [line.split(" INFO ")[1] for line in lines] == ["to be seen", "once each"]
