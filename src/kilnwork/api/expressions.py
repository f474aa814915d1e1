"""Expressions in flows: `${ EXPR }` in CEL, evaluated on values and replaced by a value.

Used by `flow_program` and the plan of flows. A text is an expression as a whole or not at all:
nothing is ever pasted into text, so that no value can become syntax. What an expression names is
known before it is evaluated; looking it up is the caller's. A plain path such as `price.value.sum`
is followed here, and gives its value as it is; the rest is CEL's (`cel`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import cel, documents
from kilnwork.kit import errors

MAX_CHARS = 1024
"""Longest expression."""

MAX_NESTING = 2
"""How deep macros may lie in each other; `map` stands alone, as its lists may grow."""

_STEPS = documents.MAX_WORK
_WHOLE = re.compile(r"\s*\$\{(.*)\}\s*", re.DOTALL)
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\s*\.\s*[A-Za-z_]\w*)*)\s*")
_KEY = r"""\s*\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\]"""


class ExpressionError(errors.KilnError):
    """The expression cannot be evaluated; the message says why, without naming the field."""


class Name(NamedTuple):
    """A name that an expression looks up: `root.member`, or `root` where member is None."""

    root: str
    member: str | None


Lookup = Callable[[Name], Any]
"""Returns the JSON value of a name. May raise `ExpressionError`."""


class Expression:
    """One parsed expression. `whole`: names that are looked up without a member."""

    def __init__(self, text: str, whole: frozenset[str] = frozenset()) -> None:
        """Parse an expression, without `${` and `}`. Raises ExpressionError."""
        if len(text) > MAX_CHARS:
            raise ExpressionError(f"has {len(text)} characters; {MAX_CHARS} are allowed")
        self.text = text.strip()
        self.path: tuple[str, ...] = ()
        """Its parts, if it is a plain path."""
        found = _PATH.fullmatch(text)
        if found and found[1] not in ("true", "false", "null"):
            self.path = (found[1], *(part.strip() for part in found[2].split(".")[1:]))
            self._program: Any = None
            member = None if found[1] in whole else next(iter(self.path[1:]), None)
            self.names: tuple[Name, ...] = (Name(found[1], member),)
            return
        if not cel.available():
            raise ExpressionError("needs the package common-expression-language")
        program, problem = cel.load(text)
        if problem:
            raise ExpressionError(f"is no expression: kilnwork {problem}")
        self._program = program
        bare = cel.bare(text)
        self._macros, self._nesting, bound = _macros(bare)
        roots = sorted({*program.variables()} - bound)
        self.names = tuple(
            name for root in roots for name in _members(text, bare, root, whole=root in whole)
        )
        self._literals = bare.count(",") + 1

    def evaluate(self, lookup: Lookup) -> Any:
        """Return its value, JSON. Raises ExpressionError."""
        if self.path:
            return self._follow(lookup)
        scope: dict[str, Any] = {}
        for name in self.names:
            value = lookup(name)
            if name.member is None:
                scope[name.root] = value
            else:
                scope.setdefault(name.root, {})[name.member] = value
        return self._execute(scope)

    def _follow(self, lookup: Lookup) -> Any:
        (name,) = self.names
        value = lookup(name)
        walked = self.path[: 1 if name.member is None else 2]
        for part in self.path[len(walked) :]:
            if not isinstance(value, dict) or part not in value:
                shown = documents.show(value)
                raise ExpressionError(f"needs {part!r} in {'.'.join(walked)}, which is {shown}")
            value, walked = value[part], (*walked, part)
        return value

    def _execute(self, scope: dict[str, Any]) -> Any:
        try:
            size = documents.measure(scope)
            rounds = max(size.longest, self._literals) ** self._nesting if self._macros else 0
            documents.Budget(_STEPS).spend(size.work + self._macros * rounds * (8 + size.work // 8))
            given = self._program.execute(scope)
        except documents.LimitExceeded as error:
            raise ExpressionError(f"cannot be evaluated: its values {error}") from error
        except KeyError as error:
            raise ExpressionError(f"needs {error.args[0]}, which does not exist") from error
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ExpressionError(
                f"cannot be evaluated: {str(error).splitlines()[0].partition('. ')[0]}"
            ) from error
        foreign = documents.find_non_json(given)
        if foreign is not None:
            raise ExpressionError(f"gives {foreign}, which is no JSON")
        return given

    def truth(self, lookup: Lookup) -> bool:
        """Return its value, which must be true or false. Raises ExpressionError."""
        given = self.evaluate(lookup)
        if not isinstance(given, bool):
            raise ExpressionError(f"is {documents.show(given)}, neither true nor false")
        return given


def _macros(bare: str) -> tuple[int, int, frozenset[str]]:
    """Return how many macros there are, how deep they lie, and the variables that they bind."""
    found, nesting = cel.macros(bare)
    if nesting > MAX_NESTING:
        raise ExpressionError(f"has macros {nesting} deep in each other; {MAX_NESTING} are allowed")
    if nesting > 1 and any(macro == "map" for macro, _ in found):
        raise ExpressionError("has map() and macros in each other: map() is allowed alone")
    if found and re.search(r"\bmatches\s*\(", bare):
        raise ExpressionError(f"has matches() beside {found[0][0]}(); use one of them")
    return len(found), nesting, frozenset(variable for _, variable in found)


def _members(text: str, bare: str, root: str, *, whole: bool) -> Iterator[Name]:
    """Yield what is looked up of a root."""
    if whole:
        yield Name(root, None)
        return
    start = rf"(?<![\w.])(?<!\.\s){root}\b"
    members = {match[1] for match in re.finditer(rf"{start}\s*\.\s*(\w+)", bare)}
    keys = {match[1] or match[2] for match in re.finditer(start + _KEY, text)}
    uses = len(re.findall(start, bare))
    named = len(re.findall(rf"{start}\s*\.\s*\w+", bare)) + len(re.findall(start + _KEY, text))
    for member in sorted(members | keys):
        yield Name(root, member)
    if named < uses or not members | keys:
        yield Name(root, None)


def parse(text: str, whole: frozenset[str] = frozenset()) -> Expression | None:
    """Parse a text that is an expression as a whole; None for any other text.

    Raises ExpressionError for one that only contains `${`.
    """
    found = _WHOLE.fullmatch(text)
    if found:
        return Expression(found[1], whole)
    if "${" in text:
        raise ExpressionError(
            "has ${ among other text, which is never filled in: make all of it one expression, "
            """such as ${ "a-" + params.b }"""
        )
    return None


def field(text: str, whole: frozenset[str] = frozenset()) -> Expression:
    """Parse a field that is always an expression, with or without `${` and `}`.

    Raises ExpressionError.
    """
    found = _WHOLE.fullmatch(text)
    return Expression(found[1] if found else text, whole)


class Document:
    """JSON with expressions in it, at whatever depth."""

    def __init__(self, value: Any, whole: frozenset[str] = frozenset()) -> None:
        """Parse the texts in a value. Raises ExpressionError."""
        self._compiled = _compile(value, whole)
        self.names: tuple[Name, ...] = tuple(dict.fromkeys(_names(self._compiled)))

    @property
    def expression(self) -> Expression | None:
        """The expression that it is as a whole, if it is one."""
        return self._compiled if isinstance(self._compiled, Expression) else None

    def evaluate(self, lookup: Lookup) -> Any:
        """Return the value with all expressions replaced. Raises ExpressionError."""
        return _evaluate(self._compiled, lookup)


def _compile(value: Any, whole: frozenset[str]) -> Any:
    if isinstance(value, str):
        return parse(value, whole) or value
    if isinstance(value, Mapping):
        return {key: _compile(one, whole) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_compile(one, whole) for one in value]
    return value


def _names(compiled: Any) -> Iterator[Name]:
    if isinstance(compiled, Expression):
        yield from compiled.names
    elif isinstance(compiled, dict):
        for one in compiled.values():
            yield from _names(one)
    elif isinstance(compiled, list):
        for one in compiled:
            yield from _names(one)


def _evaluate(compiled: Any, lookup: Lookup) -> Any:
    if isinstance(compiled, Expression):
        return compiled.evaluate(lookup)
    if isinstance(compiled, dict):
        return {key: _evaluate(one, lookup) for key, one in compiled.items()}
    if isinstance(compiled, list):
        return [_evaluate(one, lookup) for one in compiled]
    return compiled


def encode(value: Any) -> bytes:
    """Return a value as JSON, the same bytes for the same value wherever a flow runs."""
    return msgspec.json.encode(value)
