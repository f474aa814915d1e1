"""Label and field selectors: parsed once, matched often.

Used by the API server for lists and watches, and by the command line. Grammar and texts follow
k8s.io/apimachinery/pkg/labels and pkg/fields. `node_fit` uses `Requirement` for the expressions of
node affinity.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.api import names
from kilnwork.kit import errors

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|=|!|\(|\)|,|<|>|[^ \t\r\n=!(),<>]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">", ""})
"""Tokens other than identifiers; the empty string is the end."""
_BINARY = ("in", "notin", "=", "==", "!=", "gt", "lt")
_INT64_DIGITS = 19


class SelectorError(errors.KilnError):
    """The selector cannot be parsed; the message gives the position."""


class Requirement(msgspec.Struct, frozen=True):
    """One term. `operator`: in, notin, exists, absent, gt or lt; `=` and `!=` are parsed as in
    and notin."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` match this term; a missing key matches `notin`, as in
        Kubernetes."""
        value = labels.get(self.key)
        if self.operator == "exists":
            return value is not None
        if self.operator == "absent":
            return value is None
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        try:
            left, right = int(value), int(self.values[0])
        except ValueError:
            return False
        return left > right if self.operator == "gt" else left < right


class LabelSelector(msgspec.Struct, frozen=True):
    """A conjunction of terms; a selector without terms matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether `labels` match all terms."""
        return all(term.matches(labels or {}) for term in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


class FieldTerm(msgspec.Struct, frozen=True):
    """A term: the value at `path` must equal `value` or, with `negated`, must not equal it."""

    path: str
    value: str
    negated: bool = False


class FieldSelector(msgspec.Struct, frozen=True):
    """A conjunction of terms; a missing path in the object counts as the empty string."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the raw object matches all terms."""
        return all((text_at(obj, t.path) == t.value) != t.negated for t in self.terms)

    def exact(self, path: str) -> str | None:
        """Return the value that the selector requires at `path`, or None: a fast way to find a
        single object."""
        return next((t.value for t in self.terms if t.path == path and not t.negated), None)

    def __bool__(self) -> bool:
        return bool(self.terms)


EVERYTHING = LabelSelector()
EVERY_FIELD = FieldSelector()


def text_at(obj: Mapping[str, Any], path: str) -> str:
    """Return the value at a dotted path as selectors see it: `true`/`false`, digits, or the
    text."""
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector such as `a=b,c!=d,e in (x,y),f notin (z),g,!h`; raises
    SelectorError."""
    if not text.strip():
        return EVERYTHING
    return LabelSelector(tuple(_Parser(text).requirements()))


def parse_fields(text: str) -> FieldSelector:
    """Parse a field selector such as `metadata.name=x,status.phase!=Running`; raises
    SelectorError."""
    terms = []
    for part in sorted(_split_fields(text)):
        found = re.search("!=|==|=", part)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        value = _unescape(part[found.end() :])
        terms.append(FieldTerm(part[: found.start()], value, found.group() == "!="))
    return FieldSelector(tuple(terms)) if terms else EVERY_FIELD


def _split_fields(text: str) -> list[str]:
    return [part for part in re.findall(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL) if part]


def _unescape(text: str) -> str:
    """Return the value without the backslashes that escape commas, equal signs and backslashes."""
    for found in re.finditer(r"\\(.?)|([,=])", text, re.DOTALL):
        if found[2]:
            raise SelectorError(
                f"invalid field selector: unescaped character in value: {ord(found[2])}"
            )
        if found[1] not in ("\\", ",", "="):
            raise SelectorError(f"invalid field selector: invalid escape sequence: {found[0]}")
    return re.sub(r"\\(.)", r"\1", text)


class _Parser:
    """Recursive-descent parser of label selectors, which follows Go's Parser step by step."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), ""]
        self._position = 0

    def requirements(self) -> list[Requirement]:
        terms: list[Requirement] = []
        while word := self._peek():
            if word in _SYMBOLS and word != "!":
                raise SelectorError(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                terms.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from error
            self._separator()
        return terms

    def _separator(self) -> None:
        word = self._next()
        if word not in ("", ","):
            raise _unexpected(word, "',' or 'end of string'")
        following = self._peek()
        if word and following in _SYMBOLS and following != "!":
            raise _unexpected(following, "identifier after ','")

    def _peek(self) -> str:
        return self._tokens[min(self._position, len(self._tokens) - 1)]

    def _next(self) -> str:
        word = self._peek()
        self._position += 1
        return word

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._next()
        if key in _SYMBOLS:
            raise _unexpected(key, "identifier")
        problem = names.qualified_problem(key)
        if problem is not None:
            raise SelectorError(f'<nil>: Invalid value: "{key}": {problem}')
        if absent:
            return Requirement(key, "absent")
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        return self._comparison(key, self._next())

    def _comparison(self, key: str, operator: str) -> Requirement:
        if operator in ("in", "notin"):
            return Requirement(key, operator, _checked(key, sorted(self._values())))
        names_ = {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}
        if operator not in names_:
            raise _unexpected(operator, ", ".join(_BINARY))
        value = "" if self._peek() in ("", ",") else self._next()
        if value and value in _SYMBOLS:
            raise _unexpected(value, "identifier")
        if operator in "<>":
            _check_number(value)
        return Requirement(key, names_[operator], _checked(key, [value]))

    def _values(self) -> set[str]:
        word = self._next()
        if word != "(":
            raise SelectorError(f"found '{word}' expected: '('")
        found: set[str] = set()
        while (word := self._next()) != ")":
            if word != "," and word in _SYMBOLS:
                raise _unexpected(word, "',', ')' or identifier")
            found.add("" if word == "," else word)
            if word != ",":
                self._after_value()
        return found or {""}

    def _after_value(self) -> None:
        """Skip a comma. At the end of the list it is kept, since an empty value follows it."""
        word = self._peek()
        if word not in (",", ")"):
            raise _unexpected(word, "',' or ')'")
        if word == "," and self._tokens[self._position + 1] != ")":
            self._next()


def _unexpected(found: str, expected: str) -> SelectorError:
    return SelectorError(f"found '{found}', expected: {expected}")


def _check_number(value: str) -> None:
    if not re.fullmatch("[+-]?[0-9]+", value) or len(value) > _INT64_DIGITS + 1:
        raise SelectorError(
            f'values[0]: Invalid value: "{value}": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )


def _checked(key: str, values: list[str]) -> tuple[str, ...]:
    for position, value in enumerate(values):
        problem = names.label_value_problem(value)
        if problem is not None:
            raise SelectorError(f'values[{position}][{key}]: Invalid value: "{value}": {problem}')
    return tuple(values)
