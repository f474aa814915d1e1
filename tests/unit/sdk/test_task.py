"""Task functions: called, submitted, copied with options, shipped once."""

import functools
import inspect
import itertools
import json
import pickle
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import kilnwork as kiln
from kilnwork.sdk import task as tasks
from support import python_subprocess


@kiln.task
def double(x: int, *, times: int = 1) -> int:
    """Twice as much, so many times."""
    return int(x * 2**times)


@kiln.task(retries=2, retry_on=(ConnectionError,))
def fetch(x: int) -> int:
    return x


@kiln.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@kiln.task
def everything(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@pytest.fixture
def session() -> Iterator[kiln.testing.InlineSession]:
    with kiln.testing.inline() as made:
        yield made


def test_calling_a_task_runs_the_function_here() -> None:
    assert double(3, times=2) == 12
    assert double.__name__ == "double"
    assert double.__doc__ == "Twice as much, so many times."
    assert str(inspect.signature(double)) == "(x: int, *, times: int = 1) -> int"
    assert repr(double) == f"<Task {__name__}:double>"


def test_submit_without_a_session_raises_with_a_remedy() -> None:
    with pytest.raises(kiln.NoSession, match=r"with kiln\.start\(\)"):
        double.submit(1)


def test_futures_are_arguments_at_any_depth(session: kiln.testing.InlineSession) -> None:
    futures = double.map(range(4))
    assert total.submit(futures).result() == 12
    assert total.submit([double.submit(1), double.submit(2), 3]).result() == 9
    both = kiln.gather(double.submit(1), double.submit(2))
    assert total.submit(both).result() == 6
    got = everything.submit({"deep": [(double.submit(5),)]}, x=double.submit(1)).result()
    assert got == [[{"deep": [(10,)]}], {"x": 2}]


def test_no_keyword_of_the_function_is_stolen(session: kiln.testing.InlineSession) -> None:
    given = {"key": 1, "name": 2, "self": 3, "timeout": 4, "args": 5, "kwargs": 6, "function": 7}
    assert everything.submit(**given).result() == [[], given]
    assert everything(**given) == [[], given]


def test_options_give_a_copy_and_leave_the_task_alone(session: kiln.testing.InlineSession) -> None:
    named = double.options(name="twice", priority=5)
    assert named(4) == 8
    named.submit(1)
    double.submit(1)
    first, second = session.tasks
    assert (first.name, first.spec.priority) == ("twice", 5)
    assert (second.name, second.spec.priority) == (None, 0)
    assert isinstance(named, tasks.Task)
    with pytest.raises(kiln.BadOption, match="returns"):
        double.options(returns=2).submit(1)  # type: ignore[call-arg]


def test_a_key_names_a_call_for_ever(session: kiln.testing.InlineSession) -> None:
    first = double.options(key="k").submit(1)
    assert double.options(key="k").submit(1).id == first.id
    assert len(session.tasks) == 1
    assert isinstance(double.options(key="k").submit(2).exception(), kiln.KeyTaken)
    assert isinstance(total.options(key="k").submit([1]).exception(), kiln.KeyTaken)
    assert double.submit(1).id != first.id


def test_calls_with_the_same_options_share_one_template(
    session: kiln.testing.InlineSession,
) -> None:
    for number in range(3):
        double.submit(number)
        double.options(key=str(number), name="n").submit(number)
    assert len({id(each.spec) for each in session.tasks}) == 1


def test_decorators_below_a_task_are_part_of_it(session: kiln.testing.InlineSession) -> None:
    def louder(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args) + "!"

        return wrapper

    @kiln.task
    @louder
    def hello(name: str) -> str:
        return f"hello {name}"

    assert hello.submit("you").result() == "hello you!"
    assert kiln.task(functools.partial(max, 3)).submit(7).result() == 7
    assert kiln.task(json.dumps, retries=1).submit([1]).result() == "[1]"


@pytest.mark.parametrize(
    "wrong", [3, "name", int, property(len)], ids=["number", "text", "class", "property"]
)
def test_object_that_is_no_function_is_refused(wrong: Any) -> None:
    with pytest.raises(kiln.BadOption, match=r"takes a function, not .*write @kiln\.task above"):
        kiln.task(wrong)


def test_method_is_refused_with_a_remedy() -> None:
    with pytest.raises(kiln.BadOption, match=r"Counter\.add is a method.*outside the class"):

        class Counter:
            @kiln.task(retries=1)
            def add(self, number: int) -> int:
                return number

    with pytest.raises(kiln.BadOption, match=r"Other\.make is a method"):

        class Other:
            @kiln.task
            def make(cls) -> None: ...  # noqa: N805  as a user may write it


def test_functions_of_a_class_may_be_tasks(session: kiln.testing.InlineSession) -> None:
    class Model:
        factor = 3

        @staticmethod
        @kiln.task
        def double(number: int) -> int:
            return 2 * number

        def predict(self, number: int) -> int:
            return self.factor * number

    assert Model.double.submit(4).result() == 8
    assert Model().double.submit(4).result() == 8
    assert kiln.task(Model.predict).submit(Model(), 5).result() == 15


def test_the_kinds_of_functions(session: kiln.testing.InlineSession) -> None:
    @kiln.task
    async def later(x: int) -> int:
        return x + 1

    @kiln.task
    def up_to(n: int) -> Iterator[int]:
        yield from range(n)

    @kiln.task
    async def slowly(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    @kiln.task(returns=2)
    def divide(a: int, b: int) -> tuple[int, int]:
        return divmod(a, b)

    assert later.submit(1).result() == 2
    assert (list(up_to.submit(3)), list(up_to(3))) == ([0, 1, 2], [0, 1, 2])
    assert up_to.submit(3).result() == [0, 1, 2]
    assert list(slowly.submit(2)) == [0, 1]
    quotient, rest = divide.submit(17, 5)
    assert (quotient.result(), rest.result()) == (3, 2)
    assert double.submit(rest).result() == 4
    assert quotient.id == rest.id
    with pytest.raises(kiln.BadOption, match=r"returns=2: a generator has one result"):
        kiln.task(returns=2)(lambda: (yield))


def test_several_results_must_be_as_many(session: kiln.testing.InlineSession) -> None:
    @kiln.task(returns=3)
    def pair() -> tuple[int, int]:
        return 1, 2

    first, *_ = pair.submit()
    with pytest.raises(ValueError, match="has returns=3, but its function returned a tuple of 2"):
        first.result()


def test_retry_on_limits_the_retried_errors() -> None:
    assert tasks.may_retry(fetch, ConnectionResetError())
    assert not tasks.may_retry(fetch, ValueError())
    assert tasks.may_retry(double, ValueError())
    assert tasks.may_retry(lambda: 1, ValueError())


def test_a_task_of_a_module_goes_by_name() -> None:
    assert pickle.loads(pickle.dumps(double)) is double  # noqa: S301
    assert tasks.function_of(double)(2) == 4
    assert tasks.function_of(len) is len


def test_a_copy_keeps_its_options_and_names_its_function() -> None:
    copy = fetch.options(retry_on=None, name="n", key="k")
    data = cloudpickle.dumps(copy)
    got = cloudpickle.loads(data)
    assert tasks.function_of(got) is tasks.function_of(fetch)
    assert tasks.may_retry(got, ValueError())
    assert (got._name, got._key) == ("n", "k")
    assert len(data) < 700, "the function is named, not pickled"


def code_of(session: kiln.testing.InlineSession) -> list[str | None]:
    return [each.spec.call.code for each in session.tasks if each.spec.call is not None]


def test_only_functions_that_workers_cannot_import_are_shipped(
    session: kiln.testing.InlineSession,
) -> None:
    @kiln.task
    def local() -> int:
        return 1

    double.submit(1)
    local.submit()
    local.options(retries=1).submit()
    fetch.submit(1)
    fetch.options(retry_on=ValueError).submit(1)
    first, second, third, fourth, fifth = code_of(session)
    assert (first, fourth) == (None, None)
    assert second is not None
    assert second == third, "options that the worker does not need change no code"
    assert fifth is not None, "the worker must know what to retry"


def test_a_session_whose_workers_lack_our_modules_gets_the_code() -> None:
    with kiln.testing.inline() as session:
        session.imports_ours = False
        double.submit(1)
        kiln.task(json.dumps).submit(1)
    try:
        assert code_of(session)[0] is not None
        assert code_of(session)[1] is None, "the standard library is everywhere"
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    with kiln.testing.inline() as session:
        double.submit(1)
        assert code_of(session) == [None]


PROGRAM = """
import pathlib, sys
import kilnwork as kiln

@kiln.task(retries=3)
def even(n):
    return n == 0 or odd(n - 1)

@kiln.task
def odd(n):
    return n != 0 and even(n - 1)

@kiln.task
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

with kiln.testing.inline() as session:
    even.submit(2)
    fib.submit(2)
    for each in session.tasks:
        data = session.blobs.get(bytes.fromhex(each.spec.call.code.removeprefix("sha256:")))
        (pathlib.Path(sys.argv[1]) / each.spec.call.code).write_bytes(data)
        print(each.spec.call.code)
"""
WORKER = """
import pathlib, sys
from kilnwork.sdk import task

for code in sys.argv[2:]:
    held = task.load((pathlib.Path(sys.argv[1]) / code).read_bytes(), code)
    function = task.function_of(held)
    itself = function.__globals__[function.__name__]
    print(function.__name__, function(10), itself is held, held._code.digest == code)
"""


def test_tasks_of_a_script_may_refer_to_themselves_and_to_each_other(tmp_path: Path) -> None:
    codes = python_subprocess.run(PROGRAM, str(tmp_path)).split()
    printed = python_subprocess.run(WORKER, str(tmp_path), *codes).splitlines()
    assert printed == ["even True True True", "fib 55 True True"]


def test_map_takes_a_row_of_several_iterables(session: kiln.testing.InlineSession) -> None:
    mapped = everything.map([1, 2, 3], "ab", itertools.repeat(0))
    assert [each.result() for each in mapped] == [[[1, "a", 0], {}], [[2, "b", 0], {}]]


def test_a_task_from_an_id(session: kiln.testing.InlineSession) -> None:
    first = double.submit(21)
    assert kiln.future(first.id).result() == 42
    with pytest.raises(LookupError):
        kiln.future("00000000-0000-7000-8000-000000000000").result()
    with pytest.raises(ValueError, match="'nonsense' is no task id"):
        kiln.future("nonsense")
