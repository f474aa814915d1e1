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
    reports: list[tuple[float | None, str]] = []
    made = context.Context(TASK, run=2, attempt=3, name="n", report=lambda *it: reports.append(it))
    context.begin(made)
    yield made
    context.end()


def test_context_outside_of_a_task_raises_with_a_remedy() -> None:
    with pytest.raises(kiln.NotInTask, match="call it in the function that you submit"):
        kiln.context()


def test_context_is_that_of_the_innermost_task(inner: context.Context) -> None:
    assert kiln.context() is inner
    other = context.Context(TASK, run=1, attempt=1)
    context.begin(other)
    assert kiln.context() is other
    context.end()
    assert kiln.context() is inner


def test_context_names_the_attempt(inner: context.Context) -> None:
    assert (inner.task_id, inner.run, inner.attempt) == (ids.task_text(TASK), 2, 3)
    assert (inner.name, context.Context(TASK, run=1, attempt=1).name) == ("n", inner.task_id)
    assert repr(inner) == f"<Context n {inner.task_id}/2/3>"


def test_progress_is_reported_and_checked() -> None:
    reports: list[tuple[float | None, str]] = []
    made = context.Context(TASK, run=1, attempt=1, report=lambda *it: reports.append(it))
    made.progress(0.5, "half")
    made.progress(message="who knows")
    with pytest.raises(ValueError, match=r"progress\(50\): the fraction must be from 0 to 1"):
        made.progress(50)
    assert reports == [(0.5, "half"), (None, "who knows")]
    context.Context(TASK, run=1, attempt=1).progress(1)


def test_context_is_cancelled_after_stop(inner: context.Context) -> None:
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


def test_logger_without_configuration_writes_to_stderr(
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
