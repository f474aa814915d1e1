"""A cloudpickle pickler that also handles cached functions and the file names of code.

Used by `sdk.pickle_encoding`. Since 3.1.3 cloudpickle leaves out the file that a function is
defined in, so that tracebacks show no source lines; this pickler puts it back. Pickle refers to a
`functools.cache` or `lru_cache` function by its module, even if that is `__main__`, which is
another module in a worker; here such a function is created again with an empty cache of the same
size. The same holds for a `cached_property`, which contains a lock up to Python 3.11.
"""

import collections
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeAlias

_Cached: TypeAlias = "functools._lru_cache_wrapper[Any]"
_Property: TypeAlias = "functools.cached_property[Any]"


@functools.cache
def pickler() -> Any:
    """Return the pickler class.

    It pickles functions and classes by value if other processes cannot import them.
    """
    import cloudpickle  # noqa: PLC0415 - 25 ms that few programs need

    ours = {
        functools._lru_cache_wrapper: _cached_function,
        functools.cached_property: _cached_property,
        types.CodeType: _code,
    }
    table = collections.ChainMap(ours, cloudpickle.Pickler.dispatch_table)
    return type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": table})


def _cached_function(function: _Cached) -> str | tuple[Any, ...]:
    if _found_by_name(function):
        return function.__qualname__
    size = function.cache_parameters()
    return _cached_again, (function.__wrapped__, size["maxsize"], size["typed"])


def _cached_again(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:  # noqa: FBT001 - called by pickle
    return functools.lru_cache(maxsize, typed)(function)


def _cached_property(found: _Property) -> tuple[Any, ...]:
    state = {name: value for name, value in vars(found).items() if name != "lock"}
    return functools.cached_property, (found.func,), state


def _code(code: types.CodeType) -> tuple[Any, ...]:
    import cloudpickle  # noqa: PLC0415 - it is loaded: see `pickler`

    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return _code_again, (make, arguments, code.co_filename)


def _code_again(
    make: Callable[..., types.CodeType], arguments: tuple[Any, ...], filename: str
) -> types.CodeType:
    return make(*arguments).replace(co_filename=filename)


def _found_by_name(function: _Cached) -> bool:
    """Return whether another process can import the function by its module and name.

    False for functions of modules that are pickled by value.
    """
    module = function.__module__
    along = {"__main__", "__mp_main__", *sys.modules["cloudpickle"].list_registry_pickle_by_value()}
    if any(module == each or module.startswith(f"{each}.") for each in along):
        return False
    found: Any = sys.modules.get(module)
    for step in function.__qualname__.split("."):
        found = getattr(found, step, None)
    return found is function
