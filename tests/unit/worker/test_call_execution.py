"""How calls are run: what each end of user code becomes."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts, calls, reasons, task
from kilnwork.data import local_blobs
from kilnwork.kit import clock, ids
from kilnwork.sdk import failures, futures, serialization
from kilnwork.worker import call_execution, interrupts, slot_call_table

E = attempts.Ending
R = reasons.Reason
REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
HERE = __name__


class Owner:
    """A session that has blobs; `yields`: what a generator has yielded."""

    shares_files = False

    def __init__(self, directory: Path) -> None:
        self.blobs = local_blobs.Blobs(directory, durable=False)
        self.loads = 0
        self.yields: list[tuple[int, Any]] = []

    def loaded(self) -> None:
        self.loads += 1

    def needed(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        raise AssertionError("all values are sent along")

    def progress(self, ref: attempts.AttemptRef, fraction: float | None, message: str) -> None:
        raise AssertionError("no call here says how far it is")

    def yielded(self, ref: attempts.AttemptRef, index: int, payload: attempts.Payload) -> None:
        self.yields.append((index, serialization.unpack_value(payload, self.blobs)))


class World:
    """Runs calls of functions of this module."""

    def __init__(self, directory: Path) -> None:
        self.owner = Owner(directory)
        self.held = slot_call_table.SlotCalls()
        self.made = call_execution.Execution(self.owner, clock=clock.SystemClock())
        self.made.guard = interrupts.Interrupts(self.held, doors=call_execution.USER_CODE_CALLERS)

    def run(
        self,
        function: str,
        *args: Any,
        stop: str = "",
        values: tuple[calls.Value, ...] = (),
        **options: Any,
    ) -> calls.CallEnd:
        packed, _ = serialization.pack_arguments(args, {}, self.owner.blobs)
        level = slot_call_table.StackLevel(calls.CallRun(REF, 1, packed, "", values), 1.0)
        level.stop = stop
        spec = task.TaskSpec(call=task.Call(function=f"{HERE}:{function}", **options))
        self.held.stack.append(level)
        try:
            return self.made.run(level, call_execution.Template(spec))
        finally:
            self.held.stack.pop()

    def value(self, end: calls.CallEnd) -> Any:
        assert end.ending is E.SUCCEEDED, end.message
        assert end.payload is not None
        return serialization.unpack_value(end.payload, self.owner.blobs)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    before = signal.getsignal(interrupts.SIGNAL)
    yield World(tmp_path)
    signal.signal(interrupts.SIGNAL, before)


def add(a: int, b: int = 1) -> int:
    return a + b


def fail(text: str) -> None:
    raise ValueError(text)


def leave() -> None:
    raise SystemExit(3)


def unpicklable() -> object:
    return (each for each in (1,))


async def coroutine(value: int) -> int:
    return value


def count(number: int) -> Iterator[int]:
    yield from range(number)


def import_nothing() -> None:
    __import__("there_is_no_such_module")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def fail_unprintably() -> None:
    raise Unprintable


def test_return_value_is_the_result(world: World) -> None:
    end = world.run("add", 2, 3)
    assert world.value(end) == 5
    assert (end.reason, end.message, end.started) == ("Succeeded", "", 1.0)
    assert end.seconds >= 0


def test_function_is_loaded_once(world: World) -> None:
    for _ in range(3):
        world.run("add", 1)
    assert world.owner.loads == 1


def test_coroutine_is_awaited(world: World) -> None:
    assert world.value(world.run("coroutine", 7)) == 7


def test_generator_is_sent_value_by_value(world: World) -> None:
    end = world.run("count", 3, stream=True)
    assert end.ending is E.SUCCEEDED
    assert world.owner.yields == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("function", "args", "reason", "message"),
    [
        ("fail", ("no",), R.RAISED, "ValueError: no"),
        (
            "fail",
            ("x" * 5000,),
            R.RAISED,
            ("ValueError: " + "x" * 5000)[: call_execution.MAX_MESSAGE],
        ),
        ("leave", (), R.RAISED, "SystemExit: 3"),
        ("fail_unprintably", (), R.RAISED, "Unprintable"),
        ("nothing", (), R.FUNCTION_NOT_FOUND, f"AttributeError: module '{HERE}' has no attribute"),
        ("add", (), R.RAISED, "TypeError: add() missing 1 required positional argument: 'a'"),
    ],
)
def test_any_exception_of_a_function_is_a_failure(
    world: World, function: str, args: tuple[Any, ...], reason: R, message: str
) -> None:
    end = world.run(function, *args)
    assert (end.ending, end.reason) == (E.FAILED, str(reason))
    assert end.message.startswith(message)
    assert end.payload is not None


def test_unsendable_result_is_a_failure(world: World) -> None:
    end = world.run("unpicklable")
    assert (end.ending, end.reason) == (E.FAILED, str(R.RESULT_NOT_PICKLED))


def test_call_asked_to_stop_counts_as_stopped_though_it_returned(world: World) -> None:
    end = world.run("add", 1, stop="Killed")
    assert (end.ending, end.reason, end.payload) == (E.STOPPED, "Killed", None)


@pytest.mark.parametrize(("shares_files", "is_advised"), [(False, True), (True, False)])
def test_module_missing_on_the_worker_fails_with_advice(
    world: World, *, shares_files: bool, is_advised: bool
) -> None:
    world.owner.shares_files = shares_files
    end = world.run("import_nothing")
    assert end.payload is not None
    error = failures.unpack_error(end.payload)
    assert isinstance(error, ModuleNotFoundError)
    notes = "".join(getattr(error, "__notes__", ()))
    assert ("working_dir='.'" in notes) is is_advised


def test_template_without_a_call_is_refused() -> None:
    with pytest.raises(ValueError, match="without a call"):
        call_execution.Template(task.TaskSpec())
