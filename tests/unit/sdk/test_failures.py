"""Exceptions come out of a task as what they were, whatever they are made of."""

import asyncio
import threading
import traceback
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kilnwork
from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.kit import ids
from kilnwork.sdk import errors, failures, function_runner
from support import python_subprocess

TASK = ids.TaskId(bytes(range(16)))
TEXT = ids.task_text(TASK)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - whatever it is
        return caught


def there_and_back(error: BaseException) -> BaseException:
    return failures.unpack_error(failures.pack_error(error))


class Odd(Exception):
    """Takes other arguments than it passes on."""

    def __init__(self, host: str, *, port: int) -> None:
        super().__init__(f"{host}:{port} does not respond")
        self.port = port


class Holding(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("it has a lock")
        self.lock = threading.Lock()


class Mute(Holding):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Stubborn(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("text", 3),
        KeyError("k"),
        OSError(2, "No such file", "name"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ExceptionGroup("several", [ValueError(1), TypeError(2)]),
        Odd("host", port=80),
        Stubborn("by its own __reduce__"),
        errors.TaskTimedOut("late", task="id", reason="TimedOut"),
        errors.NotPicklable("what", path="arguments[0]"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_comes_back_as_itself(error: Exception) -> None:
    got = there_and_back(raised(error))
    assert type(got) is type(error)
    assert (str(got), repr(got.args)) == (str(error), repr(error.args))
    assert {**vars(got)} == {**vars(error)} or isinstance(error, ExceptionGroup)


def test_remote_traceback_is_printed_in_the_driver() -> None:
    def inner() -> None:
        raise ValueError("at the bottom")

    try:
        try:
            inner()
        except ValueError as cause:
            raise Odd("host", port=80) from cause
    except Odd as error:
        error.add_note("try another host")
        got = there_and_back(error)
    assert isinstance(got.__cause__, errors.RemoteTraceback)
    printed = "".join(traceback.format_exception(got))
    for text in (
        "in inner",
        "ValueError: at the bottom",
        "The above exception was the direct cause",
        "Odd: host:80 does not respond",
    ):
        assert text in printed
    assert got.__notes__ == ["try another host"]
    assert printed.count("try another host") == 2, "remote traceback, and the exception itself"


def test_contexts_are_part_of_the_traceback() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904 - the implicit context is the point
    except ValueError as error:
        text = str(there_and_back(error).__cause__)
    assert "KeyError: 'first'" in text
    assert "During handling of the above exception" in text


def test_frames_of_ours_above_the_users_are_left_out() -> None:
    def fails() -> None:
        raise ValueError("here")

    async def fails_too() -> None:
        await asyncio.sleep(0)
        fails()

    for function in (fails, fails_too):
        try:
            function_runner.call(function, (), {})
        except ValueError as error:
            found = error.with_traceback(error.__traceback__.tb_next)  # type: ignore[union-attr]
            text = str(there_and_back(found).__cause__)
        frames = [line for line in text.splitlines() if line.startswith("  File")]
        assert "in fails" in frames[0]
        assert not any("/asyncio/" in line or "running.py" in line for line in frames)


@pytest.mark.parametrize("error", [Holding(), Mute()], ids=["holding", "mute"])
def test_error_that_cannot_be_pickled_becomes_task_failed(error: Exception) -> None:
    got = there_and_back(raised(error))
    assert isinstance(got, errors.TaskFailed)
    assert got.type == f"{__name__}.{type(error).__name__}"
    assert "raise error" in got.traceback
    assert isinstance(got.__cause__, errors.RemoteTraceback)
    if not isinstance(error, Mute):
        assert str(got) == f"{got.type}: it has a lock"


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), GeneratorExit()], ids=repr
)
def test_exception_that_would_end_the_driver_becomes_task_failed(error: BaseException) -> None:
    got = there_and_back(raised(error))
    assert isinstance(got, errors.TaskFailed)
    assert got.type == type(error).__name__


def test_a_class_that_is_missing_here_costs_only_the_class() -> None:
    printed = python_subprocess.run(
        "import sys, types\n"
        "sys.modules['gone'] = gone = types.ModuleType('gone')\n"
        "gone.Missing = type('Missing', (Exception,), {'__module__': 'gone'})\n"
        "from kilnwork.sdk import failures\n"
        "error = gone.Missing('still readable')\n"
        "error.add_note('a note')\n"
        "print(failures.pack_error(error).data.hex())"
    )
    got = failures.unpack_error(attempts.Payload(attempts.ERROR, bytes.fromhex(printed)))
    assert isinstance(got, errors.TaskFailed)
    assert (str(got), got.type) == ("gone.Missing: still readable", "gone.Missing")
    assert got.__notes__ == ["a note"]


def test_an_error_is_never_a_blob_and_keeps_its_ends() -> None:
    def deep(n: int) -> None:
        if n:
            return deep(n - 1) if n % 2 else shallow(n - 1)
        raise ValueError("begin " + "é" * 200_000 + " end")

    def shallow(n: int) -> None:
        return deep(n)

    try:
        deep(400)
    except ValueError as error:
        for number in range(1000):
            error.add_note(f"note {number} " + "x" * 100)
        payload = failures.pack_error(error)
    assert len(payload.data) <= attempts.MAX_INLINE_BYTES
    got = failures.unpack_error(payload)
    assert isinstance(got, errors.TaskFailed), "itself it is too large"
    assert got.text.startswith("begin é")
    assert got.text.endswith("é end")
    assert "left out" in got.text
    assert "left out" in got.traceback
    assert got.traceback.startswith("Traceback (most recent call last)")
    assert got.__notes__[0].startswith("note 0")


@given(st.text(), st.lists(st.text(), max_size=5))
def test_error_text_may_contain_any_characters(text: str, notes: list[str]) -> None:
    error = Holding()
    error.args = (text,)
    for note in notes:
        error.add_note(note)
    got = there_and_back(error)
    assert isinstance(got, errors.TaskFailed)
    assert isinstance(got.__cause__, errors.RemoteTraceback)
    assert got.__cause__.__cause__ is None


def outcome(
    state: api_task.State = api_task.State.FAILED,
    reason: str = "",
    message: str = "",
    payload: attempts.Payload | None = None,
) -> BaseException:
    return failures.failure(TASK, state=state, reason=reason, message=message, payload=payload)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (reasons.Reason.TIMED_OUT, kilnwork.TaskTimedOut),
        (reasons.Reason.TOTAL_TIMED_OUT, kilnwork.TaskTimedOut),
        (reasons.Reason.PENDING_TIMED_OUT, TimeoutError),
        (reasons.Reason.LOST_TOO_OFTEN, kilnwork.TaskLost),
        (reasons.Reason.KEY_TAKEN, kilnwork.KeyTaken),
        (reasons.Reason.VARIABLE_MISSING, kilnwork.VariableMissing),
        (reasons.Reason.INPUT_FAILED, kilnwork.InputFailed),
        (reasons.Reason.SLOT_DIED, kilnwork.TaskFailed),
        ("SomethingNew", kilnwork.TaskError),
    ],
)
def test_a_reason_is_a_class_and_a_message(reason: str, kind: type[BaseException]) -> None:
    error = outcome(reason=reason, message="the facts")
    assert isinstance(error, kind)
    assert isinstance(error, kilnwork.TaskError)
    assert (str(error), error.task, error.reason) == (f"task {TEXT}: the facts", TEXT, reason)
    assert str(outcome(reason=reason)).startswith(f"task {TEXT}: ")


