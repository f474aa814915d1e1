"""Finds the part of a value that cannot be pickled, and the path to it.

Used by `sdk.pickle_encoding` after pickling has failed. Tries the parts of the value, then the
parts of the part that fails, and so on. The number of tries is bounded, so that a huge value does
not take minutes.
"""

import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_DEPTH = 32
MAX_TRIES = 2_000

Try = Callable[[Any], Exception | None]
"""Tries to pickle a value; returns the error, or None."""


Named = Callable[[], Iterable[tuple[str, Any]]]
"""Returns the parts of a value, with the names that error messages use for them."""


def find(
    parts: Iterable[tuple[str, Any]], error: Exception, *, attempt: Try
) -> tuple[str, Exception]:
    """Return the path of the smallest part that cannot be pickled, and the error that pickling it
    raises.

    `error`: the error that pickling the whole value raised.
    """
    seen: set[int] = set()
    tries = MAX_TRIES
    path = ""
    for _ in range(MAX_DEPTH):
        for step, part in parts:
            if id(part) in seen or isinstance(part, _NEVER_FAIL):
                continue
            seen.add(id(part))
            tries -= 1
            failure = attempt(part) if tries >= 0 else None
            if failure is not None:
                path, error, parts = path + step, failure, _parts(part)
                break
        else:
            break
        if is_depth(error):
            break
    return path or "value", error


def is_depth(error: Exception) -> bool:
    """Return whether pickling failed because the value is nested too deeply.

    Its parts do not explain such an error.
    """
    return isinstance(error, RecursionError) or "recursion" in str(error)


def describe(error: Exception) -> str:
    """Return the text of the last line of an error's traceback, followed by a remedy."""
    kind = type(error).__name__
    if is_depth(error):
        return (
            f"{kind}: it is nested too deeply, or refers to itself without end. It cannot be sent "
            "to another process: send it flatter, say, as a list with indexes instead of links"
        )
    if "generator'" in str(error):
        return (
            f"{kind}: {error}. It cannot be sent to another process: send a list of its values; a "
            "task that yields must be a generator function itself"
        )
    return (
        f"{kind}: {error}. It cannot be sent to another process: send what it is made from, and "
        "make it in the task"
    )


_NEVER_FAIL = (str, bytes, bytearray, int, float, complex, bool, type(None))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with the text that is appended to the path of the value."""
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield f"[{_short(key)}]", part
            yield f".keys()[{_short(key)}]", key
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f"{{{_short(part)}}}", part) for part in value)
    elif isinstance(value, types.FunctionType):
        yield from _parts_of_function(value)
        return
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
        return
    yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object that pickle stores by default.

    They are the items of the result of `__getstate__`, else the attributes.
    """
    if isinstance(value, type):
        return
    try:
        state = value.__getstate__() if hasattr(value, "__getstate__") else None
    except Exception:  # noqa: BLE001 - any user's code; then there is nothing to look into
        return
    for attributes in state if isinstance(state, tuple) else (state,):
        if isinstance(attributes, dict):
            yield from ((f".{name}", part) for name, part in attributes.items())


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the objects that cloudpickle pickles along with a function.

    They are the globals that the function names, its closure and its defaults.
    """
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield f".__globals__[{name!r}]", function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f".__closure__[{name!r}]", cell.cell_contents
        except ValueError:  # an empty cell
            continue
    yield ".__defaults__", function.__defaults__
    yield ".__kwdefaults__", function.__kwdefaults__
    yield from ((f".{name}", part) for name, part in vars(function).items())


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _short(key: Any) -> str:
    try:
        text = repr(key)
    except Exception:  # noqa: BLE001 - any user's __repr__
        text = f"<{type(key).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
