"""Generator of docs/reference/python-api.md from docstrings: `python -m
kilnwork.cli.python_reference`.

Used by `make docs` and by the test that the page is current. It lists every public name with its
signature and what `help()` says of it; docs/reference/python.md explains how they are used.
"""

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_INTRODUCTION = """\
# Python API

<!-- Written by `make docs` from the docstrings of the public names. -->

Every public name of the Python package, with its signature and what `help()` says of it.
[Python](python.md) explains how they are used, [sessions](sessions.md) where tasks run.
"""

_MODULES = (
    ("kilnwork", "`import kilnwork as kiln`"),
    ("kilnwork.files", "`from kilnwork import files`"),
    ("kilnwork.executor", "`from kilnwork import executor`"),
    ("kilnwork.testing", "`from kilnwork import testing`"),
)

_INTERNAL = {
    "Context": {"stop"},
    "Future": {"forget", "pending", "settle", "when_done"},
    "Futures": {"advance", "follow"},
    "Session": {
        *("all_accepted", "attached", "block", "call_back", "confirm", "gather", "hello"),
        *("link_ended", "parent", "received", "remember", "resumed", "submit", "suspended"),
        *("template", "tick", "unaccepted", "unfinished"),
    },
    "Stream": {"found", "part", "parts", "yielded"},
    "SyncSet": {"declared", "enter_block", "expression", "leave_block", "owns", "take_name"},
}
"""Methods that the package itself calls, on these classes and those derived from them."""


def _signature(name: str, value: Any) -> str:
    """Return the name and the parameters of a function or class as in the source.

    This text does not depend on the version of Python.
    """
    function = value.__init__ if inspect.isclass(value) else inspect.unwrap(value)
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return f"class {name}" if inspect.isclass(value) else name
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return name
    parameters = node.args
    if inspect.isclass(value) or (parameters.args and parameters.args[0].arg in ("self", "cls")):
        del parameters.args[0]
    returned = "" if inspect.isclass(value) or node.returns is None else ast.unparse(node.returns)
    arrow = f" -> {returned}" if returned else ""
    asynchronous = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{asynchronous}{name}({ast.unparse(parameters)}){arrow}"


def _docstring(value: Any) -> str:
    own = value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)
    return inspect.cleandoc(own) if own else ""


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class.

    Inherited ones are included if they come from a class of kilnwork.
    """
    seen = {name for base in value.__mro__ for name in _INTERNAL.get(base.__name__, ())}
    for base in value.__mro__:
        if not base.__module__.startswith("kilnwork"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            found = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(found) or isinstance(found, property):
                yield name, found


def _described(heading: str, signature: str, text: str) -> Iterator[str]:
    yield heading
    yield f"```python\n{signature}\n```"
    if text:
        yield text


def _entry(prefix: str, name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        return
    if not callable(value):
        yield f"### `{prefix}{name}`"
        yield f"A constant: `{value!r}`."
        return
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    signature = f"class {name}" if is_error else _signature(name, value)
    yield from _described(f"### `{prefix}{name}`", signature, _docstring(value))
    if not inspect.isclass(value):
        return
    for member, found in sorted(_members(value)):
        text = _docstring(found)
        if not text:
            continue
        getter = isinstance(found, property)
        shown = f"{name}.{member}" if getter else _signature(f"{name}.{member}", found)
        yield from _described(f"#### `{name}.{member}`", shown, text)


def page() -> str:
    """Return the text of docs/reference/python-api.md."""
    parts = [_INTRODUCTION.rstrip("\n")]
    for path, heading in _MODULES:
        module = importlib.import_module(path)
        prefix = "kiln." if path == "kilnwork" else f"{path.partition('.')[2]}."
        parts += [f"## {heading}", _docstring(module).partition("\n\n")[0]]
        for name in sorted(module.__all__, key=str.lower):
            if not name.startswith("__"):
                parts += _entry(prefix, name, getattr(module, name))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
