"""Expressions in flows: a string `${ EXPR }` in CEL is replaced by the value of the expression.

Used by `flow_program`, the plan of flows, `kilnwork.testing` and the SDK. A string is an expression
as a whole or not at all: nothing is ever inserted into text, so that no value can become syntax.
The names in an expression are known before it is evaluated; the caller looks up their values. A
plain path such as `price.value.sum` is resolved here and returns its value unchanged; other
expressions are evaluated by CEL (`cel_evaluation`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import cel_evaluation, json_limits
from kilnwork.kit import errors

MAX_CHARS = 1024
"""Maximum length of an expression."""

MAX_NESTING = 2
"""Maximum nesting depth of macros. `map` must not be nested, since its lists may grow."""

_STEPS = json_limits.MAX_WORK
_WHOLE = re.compile(r"\s*\$\{(.*)\}\s*", re.DOTALL)
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\s*\.\s*[A-Za-z_]\w*)*)\s*")
_KEY = r"""\s*\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\]"""


class ExpressionError(errors.KilnError):
    """The expression cannot be evaluated; the message says why, without the name of the field."""


class Name(NamedTuple):
    """A name that an expression looks up: `root.member`, or `root` if member is None."""

    root: str
    member: str | None


Lookup = Callable[[Name], Any]
"""Returns the JSON value of a name. May raise `ExpressionError`."""


class Expression:
    """One parsed expression. `whole`: roots that are looked up without a member."""

    def __init__(self, text: str, whole: frozenset[str] = frozenset()) -> None:
        """Parse an expression, without `${` and `}`. Raises ExpressionError."""
        if len(text) > MAX_CHARS:
            raise ExpressionError(f"has {len(text)} characters; {MAX_CHARS} are allowed")
        self.text = text.strip()
        self.path: tuple[str, ...] = ()
        """The parts of a plain path; empty for other expressions."""
        found = _PATH.fullmatch(text)
        if found and found[1] not in ("true", "false", "null"):
            self.path = (found[1], *(part.strip() for part in found[2].split(".")[1:]))
            self._program: Any = None
            member = None if found[1] in whole else next(iter(self.path[1:]), None)
            self.names: tuple[Name, ...] = (Name(found[1], member),)
            return
        if not cel_evaluation.available():
            raise ExpressionError("needs the package common-expression-language")
        program, problem = cel_evaluation.load(text)
        if problem:
            raise ExpressionError(f"is no expression: kilnwork {problem}")
        self._program = program
        stripped = cel_evaluation.strip_literals(text)
        self._macros, self._nesting, bound = _macros(stripped)
        roots = sorted({*program.variables()} - bound)
        self.names = tuple(
            name for root in roots for name in _members(text, stripped, root, whole=root in whole)
        )
        self._literals = stripped.count(",") + 1

    def evaluate(self, lookup: Lookup) -> Any:
        """Return the value of the expression, as JSON. Raises ExpressionError."""
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
                shown = json_limits.show(value)
                raise ExpressionError(f"needs {part!r} in {'.'.join(walked)}, which is {shown}")
            value, walked = value[part], (*walked, part)
        return value

    def _execute(self, scope: dict[str, Any]) -> Any:
        try:
            size = json_limits.measure(scope)
            rounds = max(size.longest, self._literals) ** self._nesting if self._macros else 0
            json_limits.Budget(_STEPS).spend(
                size.work + self._macros * rounds * (8 + size.work // 8)
            )
            given = self._program.execute(scope)
        except json_limits.LimitExceeded as error:
            raise ExpressionError(f"cannot be evaluated: its values {error}") from error
        except KeyError as error:
            raise ExpressionError(f"needs {error.args[0]}, which does not exist") from error
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ExpressionError(
                f"cannot be evaluated: {str(error).splitlines()[0].partition('. ')[0]}"
            ) from error
        foreign = json_limits.find_non_json(given)
        if foreign is not None:
            raise ExpressionError(f"gives {foreign}, which is no JSON")
        return given

    def evaluate_bool(self, lookup: Lookup) -> bool:
        """Return the boolean value of the expression. Raises ExpressionError if it is not a
        boolean."""
        given = self.evaluate(lookup)
        if not isinstance(given, bool):
            raise ExpressionError(f"is {json_limits.show(given)}, neither true nor false")
        return given


def _macros(stripped: str) -> tuple[int, int, frozenset[str]]:
    """Return the number of macros, their nesting depth, and the variables that they bind."""
    found, nesting = cel_evaluation.find_macros(stripped)
    if nesting > MAX_NESTING:
        raise ExpressionError(f"has macros {nesting} deep in each other; {MAX_NESTING} are allowed")
    if nesting > 1 and any(macro == "map" for macro, _ in found):
        raise ExpressionError("has map() and macros in each other: map() is allowed alone")
    if found and re.search(r"\bmatches\s*\(", stripped):
        raise ExpressionError(f"has matches() beside {found[0][0]}(); use one of them")
    return len(found), nesting, frozenset(variable for _, variable in found)


def _members(text: str, stripped: str, root: str, *, whole: bool) -> Iterator[Name]:
    """Yield the names that an expression looks up below a root."""
    if whole:
        yield Name(root, None)
        return
    start = rf"(?<![\w.])(?<!\.\s){root}\b"
    members = {match[1] for match in re.finditer(rf"{start}\s*\.\s*(\w+)", stripped)}
    keys = {match[1] or match[2] for match in re.finditer(start + _KEY, text)}
    uses = len(re.findall(start, stripped))
    named = len(re.findall(rf"{start}\s*\.\s*\w+", stripped)) + len(re.findall(start + _KEY, text))
    for member in sorted(members | keys):
        yield Name(root, member)
    if named < uses or not members | keys:
        yield Name(root, None)


def parse(text: str, whole: frozenset[str] = frozenset()) -> Expression | None:
    """Parse a string that is an expression as a whole; return None for any other string.

    Raises ExpressionError for a string that only contains `${`.
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


def parse_field(text: str, whole: frozenset[str] = frozenset()) -> Expression:
    """Parse a field that is always an expression, with or without `${` and `}`.

    Raises ExpressionError.
    """
    found = _WHOLE.fullmatch(text)
    return Expression(found[1] if found else text, whole)


class Document:
    """A JSON value that contains expressions, at any depth."""

    def __init__(self, value: Any, whole: frozenset[str] = frozenset()) -> None:
        """Parse the strings in a value. Raises ExpressionError."""
        self._compiled = _compile(value, whole)
        self.names: tuple[Name, ...] = tuple(dict.fromkeys(_names(self._compiled)))

    @property
    def expression(self) -> Expression | None:
        """Return the expression if the whole document is one, otherwise None."""
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
    """Return a value as JSON, with the same bytes on every machine; members keep their order."""
    return msgspec.json.encode(value)
