"""Expressions in a SyncSet's flow, written with Python's operators: `total.value.breaches > 0`.

Used by `sync_sets` and the other `set_` modules. An expression has no value in this program: it
becomes a text `${ … }` in CEL, which the server evaluates while the flow runs
(`api.flow_expressions`). So operations whose result Python needs at once, such as the truth of `if
x > 0`, raise an error. No I/O.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

import msgspec

_MEMBER = re.compile(r"[A-Za-z_]\w*")


class Named(Protocol):
    """An object that has a name in expressions; the name may be chosen later."""

    @property
    def name(self) -> str:
        """The current name of the object."""
        ...


Part = str | Named
"""A part of the text of an expression."""


class Expression:
    """An expression in a flow: the value of a step or parameter, or a value computed from others.

    The expression has a value only when the flow runs. Members are attributes, `total.value.sum`,
    or items, `total.value["a sum"]`. An expression supports the operators `+ - * / %`, `== != < <=
    > >=`, and `& | ~` for and, or and not.
    """

    __slots__ = ("_atom", "_parts")

    def __init__(self, *parts: Part, atom: bool = True) -> None:
        """Make an expression of its parts. `atom`: it needs no parentheses next to an operator."""
        self._parts = parts
        self._atom = atom

    def __getattr__(self, name: str) -> "Expression":
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: "str | int | Expression") -> "Expression":
        if isinstance(key, str) and _MEMBER.fullmatch(key):
            return Expression(*_operand(self), f".{key}")
        return Expression(*_operand(self), "[", *_operand(key), "]")

    def __neg__(self) -> "Expression":
        return Expression("-", *_operand(self), atom=False)

    def __invert__(self) -> "Expression":
        return Expression("!", *_operand(self), atom=False)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"${{ {text(self)} }} has no truth before the flow runs: decide with ss.when(…), join "
            "conditions by & | and ~, and put each into brackets"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"${{ {text(self)} }} has no items before the flow runs: ss.each(it, function) calls a "
            "function for each"
        )

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError(
            f'${{ {text(self)} }} has no items before the flow runs: write ss.expression("… in …")'
        )

    def __len__(self) -> NoReturn:
        raise TypeError(
            f"${{ {text(self)} }} has no length before the flow runs: write "
            'ss.expression("size(…)")'
        )

    def __str__(self) -> str:
        raise TypeError(
            f"${{ {text(self)} }} cannot become part of a text: give it to a step as an input"
        )

    def __repr__(self) -> str:
        return f"<Expression {text(self)}>"

    __hash__ = None  # type: ignore[assignment]  # `==` makes another expression

    def __add__(self, other: Any) -> "Expression":
        return _joined(self, "+", other)

    def __radd__(self, other: Any) -> "Expression":
        return _joined(other, "+", self)

    def __sub__(self, other: Any) -> "Expression":
        return _joined(self, "-", other)

    def __rsub__(self, other: Any) -> "Expression":
        return _joined(other, "-", self)

    def __mul__(self, other: Any) -> "Expression":
        return _joined(self, "*", other)

    def __rmul__(self, other: Any) -> "Expression":
        return _joined(other, "*", self)

    def __truediv__(self, other: Any) -> "Expression":
        return _joined(self, "/", other)

    def __rtruediv__(self, other: Any) -> "Expression":
        return _joined(other, "/", self)

    def __mod__(self, other: Any) -> "Expression":
        return _joined(self, "%", other)

    def __eq__(self, other: object) -> "Expression":  # type: ignore[override]
        return _joined(self, "==", other)

    def __ne__(self, other: object) -> "Expression":  # type: ignore[override]
        return _joined(self, "!=", other)

    def __lt__(self, other: Any) -> "Expression":
        return _joined(self, "<", other)

    def __le__(self, other: Any) -> "Expression":
        return _joined(self, "<=", other)

    def __gt__(self, other: Any) -> "Expression":
        return _joined(self, ">", other)

    def __ge__(self, other: Any) -> "Expression":
        return _joined(self, ">=", other)

    def __and__(self, other: Any) -> "Expression":
        return _joined(self, "&&", other)

    def __rand__(self, other: Any) -> "Expression":
        return _joined(other, "&&", self)

    def __or__(self, other: Any) -> "Expression":
        return _joined(self, "||", other)

    def __ror__(self, other: Any) -> "Expression":
        return _joined(other, "||", self)


def _joined(left: Any, operator: str, right: Any) -> Expression:
    return Expression(*_operand(left), f" {operator} ", *_operand(right), atom=False)


def _operand(value: Any) -> tuple[Part, ...]:
    """Return the parts of an operand; JSON values are written the same way in CEL."""
    if not isinstance(value, Expression):
        value = getattr(value, "as_expression", value)
    if isinstance(value, Expression):
        return value._parts if value._atom else ("(", *value._parts, ")")
    if isinstance(value, Mapping | list | tuple | str | int | float) or value is None:
        return (msgspec.json.encode(value).decode(),)
    raise TypeError(f"{value!r} cannot be part of an expression: it is no JSON")


def text(of: Expression) -> str:
    """Return the expression in CEL, with the current names."""
    return "".join(part if isinstance(part, str) else part.name for part in of._parts)


def written(value: Any, plain: Callable[[Any], Any]) -> Any:
    """Return an input as it is written in a manifest: expressions in it, at any depth, as `${ … }`.

    `plain`: converts any other value to JSON. Raises TypeError, and ValueError for a text that
    would be read as an expression.
    """
    if not isinstance(value, Expression):
        value = getattr(value, "as_expression", value)
    if isinstance(value, Expression):
        return f"${{ {text(value)} }}"
    if isinstance(value, str) and "${" in value:
        raise ValueError(f'{value!r} has "${{": write an expression as ss.expression("…")')
    if isinstance(value, Mapping):
        return {key: written(each, plain) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [written(each, plain) for each in value]
    return plain(value)
