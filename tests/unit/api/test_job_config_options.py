"""Options of JobConfigs: invalid definitions, evaluated values, and refused values."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import job_config, job_config_options

GREET: list[dict[str, Any]] = [
    {"type": "String", "name": "user-name", "required": True, "string": {"trimSpaces": True}},
    {"type": "Select", "name": "tone", "select": {"default": "kind", "values": ["kind", "dry"]}},
    {
        "type": "Bool",
        "name": "shout",
        "bool": {"format": "Custom", "trueVal": "-s", "falseVal": ""},
    },
    {"type": "Multi", "name": "topics", "multi": {"delimiter": ",", "values": ["tea", "trains"]}},
    {"type": "Date", "name": "day", "date": {"format": "YYYY-MM-DD"}},
]


def made(*listed: dict[str, Any]) -> job_config.Options:
    return msgspec.convert({"options": list(listed)}, job_config.Options)


def of_type(type_: str, *, required: bool = False, **config: Any) -> job_config.Options:
    """Return options with one option `x` of a type."""
    option: dict[str, Any] = {"type": type_, "name": "x", "required": required}
    return made({**option, **({type_.lower(): config} if config else {})})


def value(given: job_config.Options, *x: Any) -> Any:
    """Return the evaluated value of `x`, given or not."""
    return job_config_options.evaluate(given, {"x": x[0]} if x else {})["option.x"]


def refused(given: job_config.Options, *x: Any) -> str:
    with pytest.raises(job_config_options.InvalidOptions) as error:
        value(given, *x)
    ((field, problem),) = error.value.problems
    assert field == "spec.optionValues.x"
    return problem


def test_values_of_example_options_are_evaluated() -> None:
    text = (
        "user-name: ' Ada '\nshout: true\ntopics: [tea, trains]\nday: 2026-03-05T23:00:00-05:00\n"
    )
    assert list(job_config_options.problems(made(*GREET))) == []
    assert job_config_options.evaluate(made(*GREET), text) == {
        "option.user-name": "Ada",
        "option.tone": "kind",
        "option.shout": "-s",
        "option.topics": "tea,trains",
        "option.day": "2026-03-05",
    }


TAKEN: list[tuple[job_config.Options, tuple[Any, ...], Any]] = [
    (of_type("Bool"), (), False),
    (of_type("Bool"), (None,), False),
    (of_type("Bool", default=True), (), True),
    (of_type("Bool", default=True), (False,), False),
    (of_type("Bool", format="OneZero"), (True,), "1"),
    (of_type("Bool", format="OneZero"), (False,), "0"),
    (of_type("Bool", format="YesNo"), (True,), "yes"),
    (of_type("Bool", format="YesNo"), (), "no"),
    (of_type("Bool", format="Custom", trueVal="-v", falseVal=""), (False,), ""),
    (of_type("String"), (), ""),
    (of_type("String", default="d"), (), "d"),
    (of_type("String", default="d"), ("",), ""),
    (of_type("String"), (" a ",), " a "),
    (of_type("String", trimSpaces=True), (" a\n",), "a"),
    (of_type("String", required=True, default="d"), (), "d"),
    (of_type("Select", values=["a", "b"], default="b"), (), "b"),
    (of_type("Select", values=["a", "b"], default="b"), ("",), ""),
    (of_type("Select", values=["a", "b"]), ("a",), "a"),
    (of_type("Select", values=["a"], allowCustom=True), ("other",), "other"),
    (of_type("Multi", values=["a", "b"], default=["b"], delimiter="+"), ([],), "b"),
    (of_type("Multi", values=["a", "b"], default=["b"], delimiter="+"), (), "b"),
    (of_type("Multi", values=["a", "b"], delimiter=", "), (["b", "a", "b"],), "b, a, b"),
    (of_type("Multi", values=["a"], allowCustom=True, delimiter=" "), (["x", "y"],), "x y"),
    (of_type("Date"), (), ""),
    (of_type("Date"), ("2026-01-02T03:04:05+09:00",), "2026-01-02T03:04:05+09:00"),
    (of_type("Date", format="HH:mm Z"), ("2026-01-02T03:04:05+09:00",), "03:04 +09:00"),
    (of_type("Int"), (), None),
    (of_type("Int", default=7), (), 7),
    (of_type("Int", minimum=-1, maximum=1), (-1,), -1),
    (of_type("Int"), (3.0,), 3),
    (of_type("Float"), (3,), 3.0),
    (of_type("Float", default=0.5), (), 0.5),
    (of_type("JSON"), ({"a": [1, None, "${job.uid}"]},), {"a": [1, None, "${job.uid}"]}),
    (of_type("JSON", default=[1]), (), [1]),
    (of_type("JSON"), (False,), False),
]


@pytest.mark.parametrize(("given", "x", "result"), TAKEN)
def test_value_of_an_option(given: job_config.Options, x: tuple[Any, ...], result: Any) -> None:
    assert list(job_config_options.problems(given)) == []
    evaluated = value(given, *x)
    assert (evaluated, type(evaluated)) == (result, type(result))


REFUSED: list[tuple[job_config.Options, tuple[Any, ...], str]] = [
    (of_type("Bool"), ("true",), 'must be true or false, not "true"'),
    (of_type("Bool"), (1,), "must be true or false, not 1"),
    (of_type("String"), (5,), "must be a text, not 5 (in YAML, put it into quotes)"),
    (of_type("String"), (True,), "must be a text, not true (in YAML, put it into quotes)"),
    (of_type("String"), (["a"],), "must be a text, not a list of 1"),
    (of_type("String", required=True), (), "is needed: give a text that is not empty"),
    (of_type("String", required=True, trimSpaces=True), ("  ",), "is needed: give a text"),
    (of_type("Select", values=["blue", "red"]), ("bleu",), 'not "bleu"; did you mean "blue"?'),
    (of_type("Select", values=["a", "b"], required=True), ("",), 'choose one of "a", "b"'),
    (of_type("Select", values=["1"]), (1,), "must be a text, not 1"),
    (of_type("Multi", values=["a"]), ("a",), 'must be a list of texts, not "a"'),
    (of_type("Multi", values=["a"]), (["a", "c"],), 'an item that must be one of "a", not "c"'),
    (of_type("Multi", values=["a"], allowCustom=True), ([""],), "has an item that is empty"),
    (of_type("Multi", values=["a"]), ([1],), "has an item that must be a text, not 1"),
    (of_type("Multi", values=["a"], required=True), ([],), 'choose at least one of "a"'),
    (of_type("Date"), ("2026-01-02",), "such as 2026-01-02T03:04:05Z or 2026-01-02T03:04:05+01:00"),
    (of_type("Date"), (5,), "must be a text, not 5"),
    (of_type("Date", required=True), ("",), "is needed: give a time in RFC 3339"),
    (of_type("Int"), ("3",), 'must be a whole number, not "3"'),
    (of_type("Int"), (True,), "must be a whole number, not true"),
    (of_type("Int"), (3.5,), "must be a whole number, not 3.5"),
    (of_type("Int"), (2**63,), "must fit into 64 bits"),
    (of_type("Int", minimum=2), (1,), "must be at least 2, not 1"),
    (of_type("Int", maximum=2), (3,), "must be at most 2, not 3"),
    (of_type("Int", required=True), (), "is needed: give a number"),
    (of_type("Float"), ("0.5",), 'must be a number, not "0.5"'),
    (of_type("Float"), (float("nan"),), "has the number nan, which cannot be written as JSON"),
    (of_type("Float"), (10**400,), "must be a number that a double can hold"),
    (of_type("Float", maximum=0.5), (0.75,), "must be at most 0.5, not 0.75"),
    (of_type("JSON", required=True), (None,), "is needed: give any JSON but null"),
    (of_type("JSON"), ({"a": "\ud800"},), "has half of a surrogate pair"),
]


@pytest.mark.parametrize(("given", "x", "problem"), REFUSED)
def test_invalid_value_is_refused(
    given: job_config.Options, x: tuple[Any, ...], problem: str
) -> None:
    assert list(job_config_options.problems(given)) == []
    assert problem in refused(given, *x)


def test_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(job_config_options.InvalidOptions) as error:
        job_config_options.evaluate(made(*GREET), {"username": "Ada", "zzz": 1, "user-name": "Ada"})
    known = "known are day, shout, tone, topics, user-name"
    assert error.value.problems == (
        ("spec.optionValues.username", f"is no option; did you mean user-name? {known}"),
        ("spec.optionValues.zzz", f"is no option; {known}"),
    )


def test_values_of_a_jobconfig_without_options_are_refused() -> None:
    with pytest.raises(
        job_config_options.InvalidOptions, match=r"optionValues\.x is no option: the JobConfig"
    ):
        job_config_options.evaluate(None, {"x": 1})
    assert job_config_options.evaluate(None, None) == {}


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(job_config_options.InvalidOptions) as error:
        job_config_options.evaluate(made(*GREET), {"nope": 1, "tone": "rude", "shout": "yes"})
    fields = [field.removeprefix("spec.optionValues.") for field, _ in error.value.problems]
    assert fields == ["nope", "user-name", "tone", "shout"]
    for field, problem in error.value.problems:
        assert f"{field} {problem}" in str(error.value)


def test_substitution_takes_precedence_and_needs_no_value() -> None:
    given = of_type("String", required=True)
    substitutions = {"option.x": "s"}
    assert job_config_options.evaluate(given, {}, substitutions=substitutions) == {"option.x": "s"}
    assert job_config_options.evaluate(given, {"x": "v"}, substitutions=substitutions) == {
        "option.x": "s"
    }
    with pytest.raises(job_config_options.InvalidOptions, match="must be a text, not 5"):
        job_config_options.evaluate(given, {"x": 5}, substitutions=substitutions)


@given(some.text())
def test_value_is_not_parsed_for_variables(text: str) -> None:
    assert value(of_type("String"), text + "${job.uid}$${task.name}") == (
        text + "${job.uid}$${task.name}"
    )


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("  \n", {}),
        ("null", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ('{\n\t"a": "b"\n}', {"a": "b"}),
        ("a: 1\nb: [x, '2']\n", {"a": 1, "b": ["x", "2"]}),
        ("day: 2026-01-02T00:00:00Z", {"day": "2026-01-02T00:00:00Z"}),
        ("{a: b}", {"a": "b"}),
    ],
)
def test_values_may_be_text_in_json_or_yaml(text: str, values: dict[str, Any]) -> None:
    assert job_config_options.parse_values(text) == values


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ('{"a": 1, "a": 2}', "spec.optionValues is no object: key 'a' is already set"),
        ("a: 1\na: 2\n", "key 'a' is already set in this mapping"),
        ('{"x": {"a": 1, "a": 2}}', "key 'a' is already set"),
        ("a: [", "is neither JSON nor YAML"),
        ("a: 1\n---\nb: 2\n", "must be one document of YAML; it has 2"),
        ("user", "must be an object of values by the names of options, or its text in JSON or"),
        ([1], "not a list of 1"),
        ("[" * 100_000, "spec.optionValues"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n" * 1, ""),
        ("x: .inf", "spec.optionValues.x has the number inf"),
        ('{"x": NaN}', "spec.optionValues.x has the number nan"),
        ("x: !!binary aGVsbG8=", "spec.optionValues.x has a bytes"),
    ],
)
def test_values_other_than_a_json_object_are_refused(given: Any, problem: str) -> None:
    if not problem:
        assert job_config_options.parse_values(given) == {
            "a": ["x", "x"],
            "b": [["x", "x"], ["x", "x"]],
        }
        return
    with pytest.raises(job_config_options.InvalidOptions) as error:
        job_config_options.parse_values(given)
    assert problem in str(error.value)


def test_expanded_yaml_aliases_are_limited() -> None:
    tens = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *tens]
    with pytest.raises(job_config_options.InvalidOptions, match="has more than"):
        job_config_options.parse_values("\n".join(lines))


PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"type": "Bool", "string": {}},
        "string",
        "is for an option of type String, and this one has type Bool; leave it out",
    ),
    ({"type": "String", "bool": {}, "string": {}}, "bool", "is for an option of type Bool"),
    ({"type": "Bool", "required": True}, "required", "must be false for type Bool"),
    ({"type": "Bool", "bool": {"format": "Custom"}}, "bool", 'that differ; both are ""'),
    ({"type": "Select"}, "select.values", "must have at least one value"),
    (
        {"type": "Select", "select": {"values": ["a"], "default": "b", "allowCustom": True}},
        "select.default",
        'must be one of "a", not "b"',
    ),
    ({"type": "Select", "select": {"values": ["a", ""]}}, "select.values[1]", "must not be empty"),
    (
        {"type": "Multi", "multi": {"values": ["a"], "default": ["a", "b"]}},
        "multi.default[1]",
        'must be one of "a", not "b"',
    ),
    ({"type": "Date", "date": {"format": "%Y"}}, "date.format", "has %, as in strftime"),
    ({"type": "Int", "int": {"minimum": 3, "maximum": 2}}, "int.minimum", "above maximum, which"),
    ({"type": "Int", "int": {"minimum": 3, "default": 2}}, "int.default", "must be at least 3"),
    ({"type": "Float", "float": {"maximum": 1, "default": 2}}, "float.default", "at most 1"),
]


@pytest.mark.parametrize(("option", "field", "problem"), PROBLEMS)
def test_invalid_option_is_refused(option: dict[str, Any], field: str, problem: str) -> None:
    ((at, found),) = job_config_options.problems(made({"name": "x", **option}))
    assert at == f"spec.option.options[0].{field}"
    assert problem in found


def test_duplicate_option_name_is_refused() -> None:
    given = made({"type": "Int", "name": "x"}, {"type": "Date", "name": "x"})
    assert list(job_config_options.problems(given, "o")) == [
        ("o.options[1].name", "is 'x', as options[0] is called; rename one")
    ]


def test_no_options_have_no_problems() -> None:
    assert list(job_config_options.problems(None)) == []
