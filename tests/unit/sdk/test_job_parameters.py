"""Parameters of a job's function: which options they become, and what the function gets."""

import datetime
import enum
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

import kilnwork as kiln
from kilnwork.api import job_config, job_config_options
from kilnwork.sdk import job_parameters


class City(enum.Enum):
    OSLO = "oslo"
    LIMA = "lima"


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


UTC = datetime.UTC
DAY = datetime.date(2026, 1, 2)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def parameters(function: Callable[..., Any]) -> tuple[job_parameters.Parameter, ...]:
    return job_parameters.of_function(function, special=(), of="here")


def option(function: Callable[..., Any]) -> dict[str, Any]:
    (found,) = parameters(function)
    return found.option()


def with_default(annotation: Any, default: Any = ...) -> Callable[..., Any]:
    """A function of one parameter `x`."""

    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": annotation}
    if default is not ...:
        function.__defaults__ = (default,)
    return function


@pytest.mark.parametrize(
    ("annotation", "default", "wanted"),
    [
        (str, ..., {"type": "String", "required": True}),
        (str, "a", {"type": "String", "string": {"default": "a"}}),
        (int, 3, {"type": "Int", "int": {"default": 3}}),
        (float, ..., {"type": "Float", "required": True}),
        (bool, True, {"type": "Bool", "bool": {"default": True}}),
        (Literal["a", "b"], ..., {"type": "Select", "required": True,
                                  "select": {"values": ["a", "b"]}}),
        (City, City.LIMA, {"type": "Select",
                           "select": {"values": ["oslo", "lima"], "default": "lima"}}),
        (Size, Size.SMALL, {"type": "Select",
                            "select": {"values": ["SMALL", "LARGE"], "default": "SMALL"}}),
        (list[Literal["a", "b"]], ["b"], {
            "type": "Multi", "multi": {"values": ["a", "b"], "default": ["b"], "delimiter": ","},
        }),
        (datetime.date, ..., {"type": "Date", "required": True}),
        (datetime.datetime | None, None, {"type": "Date"}),
        (dict[str, int], {"a": 1}, {"type": "JSON", "json": {"default": {"a": 1}}}),
        (Any, ..., {"type": "JSON", "required": True}),
        (int | None, ..., {"type": "Int"}),
        (bool | None, None, {"type": "JSON"}),
        (int | str, 1, {"type": "JSON", "json": {"default": 1}}),
    ],
)  # fmt: skip
def test_annotation_chooses_the_option(
    annotation: Any, default: Any, wanted: dict[str, Any]
) -> None:
    assert option(with_default(annotation, default)) == {"name": "x", **wanted}


def through(annotation: Any, value: Any, default: Any = ...) -> Any:
    """What the function gets in a worker for a value that was submitted, by way of the Job; {} if
    it gets none."""
    (found,) = parameters(with_default(annotation, default))
    form = msgspec.convert({"options": [found.option()]}, job_config.Options)
    assert list(job_config_options.problems(form)) == []
    evaluated = job_config_options.evaluate(
        form, {} if value is ... else {"x": found.encode(value)}
    )
    given = evaluated["option.x"]
    return {} if found.is_left_out(given) else {"x": found.value(given)}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "a ${b}"),
        (int, 3),
        (float, 1.5),
        (bool, True),
        (Literal["a", "b"], "b"),
        (Literal[1, 2], 2),
        (City, City.LIMA),
        (Size, Size.LARGE),
        (list[Literal["a", "b"]], ["b", "a"]),
        (tuple[City, ...], (City.LIMA,)),
        (set[Literal["a,b", "c"]], {"a,b", "c"}),
        (list[Literal["a,b", "c\nd!"]], ["c\nd!", "a,b"]),
        (datetime.date, DAY),
        (datetime.datetime, MOMENT),
        (dict[str, int], {"a": 1}),
        (list[int], [1, 2]),
        (tuple[int, str], (1, "a")),
    ],
)
def test_value_arrives_unchanged(annotation: Any, value: Any) -> None:
    default = False if annotation is bool else ...
    assert through(annotation, value, default) == {"x": value}


@pytest.mark.parametrize(
    ("annotation", "default", "wanted"),
    [
        (str, "a", {"x": "a"}),
        (str | None, None, {"x": None}),
        (int | None, None, {"x": None}),
        (City, City.LIMA, {"x": City.LIMA}),
        (list[City], [City.LIMA], {"x": [City.LIMA]}),
        (list[City] | None, None, {"x": []}),
        (datetime.date | None, None, {}),
        (datetime.date, DAY, {}),
    ],
)
def test_default_applies_where_nothing_is_given(
    annotation: Any, default: Any, wanted: dict[str, Any]
) -> None:
    assert through(annotation, ..., default) == wanted


@pytest.mark.parametrize(
    ("annotation", "default", "words"),
    [
        (bool, ..., "x: bool = False"),
        (City, "paris", "must be one of"),
        (datetime.datetime, datetime.datetime(2026, 1, 1), "no time zone"),
        ("Missing", ..., "Missing"),
    ],
)
def test_parameter_that_cannot_be_an_option_is_refused(
    annotation: Any, default: Any, words: str
) -> None:
    with pytest.raises(kiln.BadOption, match=words):
        parameters(with_default(annotation, default))


def test_options_have_names() -> None:
    with pytest.raises(kiln.BadOption, match=r"\*rest"):
        parameters(lambda *rest: None)


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (City, "paris", "must be one of"),
        (list[City], "oslo", "must be a list"),
        (datetime.date, 3, "must be a date"),
        (datetime.datetime, datetime.datetime(2026, 1, 1), "time zone"),
    ],
)
def test_bad_value_is_named(annotation: Any, value: Any, words: str) -> None:
    (found,) = parameters(with_default(annotation))
    with pytest.raises((TypeError, ValueError), match=words):
        found.encode(value)


def test_unknown_choice_fails_in_the_worker() -> None:
    (found,) = parameters(with_default(list[Literal["a", "b"]]))
    with pytest.raises(ValueError, match="must be one of 'a', 'b', not 'c'"):
        found.value("a,c")


def test_value_against_the_annotation_fails_in_the_worker() -> None:
    (found,) = parameters(with_default(dict[str, int]))
    with pytest.raises(ValueError, match="int"):
        found.value({"a": "b"})
