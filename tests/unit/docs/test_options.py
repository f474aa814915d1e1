"""docs/reference/options.md: every row of its tables is evaluated."""

import json
import re

import msgspec
import pytest
import yaml

from kilnwork.api import job_config, job_config_options, job_variables, momentjs_formats
from support import pages

PAGE = (pages.DOCS / "reference" / "options.md").read_text()
SECTIONS = pages.sections(PAGE, 2)
FORM, VALUES = (yaml.safe_load(block) for block in pages.blocks(PAGE, "yaml"))
WORDS = " ".join(PAGE.split())


def rows(text: str, heading: str) -> list[tuple[str, ...]]:
    """Return the rows of the table with this first heading."""
    table, *_ = re.findall(
        rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    return [tuple(re.split(r" ?\| ?", line)[1:-1]) for line in table.splitlines()]


def test_example_values_give_the_documented_variables() -> None:
    form = msgspec.convert(FORM["option"], job_config.Options)
    assert list(job_config_options.problems(form)) == []
    found = job_config_options.evaluate(form, VALUES["optionValues"])
    said = {name.strip("`")[2:-1]: json.loads(becomes.strip("`")) for name, becomes in
            rows(PAGE, "variable")[: len(found)]}  # fmt: skip
    assert found == said


def test_message_is_one_of_the_code() -> None:
    form = msgspec.convert(FORM["option"], job_config.Options)
    with pytest.raises(job_config_options.InvalidOptions) as refused:
        job_config_options.evaluate(form, {"user-name": "Ada", "tone": "rude"})
    assert f"`{refused.value}`" in WORDS


def test_types_are_those_of_the_code() -> None:
    listed = rows(SECTIONS["Types"], "type")
    assert [row[0].strip("`") for row in listed] == list(job_config.OptionType)
    fields = {field.encode_name for field in msgspec.structs.fields(job_config.Option)}
    assert {row[1].strip("`") for row in listed} <= fields
    for form in job_config.BoolFormat:
        assert f"`{form}`" in listed[0][3] or f"format: {form}" in listed[0][3]


FORMATS = rows(SECTIONS["Formats of dates"], "`format` of 2026-03-05T14:07:09+05:30")


@pytest.mark.parametrize(("pattern", "becomes"), FORMATS)
def test_date_format_gives_the_documented_text(pattern: str, becomes: str) -> None:
    moment = momentjs_formats.parse_rfc3339("2026-03-05T14:07:09+05:30")
    assert momentjs_formats.format_time(moment, pattern.strip("`")) == becomes


def test_tokens_are_those_of_the_code() -> None:
    moment = momentjs_formats.parse_rfc3339("2026-03-05T14:07:09+05:30")
    for tokens, _ in rows(SECTIONS["Formats of dates"], "tokens"):
        for token in re.findall("`(.*?)`", tokens):
            assert momentjs_formats.format_time(moment, token) != token


def test_variables_are_those_of_the_code() -> None:
    said = {row[0].strip("`"): row[1] for row in rows(SECTIONS["Variables of Jobs"], "variable")}
    assert said == {**job_variables.JOB, **job_variables.JOB_CONFIG, **job_variables.HOOK}
    for name in job_variables.EARLY:
        assert f"`{name}`" in SECTIONS["Variables of Jobs"]