def test_killed_is_cancelled_whatever_else_is_known() -> None:
    payload = failures.pack_error(ValueError("while it ended"))
    error = outcome(api_task.State.KILLED, reasons.Reason.PARENT_KILLED, "its parent", payload)
    assert isinstance(error, kilnwork.Cancelled)
    assert isinstance(error.__cause__, ValueError)


def test_error_of_the_task_is_raised_again() -> None:
    payload = failures.pack_error(raised(Odd("host", port=1)))
    error = outcome(reason=reasons.Reason.RAISED, payload=payload)
    assert isinstance(error, Odd)
    assert isinstance(error.__cause__, errors.RemoteTraceback)


def test_a_variable_that_is_missing_says_so_in_its_own_class() -> None:
    reason = reasons.Reason.VARIABLE_MISSING
    packed = failures.pack_error(errors.VariableMissing("variable TOKEN: key a does not exist"))
    error = outcome(reason=reason, message="the facts", payload=packed)
    assert isinstance(error, kilnwork.VariableMissing)
    assert (str(error), error.task) == ("variable TOKEN: key a does not exist", TEXT)
    assert error.reason == reason


def test_a_failed_input_is_the_cause() -> None:
    packed = failures.pack_error(raised(ZeroDivisionError("by zero")))
    cause = msgspec.msgpack.decode(packed.data, type=attempts.ErrorInfo)
    first = attempts.ErrorInfo("kilnwork.InputFailed", "its input failed", "", cause=cause)
    second = attempts.ErrorInfo("kilnwork.InputFailed", "its input failed too", "", cause=first)
    payload = attempts.Payload(attempts.ERROR, msgspec.msgpack.encode(second))
    error = outcome(reason=reasons.Reason.INPUT_FAILED, message="m", payload=payload)
    assert isinstance(error, kilnwork.InputFailed)
    assert isinstance(error.__cause__, kilnwork.InputFailed)
    assert isinstance(error.__cause__.__cause__, ZeroDivisionError)


def test_unreadable_error_payload_becomes_task_failed() -> None:
    error = outcome(reason="Raised", payload=attempts.Payload(attempts.ERROR, b"\xc1"))
    assert isinstance(error, errors.TaskFailed)
    assert "cannot be read" in str(error)


def test_all_public_errors_can_be_pickled() -> None:
    for kind in errors.PUBLIC:
        got = there_and_back(raised(kind("message")))
        assert type(got) is kind
        assert "message" in str(got)
        assert kind.__module__ == "kilnwork"
        assert getattr(kilnwork, kind.__name__) is kind
