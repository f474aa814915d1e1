"""Import of the function of a mapper or reducer: by its name, or from a blob with its code.

Used by `mapper_factory` and `reduce` in slots, which run in the mapper's environment already, and
by the CLI, which checks a function before it uploads a file.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs
from kilnwork.jobs.work import errors
from kilnwork.sdk import task

Function = Callable[..., Any]

_KEPT = 8
"""Number of functions from blobs that are kept, so that their global state lasts from part to
part."""

_loaded: dict[tuple[str, str | None], Function] = {}


def import_function(mapper: filejobs.Mapper) -> Function:
    """Import the function of a mapper or reducer, without the decorator of a task. Raises
    `MapperUnusable`.
    """
    name = mapper.function or ""
    try:
        found = _import(name) if mapper.code is None else _load(mapper.code, mapper.environment)
    except Exception as error:
        raise errors.MapperUnusable(
            f"the function {name} cannot be loaded: {type(error).__name__}: "
            f"{str(error).rstrip('.')}. "
            f"{_remedy(name, error)}"
        ) from error
    function: Function = task.function_of(found)
    _check(function, name)
    return function


def _remedy(name: str, error: Exception) -> str:
    lacking = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if lacking and lacking.partition(".")[0] != name.partition(":")[0].partition(".")[0]:
        return f"Install {lacking} where the workers run, or send a directory with it along"
    return "Workers find it as package.module:name, or it is sent along with its code"


def _import(name: str) -> Any:
    module, colon, path = name.partition(":")
    if not colon or not path:
        raise ValueError("write package.module:name")
    found: Any = import_module(module)
    for step in path.split("."):
        found = getattr(found, step)
    return found


def _load(code: str, environment: str | None) -> Any:
    known = _loaded.get((code, environment))
    if known is not None:
        return known
    if local_blobs.locate is None:
        raise data_errors.BlobMissing(f"{code} is not here: this process has no session")
    found = task.load(local_blobs.locate().get(local_blobs.parse(code)), code)
    while len(_loaded) >= _KEPT:
        del _loaded[next(iter(_loaded))]
    _loaded[code, environment] = found
    return found


def _check(function: Function, name: str) -> None:
    """Check that a function can be called with one argument, as far as its signature shows."""
    if not callable(function):
        raise errors.MapperUnusable(f"{name} is a {type(function).__name__}, not a function")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some builtins have no signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise errors.MapperUnusable(
            f"{name}{signature} cannot be called with one argument: {error}. It is given a record, "
            "or a list of records"
        ) from error
