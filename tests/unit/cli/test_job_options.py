"""Values of options from the command line and from prompts."""

from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec
import pytest

from kilnwork.api import job_config
from kilnwork.api import job_config_options as api_options
from kilnwork.cli import job_options

FORM = msgspec.convert(
    {
        "options": [
            {"type": "String", "name": "who", "label": "Whom", "required": True},
            {"type": "Int", "name": "times", "int": {"default": 2}},
            {"type": "Multi", "name": "cities", "multi": {"values": ["Oslo", "Lima"]}},
            {"type": "Bool", "name": "loud"},
        ]
    },
    job_config.Options,
)


def test_pairs_override_the_text() -> None:
    pairs = ("who=Bo=b", "cities=Oslo,Lima")
    found = job_options.parse_values(FORM, '{"who": "Ada", "loud": true}', pairs)
    assert found == {"who": "Bo=b", "cities": ["Oslo", "Lima"], "loud": True}


@pytest.mark.parametrize(
    ("text", "pairs", "problem"),
    [
        ('{"whom": 1}', (), "option.whom is no option; did you mean who?"),
        (None, ("times=two",), "option.times must be a whole number"),
        ("a: 1\na: 2", (), "option is neither JSON nor YAML"),
    ],
)
def test_errors_have_the_path_of_the_value(
    text: str | None, pairs: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(api_options.InvalidOptions) as caught:
        job_options.parse_values(FORM, text, pairs)
    assert problem in str(caught.value)


def typing(typed: Iterator[str], asked: list[str]) -> Callable[..., Any]:
    """Return a prompt that reads `typed`; as click's it asks again after a UsageError."""

    def prompt(label: str, *, value_proc: Callable[[str], Any], **_: Any) -> Any:
        while True:
            asked.append(label)
            try:
                return value_proc(next(typed))
            except click.UsageError:
                continue

    return prompt


def test_prompts_ask_only_for_missing_values() -> None:
    asked: list[str] = []
    typed = iter(["", "Ada", "x", "", "Oslo"])
    prompt = typing(typed, asked)
    found = job_options.ask(FORM, {"loud": False}, only_needed=False, prompt=prompt)
    assert found == {"loud": False, "who": "Ada", "cities": ["Oslo"]}
    assert asked == [
        "Whom (who) [required]",
        "Whom (who) [required]",
        "times, a whole number [2]",
        "times, a whole number [2]",
        "cities, some of Oslo, Lima, with commas [none]",
    ]


def test_only_required_options_are_asked_for() -> None:
    asked: list[str] = []
    prompt = typing(iter(["Ada"]), asked)
    assert job_options.ask(FORM, {}, only_needed=True, prompt=prompt) == {"who": "Ada"}
    assert len(asked) == 1
