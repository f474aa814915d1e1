"""Conversion between the parameters of a job's function and the options of its JobConfig.

Used by `job_functions`; other modules use `plain` for values that become JSON. The annotation of a
parameter determines the type of the option; its default becomes the option's default (a date's
default stays that of the function), and a parameter without a default is a required option. A
worker passes JSON to the function: `Parameter.value` converts it to the annotated type. No I/O; the
other fields of a JobConfig are in `job_manifests`.
"""

import datetime
import enum
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kilnwork.api import job_config, job_variables
from kilnwork.sdk import errors

Type = job_config.OptionType

INDEX, KEY, MATRIX, ITEM = "index", "key", "matrix", "item"
"""Names of the parameters that get the index of a parallel job, and are then not options."""

_MISSING = inspect.Parameter.empty
_LISTS = (list, tuple, set, frozenset, Sequence, Collection)
_PLAIN = {bool: Type.BOOL, str: Type.STRING, int: Type.INT, float: Type.FLOAT}
_DELIMITERS = ",\n"
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a job's function that is an option of its JobConfig.

    `choices`: for Select and Multi, the value that the function gets for each text. `optional`:
    whether None is one of its values.
    """

    name: str
    type: Type
    annotation: Any = Any
    default: Any = _MISSING
    optional: bool = False
    choices: Mapping[str, Any] = field(default_factory=dict)

    @property
    def required(self) -> bool:
        """Whether a Job must give a value for the option."""
        return self.default is _MISSING and not self.optional

    @property
    def delimiter(self) -> str:
        """The delimiter that joins the texts of a Multi value; it occurs in none of the texts."""
        used = set().union(*self.choices)
        candidates = itertools.chain(_DELIMITERS, map(chr, itertools.count(ord("!"))))
        return next(char for char in candidates if char not in used)

    def option(self) -> dict[str, Any]:
        """Return the option as it is written in a JobConfig."""
        made: dict[str, Any] = {"type": str(self.type), "name": self.name}
        if self.required:
            made["required"] = True
        own: dict[str, Any] = {}
        if self.type in (Type.SELECT, Type.MULTI):
            own["values"] = list(self.choices)
        if self.type is Type.MULTI:
            own["delimiter"] = self.delimiter
        if self.default is not _MISSING and self.default is not None and self.type is not Type.DATE:
            own["default"] = self.encode(self.default)
        if own:
            made[str(self.type).lower()] = own
        return made

    def encode(self, value: Any) -> Any:
        """Return a value as it is written in `optionValues` of a Job.

        Raises TypeError, ValueError.
        """
        if value is None:
            return None
        if self.type is Type.SELECT:
            return self._text(value)
        if self.type is Type.MULTI:
            if isinstance(value, str):
                raise TypeError(f"must be a list of {self._listed()}, not {value!r}")
            return [self._text(each) for each in value]
        if self.type is Type.DATE:
            return _rfc3339(value)
        return plain(value)

    def value(self, given: Any) -> Any:
        """Return the argument that the function gets for a value of the option.

        Raises ValueError.
        """
        if given == "" and self.optional and self.type in (Type.STRING, Type.SELECT, Type.DATE):
            return None
        if self.type is Type.SELECT:
            return self.choices.get(given, given)
        if self.type is Type.MULTI:
            texts = given.split(self.delimiter) if given else []
            return _collected(self.annotation, [self.choices[self._text(text)] for text in texts])
        if self.type is Type.DATE:
            moment = datetime.datetime.fromisoformat(given)
            return moment.date() if self.annotation is datetime.date else moment
        if self.type is Type.JSON and given is not None:
            return self._converted(given)
        return given

    def is_left_out(self, given: Any) -> bool:
        """Return whether the option has no value, so that the function's own default applies."""
        return self.type is Type.DATE and given == "" and self.default is not _MISSING

    def _text(self, value: Any) -> str:
        for text, choice in self.choices.items():
            if type(value) is type(choice) and value == choice:
                return text
        if isinstance(value, str) and value in self.choices:
            return value
        raise ValueError(f"must be one of {self._listed()}, not {value!r}")

    def _listed(self) -> str:
        return ", ".join(repr(choice) for choice in self.choices.values())

    def _converted(self, given: Any) -> Any:
        if self.annotation is Any:
            return given
        try:
            return msgspec.convert(given, self.annotation)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        except TypeError:  # msgspec cannot convert to this type: the function gets JSON
            return given


