"""The decorator `@kiln.task`, which turns a function into a `Task`.

Used by programs. The options are described in `sdk.options`, the methods of a task in `sdk.task`.
"""

import functools
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from kilnwork.sdk import errors, options, serialization
from kilnwork.sdk.task import AsyncStreamTask, AsyncTask, SplitTask, StreamTask, Task

P = ParamSpec("P")
R = TypeVar("R")
Y = TypeVar("Y")

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
"""Bits of `co_flags`, as in `inspect`."""


class TaskDecorator(Protocol):
    """The type of `@kiln.task(…)` before it is applied to a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, AsyncIterator[Y]], /) -> AsyncStreamTask[P, Y]: ...
    @overload
    def __call__(self, function: Callable[P, Iterator[Y]], /) -> StreamTask[P, Y]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class SplitTaskDecorator(Protocol):
    """The type of `@kiln.task(returns=n)` before it is applied to a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> SplitTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SplitTask[P, R]: ...


@overload
def task(
    function: Callable[P, Coroutine[Any, Any, R]], /, **given: Unpack[options.Changes]
) -> AsyncTask[P, R]: ...
@overload
def task(
    function: Callable[P, AsyncIterator[Y]], /, **given: Unpack[options.Changes]
) -> AsyncStreamTask[P, Y]: ...
@overload
def task(
    function: Callable[P, Iterator[Y]], /, **given: Unpack[options.Changes]
) -> StreamTask[P, Y]: ...
@overload
def task(function: Callable[P, R], /, **given: Unpack[options.Changes]) -> Task[P, R]: ...
@overload
def task(*, returns: int, **given: Unpack[options.Changes]) -> SplitTaskDecorator: ...
@overload
def task(**given: Unpack[options.Changes]) -> TaskDecorator: ...
def task(function: Any = None, /, **given: Any) -> Any:
    """Make a function a task: `@kiln.task`, or with options `@kiln.task(retries=3, timeout=60)`.

    The options are those of `options.Changes`, and `returns=n` for a function that returns a tuple
    of n items: `submit` then returns a tuple of n futures, each of which can be passed on
    separately. Each call of an async function runs in an event loop of its own; the values of a
    generator function are available one by one while it runs. Raises BadOption.
    """
    if function is None:
        _chosen(given, "task")
        return lambda function: _decorated(function, given)
    return _decorated(function, given)


def _decorated(function: Any, given: dict[str, Any]) -> Task[Any, Any]:
    if isinstance(function, Task):
        return function.options(**given)
    if not callable(function) or isinstance(function, type):
        raise errors.BadOption(
            f"kiln.task takes a function, not {function!r}: write @kiln.task above a def; options "
            "are keywords: @kiln.task(retries=3)"
        )
    name = serialization.function_name(function)
    if _is_method(function):
        raise errors.BadOption(
            f"kiln.task: {name} is a method, and a task has no object of its own: it gets copies "
            "of its arguments. Define it outside the class, with what it needs as arguments, and "
            "let the method call submit; without self, @staticmethod above @kiln.task will do"
        )
    chosen, shown = _chosen(given, name)
    made = _kind(function, chosen, name)(function, chosen)
    made._name = shown
    return made


def _is_method(function: Any) -> bool:
    """Return whether the function is a method in the body of a class that is being defined.

    A method's first argument is the object or the class. A function that is taken out of a finished
    class may be a task; its caller passes the object.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_varnames[: code.co_argcount][:1] not in (("self",), ("cls",)):
        return False
    body = function.__qualname__.rpartition(".")[0]
    frame = sys._getframe(1)  # only a class body's frame tells where we are
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return bool(body) and frame.f_locals.get("__qualname__") == body


def _chosen(given: dict[str, Any], of: str) -> tuple[options.Options, str | None]:
    """Return the checked options that apply to all calls of a function, and its `name=`."""
    if "key" in given:
        raise errors.BadOption(
            f"{of}: key={given['key']!r} names one call, not all of a function: give it where "
            f"you submit, .options(key={given['key']!r}).submit(…)"
        )
    shown = options.checked("name", given.get("name"), of=of)
    of_spec = {option: value for option, value in given.items() if option != "name"}
    return options.changed(options.Options(), of_spec, of=of), shown


def _kind(function: Any, chosen: options.Options, name: str) -> type[Task[Any, Any]]:
    plain = function
    while isinstance(plain, functools.partial):
        plain = plain.func
    flags = getattr(getattr(plain, "__code__", None), "co_flags", 0)
    stream = flags & (_GENERATOR | _ASYNC_GENERATOR)
    if chosen.returns > 1:
        if stream:
            raise errors.BadOption(
                f"{name}: returns={chosen.returns}: a generator has one result, the list of all it "
                "yields: leave returns= out and iterate the future"
            )
        return SplitTask
    if flags & _ASYNC_GENERATOR:
        return AsyncStreamTask
    if stream:
        return StreamTask
    return AsyncTask if flags & _COROUTINE else Task
