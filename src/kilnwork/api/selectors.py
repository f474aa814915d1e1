"""Label and field selectors: parsed once, matched often.

Used by the API server for lists and watches and by the client. Grammar and texts follow
k8s.io/apimachinery/pkg/labels and pkg/fields. Not for node affinity.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kilnwork.api import names
from kilnwork.kit import errors

_TOKEN = re.compile(r"\s*(==|!=|=|!|\(|\)|,|<|>|[^\s=!(),<>]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})


class SelectorError(errors.KilnError):
    """The selector cannot be read; the message says where."""


class Requirement(msgspec.Struct, frozen=True):
    """One term. `operator`: in, notin, exists, absent, gt, lt; `=` and `!=` are in and notin."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True when `labels` meet this term; a missing key meets `notin`, as in Kubernetes."""
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
    """All terms must hold; no term matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """True when every term holds for `labels`."""
        return all(term.matches(labels or {}) for term in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


class FieldTerm(msgspec.Struct, frozen=True):
    """`path` equals (or, with `negated`, does not equal) `value`."""

    path: str
    value: str
    negated: bool = False


class FieldSelector(msgspec.Struct, frozen=True):
    """All terms must hold; a path that is missing in the object reads as the empty string."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """True when every term holds for the raw object."""
        return all((text_at(obj, t.path) == t.value) != t.negated for t in self.terms)

    def exact(self, path: str) -> str | None:
        """The value that `path` must have, if the selector says so: the fast way to one object."""
        return next((t.value for t in self.terms if t.path == path and not t.negated), None)

    def __bool__(self) -> bool:
        return bool(self.terms)


EVERYTHING = LabelSelector()
EVERY_FIELD = FieldSelector()


def text_at(obj: Mapping[str, Any], path: str) -> str:
    """The value at a dotted path as a selector sees it: `true`/`false`, digits, or the text."""
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_labels(text: str) -> LabelSelector:
    """`a=b,c!=d,e in (x,y),f notin (z),g,!h`; raises SelectorError."""
    if not text.strip():
        return EVERYTHING
    return LabelSelector(tuple(_Parser(text).requirements()))


def parse_fields(text: str) -> FieldSelector:
    """`metadata.name=x,status.phase!=Running`; raises SelectorError."""
    terms = []
    for part in _split_fields(text):
        path, mark, value = _cut_field(part)
        if not mark:
            raise SelectorError(
                f"invalid selector: '{text}'; can't understand '{part}'",
            )
        terms.append(FieldTerm(path, _unescape(value), mark == "!="))
    return FieldSelector(tuple(terms)) if terms else EVERY_FIELD


def _split_fields(text: str) -> list[str]:
    return [part for part in re.split(r"(?<!\\),", text) if part.strip()]


def _cut_field(part: str) -> tuple[str, str, str]:
    found = re.search(r"!=|==|=", part)
    if found is None:
        return part, "", ""
    return part[: found.start()].strip(), found.group(), part[found.end() :].strip()


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", text)


class _Parser:
    """Recursive descent over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._position = 0

    def requirements(self) -> list[Requirement]:
        terms = [self._requirement()]
        while self._peek() == ",":
            self._next()
            terms.append(self._requirement())
        if self._peek():
            raise self._wrong(self._peek(), "',' or the end")
        return terms

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _wrong(self, found: str, expected: str) -> SelectorError:
        return SelectorError(
            f"unable to parse requirement: found '{found}', expected: {expected}",
        )

    def _key(self) -> str:
        key = self._next()
        if not key or key in _SYMBOLS:
            raise self._wrong(key, "identifier")
        problem = names.qualified_problem(key)
        if problem is not None:
            raise SelectorError(
                f'unable to parse requirement: <nil>: Invalid value: "{key}": {problem}'
            )
        return key

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), "absent")
        key, operator = self._key(), self._peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self._next()
        if operator in ("=", "=="):
            return Requirement(key, "in", (self._value(key),))
        if operator == "!=":
            return Requirement(key, "notin", (self._value(key),))
        if operator in ("in", "notin"):
            return Requirement(key, operator, self._values(key))
        if operator in (">", "<"):
            return Requirement(key, "gt" if operator == ">" else "lt", (self._number(key),))
        raise self._wrong(operator, "in, notin, =, ==, !=, gt, lt")

    def _value(self, key: str) -> str:
        value = "" if self._peek() in ("", ",", ")") else self._next()
        if value in _SYMBOLS:
            raise self._wrong(value, "identifier")
        problem = names.label_value_problem(value)
        if problem is not None:
            raise SelectorError(
                "unable to parse requirement: values[0][" + key + "]: "
                f'Invalid value: "{value}": {problem}'
            )
        return value

    def _number(self, key: str) -> str:
        value = self._value(key)
        if not re.fullmatch("-?[0-9]+", value):
            raise SelectorError(
                f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            )
        return value

    def _values(self, key: str) -> tuple[str, ...]:
        if self._next() != "(":
            raise self._wrong(key, "'('")
        values = [self._value(key)]
        while self._peek() == ",":
            self._next()
            values.append(self._value(key))
        closing = self._next()
        if closing != ")":
            raise self._wrong(closing, "',' or ')'")
        return tuple(values)
