"""The codec of stored tasks: functions and column lists, generated once from a declaration.

Used by `task_rows`, whose `TaskRow` is the declaration: each of its fields is a column, and has a
`Column` that declares how its value is read from a record and set on a record. The functions are
compiled when `task_rows` is imported, so that no row is made by reflection.
"""

import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_LOCALS = re.compile(r"(?<![.\w])(arguments|parent|result|template|usage|worker)\b")


@dataclass(frozen=True, slots=True)
class Column:
    """Declares how one column of a task is stored.

    The expressions are Python. Expressions on `task` may use the names of its fields `arguments`,
    `parent`, `result`, `template`, `usage` and `worker` directly.
    """

    value: str = ""
    """Expression of the SQL value, from a record `task`; "": the field of the same name."""

    read: str = ""
    """Expression of the value that readers see, from a `row`; "": the SQL value."""

    changes: bool = False
    """Whether a run that is stored may get another value."""

    restored: bool | None = None
    """Whether the record's field of that name is restored from `read` after a restart; None: if
    `value` is that field.
    """

    new_call: object = ...
    """The value that is written for a new call: a constant; None: the default of the table; `...`:
    `value`.
    """

    unchanged: str | None = None
    """Condition on `task` under which a call in its first attempt still has the value that was
    first written, so that statements without this column may be used; "": always, or all statements
    write the column; None: while the field has its default.
    """

    select: str = ""
    """The SQL expression that reads the value; "": the column of `task t` with the same name."""

    stored: bool = True
    """Whether a statement about tasks writes the column."""

    calls_only: bool = False
    """Whether the column is null for a task that has a spec of its own."""

    name: str = ""
    """The name of the field."""


def columns(row: type) -> tuple[Column, ...]:
    """Return the columns of a `NamedTuple`, in order.

    The fields of the `NamedTuple` may be annotated with a `Column`.
    """
    return tuple(
        _named(name, next(iter(getattr(hint, "__metadata__", ())), Column()))
        for name, hint in typing.get_type_hints(row, include_extras=True).items()
    )


def _named(name: str, column: Column) -> Column:
    value = column.value or f"task.{name}"
    return Column(
        name=name,
        value=value,
        read=column.read or f"row.{name}",
        changes=column.changes,
        restored=value == f"task.{name}" if column.restored is None else column.restored,
        new_call=column.new_call,
        unchanged=column.unchanged,
        select=column.select or f"t.{name}",
        stored=column.stored,
        calls_only=column.calls_only,
    )


def pick(declared: Iterable[Column], names: str) -> tuple[Column, ...]:
    """Return the columns with these names, in the order of the names."""
    # In the order of the values in a statement, which filtering would not keep.
    by_name = {column.name: column for column in declared}
    return tuple(by_name[name] for name in names.split())


def encoder(chosen: Iterable[Column], scope: Mapping[str, object]) -> Callable[[Any], Any]:
    """Return a function that makes the tuple of SQL values of a record.

    `scope`: the values of names that expressions use.
    """
    values = "".join(f"{column.value}, " for column in chosen)
    return _function("task", f"return ({values})", scope)


def row_maker(row: Any, declared: Iterable[Column], scope: Mapping[str, object]) -> Any:
    """Return a function that makes the whole row of a record.

    `row`: the `NamedTuple` of the columns.
    """
    values = "".join(f"{_of_any(column)}, " for column in declared)
    return _function("task", f"return row(({values}))", {**scope, "row": row._make})


def _of_any(column: Column) -> str:
    return (
        f"{column.value} if task.has_template_spec else None" if column.calls_only else column.value
    )


def restorer(declared: Iterable[Column], scope: Mapping[str, object]) -> Callable[[Any, Any], None]:
    """Return a function `restore(task, row)` that sets the `restored` columns on a record."""
    lines = [f"task.{column.name} = {column.read}" for column in declared if column.restored]
    return _function("task, row", "\n    ".join(lines), scope)


def viewer(
    declared: Iterable[Column], view: type, given: Iterable[str], scope: Mapping[str, object]
) -> Callable[..., Any]:
    """Return a function that makes a view of a row.

    The view's fields with the names of columns are taken from the row; the fields in `given` are
    keyword arguments.
    """
    names = set(typing.get_type_hints(view)).difference(given)
    fields = "".join(f"{one.name}={one.read}, " for one in declared if one.name in names)
    return _function("row, **given", f"return view({fields}**given)", {**scope, "view": view})


def unchanged_check(
    declared: Iterable[Column], record: type, scope: Mapping[str, object]
) -> Callable[[Any], bool]:
    """Return a function that tells whether the changeable columns of a new call are still as first
    written.
    """
    # Only its defaults are read, so required fields may be None.
    initial = record(**dict.fromkeys(_required(record)))
    # A dict, not a set: each condition once, in the order of the columns.
    conditions = dict.fromkeys(
        f"task.{column.name} == {getattr(initial, column.name)!r}"
        if column.unchanged is None
        else column.unchanged
        for column in declared
        if column.changes and column.unchanged != ""
    )
    return _function("task", f"return {' and '.join(conditions)}", scope)


def _required(record: Any) -> Iterable[str]:
    fields: tuple[str, ...] = record.__struct_fields__
    return fields[: len(fields) - len(record.__struct_defaults__)]


def _function(parameters: str, body: str, scope: Mapping[str, object]) -> Callable[..., Any]:
    used = sorted(set(_LOCALS.findall(body))) if parameters == "task" else []
    lines = [f"{name} = task.{name}" for name in used] + [body]
    source = f"def made({parameters}):\n    " + "\n    ".join(lines)
    # A copy: `exec` adds names of its own.
    space: dict[str, Any] = dict(scope)
    exec(source, space)  # noqa: S102 - of the declaration alone, as dataclasses do
    made: Callable[..., Any] = space["made"]
    return made
