"""CEL, the Common Expression Language, if its library is installed.

Used by the API server for the rules of users' definitions, by result rules and by flows. The
library (docs/decisions/0018) is loaded for the first expression. It implements CEL itself, without
the functions that Kubernetes adds. It can neither be interrupted nor limited, and holds the
interpreter lock during an evaluation: therefore a `Predicate` accepts only the subset of the
language whose work can be computed in advance.
"""

import functools
import importlib
import importlib.util
import re
from typing import Any

from kilnwork.api import json_limits
from kilnwork.kit import errors

LIBRARY = "cel"

MAX_CHARS = 4096
"""Maximum length of an expression. The library recurses for each operator: an expression with five
times as many operators in a row crashes the process."""

MAX_PREDICATE_CHARS = 1024
MAX_MATCHES = 4
"""Maximum number of calls of `matches()` in a predicate: each may compile a pattern of up to 10
MiB."""

MAX_NESTING = 2
"""Maximum nesting depth of macros in a predicate."""

_CONVERSION_STEPS = 7
"""Work of passing one value to the library, which takes 0.7 µs as measured."""

_MACRO_STEPS = 8
"""Work of one iteration of a macro, which takes up to 0.8 µs, plus half a step for each value
that it compares."""

_KNOWN = frozenset(
    {
        *(
            "bool",
            "bytes",
            "double",
            "duration",
            "dyn",
            "int",
            "string",
            "timestamp",
            "type",
            "uint",
        ),
        *("contains", "endsWith", "matches", "size", "startsWith"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getMonth"),
        *("getHours", "getMilliseconds", "getMinutes", "getSeconds"),
    }
)
"""Functions of the CEL specification (cel-spec/doc/langdef.md), except for macros, which are
removed first."""

_NAME = re.compile(r"[A-Za-z]\w*")
_TEXT_OR_COMMENT = re.compile(
    r"""(?<!\w)(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\r\n]*"|'[^'\r\n]*')"""
    r"""|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'"""
    r"|//[^\r\n]*",
    re.DOTALL,
)
"""String literals and comments. In raw strings a backslash escapes nothing: their content is not
examined."""

_MACRO = re.compile(r"\.\s*(all|exists|exists_one|existsOne|filter|map)\s*(\()\s*(\w+)\s*,")


class CelError(errors.KilnError):
    """The expression cannot be used as a rule; the message says why."""


@functools.cache
def available() -> bool:
    """Return whether the library is installed, without loading it."""
    return importlib.util.find_spec(LIBRARY) is not None


@functools.lru_cache(maxsize=512)
def load(text: str) -> tuple[Any, str]:
    """Compile an expression with the library; return the program and a problem.

    The problem says why the expression cannot be evaluated, as a sentence without a subject; "" if
    there is none. The program is None if the expression cannot be compiled. The library must be
    installed.
    """
    if len(text) > MAX_CHARS:
        return None, f"reads rules of up to {MAX_CHARS} characters"
    try:
        program = importlib.import_module(LIBRARY).compile(text)
    except (ValueError, RuntimeError) as error:
        return None, f"cannot read it: {str(error).splitlines()[0]}"
    foreign = sorted(
        name for name in program.functions() if _NAME.fullmatch(name) and name not in _KNOWN
    )
    if foreign:
        return program, f"does not know {', '.join(f'{name}()' for name in foreign)}"
    return program, ""


class Predicate:
    """An expression about `object` whose value is true, false or undecided."""

    def __init__(self, text: str) -> None:
        """Compile an expression; raises CelError."""
        if not available():
            raise CelError(
                "needs the package common-expression-language, which is not installed here: pip "
                "install common-expression-language, or write jsonPath, operator and value instead"
            )
        if len(text) > MAX_PREDICATE_CHARS:
            raise CelError(f"has {len(text)} characters; {MAX_PREDICATE_CHARS} are allowed")
        program, problem = load(text)
        if problem:
            raise CelError(f"is CEL that is not evaluated here: kilnwork {problem}")
        self.text = text
        self._program = program
        self._macros, self._nesting, self._literals = _measure_macros(text, program.variables())

    def evaluate(self, document: Any, budget: json_limits.Budget) -> bool | None:
        """Return the value of the expression, or None if it is undecided; raises LimitExceeded."""
        given = self._execute(document, budget)
        return given if isinstance(given, bool) else None

    def explain(self, document: Any, budget: json_limits.Budget) -> str:
        """Return the value of the expression as the end of a sentence that begins with the
        expression."""
        given = self._execute(document, budget)
        if isinstance(given, KeyError):
            return f"needs {given.args[0]}, which does not exist"
        if isinstance(given, Exception):
            return f"cannot be decided: {str(given).splitlines()[0].partition('. ')[0]}"
        return f"is {json_limits.show(given)}" + ("" if isinstance(given, bool) else ", no truth")

    def _execute(self, document: Any, budget: json_limits.Budget) -> Any:
        size = json_limits.measure(document)
        budget.spend(_CONVERSION_STEPS * size.work)
        if self._macros:
            rounds = max(size.longest, self._literals) ** self._nesting
            budget.spend(self._macros * rounds * (_MACRO_STEPS + size.work // 2))
        try:
            return self._program.execute({"object": document})
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            return error


def strip_literals(text: str) -> str:
    """Return an expression without comments and with all string literals empty."""
    return _TEXT_OR_COMMENT.sub('""', text)


def find_macros(bare_text: str) -> tuple[list[tuple[str, str]], int]:
    """Return the macros of a stripped expression, each with the variable that it binds, and
    their nesting depth."""
    found = list(_MACRO.finditer(bare_text))
    nesting = _call_nesting(bare_text, {macro.start(2) for macro in found})
    return [(macro[1], macro[3]) for macro in found], nesting


def _measure_macros(text: str, variables: list[str]) -> tuple[int, int, int]:
    """Return the number of macros, their nesting depth, and the maximum length of a literal list.

    Raises CelError for an expression whose work these numbers do not bound, and for unknown names.
    `variables`: all names that the library finds, including those that macros bind. A macro that is
    not recognised here is refused too, since the name that it binds is then unknown.
    """
    emptied = strip_literals(text)
    found = list(_MACRO.finditer(emptied))
    unknown = sorted({*variables} - {"object"} - {macro[3] for macro in found})
    if unknown:
        raise CelError(
            f"names {', '.join(unknown)}; the only variable is object, as in object.status"
        )
    if any(macro[1] == "map" for macro in found):
        raise CelError("calls map(); of the macros, rules may use all, exists, exists_one, filter")
    calls = len(re.findall(r"\bmatches\s*\(", emptied))
    if found and (calls or "+" in emptied):
        raise CelError(
            f"has {'matches()' if calls else '+'} beside {found[0][1]}(); use one of them"
        )
    if calls > MAX_MATCHES:
        raise CelError(f"calls matches() {calls} times; {MAX_MATCHES} are allowed")
    nesting = _call_nesting(emptied, {macro.start(2) for macro in found})
    if nesting > MAX_NESTING:
        raise CelError(f"has macros {nesting} deep in each other; {MAX_NESTING} are allowed")
    return len(found), nesting, emptied.count(",") + 1


def _call_nesting(text: str, calls: set[int]) -> int:
    """Return the nesting depth of the calls whose parentheses open at these positions."""
    open_calls: list[bool] = []
    deepest = 0
    for position, char in enumerate(text):
        if char == "(":
            open_calls.append(position in calls)
            deepest = max(deepest, sum(open_calls))
        elif char == ")" and open_calls:
            open_calls.pop()
    return deepest