def plain(value: Any) -> Any:
    """Return a value as JSON: tuples and sets as lists, members of enums as texts, dates as RFC
    3339 times.

    Raises TypeError, and ValueError for a datetime without a time zone.
    """
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str) else value.name
    if isinstance(value, datetime.date):
        return _rfc3339(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    built = msgspec.to_builtins(value)
    return plain(built) if isinstance(built, list | tuple | dict) else built


def of_function(
    function: Callable[..., Any], *, special: Collection[str], of: str
) -> tuple[Parameter, ...]:
    """Return the parameters of a function that are options: all except those in `special`.

    Raises BadOption. `of`: the name of the job, for error messages.
    """
    annotations = _annotations(function, of)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _BY_NAME:
            raise errors.BadOption(
                f"{of}: parameter {parameter}: a job gets its options by name, each a parameter of "
                "its own: name it, without * or /"
            )
        if name not in special:
            made = _parameter(name, annotations.get(name, Any), parameter.default)
            found.append(_checked(made, of))
    return tuple(found)


def _annotations(function: Callable[..., Any], of: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        raise errors.BadOption(
            f"{of}: an annotation cannot be read, and annotations choose the types of options: "
            f"{error}. Import what it names where the program runs too, not for type checkers only"
        ) from error


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    plain, optional = _without_none(annotation)
    optional = optional or default is None
    type_, choices = _type(plain)
    if type_ is Type.BOOL and optional:
        type_ = Type.JSON  # a Bool is never None
    return Parameter(name, type_, plain, default, optional, choices)


def _checked(made: Parameter, of: str) -> Parameter:
    if made.type is Type.BOOL and made.required:
        raise errors.BadOption(
            f"{of}: parameter {made.name!r} is a bool without a default, and an option that is not "
            f"given is false: write {made.name}: bool = False, or True"
        )
    if made.default is not _MISSING:
        try:
            made.encode(made.default)
        except (TypeError, ValueError) as error:
            raise errors.BadOption(
                f"{of}: the default of parameter {made.name!r}, {made.default!r}, cannot be that "
                f"of an option of type {made.type}: {error}"
            ) from error
    return made


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return the annotation without None, and whether it allowed None: `X | None` gives (X,
    True).
    """
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    arguments = typing.get_args(annotation)
    others = [one for one in arguments if one is not type(None)]
    if len(others) == 1 and len(arguments) == 2:
        return others[0], True
    return annotation, type(None) in arguments


def _type(annotation: Any) -> tuple[Type, dict[str, Any]]:
    """Return the type of the option for an annotation, and its choices."""
    if annotation in (datetime.datetime, datetime.date):
        return Type.DATE, {}
    if isinstance(annotation, type) and annotation in _PLAIN:
        return _PLAIN[annotation], {}
    if choices := _choices(annotation):
        return Type.SELECT, choices
    if typing.get_origin(annotation) in _LISTS:
        items = [one for one in typing.get_args(annotation) if one is not Ellipsis]
        if len(items) == 1 and (choices := _choices(items[0])):
            return Type.MULTI, choices
    return Type.JSON, {}


def _choices(annotation: Any) -> dict[str, Any]:
    """Return the choices of a Literal or an Enum by their texts; empty for any other annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        return {str(one): one for one in typing.get_args(annotation)}
    if not (isinstance(annotation, type) and issubclass(annotation, enum.Enum)):
        return {}
    if all(isinstance(member.value, str) and member.value for member in annotation):
        return {str(member.value): member for member in annotation}
    return {member.name: member for member in annotation}


def _collected(annotation: Any, values: list[Any]) -> Any:
    """Return a list of choices as the collection that the annotation names."""
    origin = typing.get_origin(annotation)
    return origin(values) if origin in (tuple, set, frozenset) else values


def _rfc3339(value: Any) -> str:
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone: give one, such as tzinfo=UTC")
        return value.isoformat()
    if isinstance(value, datetime.date):
        return f"{value.isoformat()}T00:00:00Z"
    raise TypeError(f"must be a date or a datetime, not {value!r}")


def variables(
    names: Collection[str], special: Collection[str], matrix: Collection[str]
) -> dict[str, Any]:
    """Return the variables of a Job that are passed to parameters of these names.

    `matrix`: the keys of a matrix, if it has one.
    """
    of_index: dict[str, Any] = {
        INDEX: _reference(job_variables.INDEX_NUM),
        KEY: _reference(job_variables.INDEX_KEY),
        ITEM: _reference(job_variables.INDEX_ITEM),
        MATRIX: {
            one: _reference(f"{job_variables.INDEX_MATRIX_PREFIX}{one}") for one in sorted(matrix)
        },
    }
    return {
        name: of_index[name] if name in special else _reference(job_variables.OPTION_PREFIX + name)
        for name in names
    }


def _reference(name: str) -> str:
    return f"${{{name}}}"
