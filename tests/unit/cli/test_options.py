"""Options that commands share."""

import click
import pytest
from click import testing

from kilnwork.cli import options, selector_types


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("2m", 120), ("1h30m", 5400), ("250ms", 0.25)]
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert options.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "1.2.3", "m5", "-5", ".s"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        options.parse_duration(text)


@click.command()
@options.target
@click.option("-l", type=selector_types.LABEL_SELECTOR)
@click.option("--field-selector", type=selector_types.FIELD_SELECTOR)
def _command(**given: str | None) -> None:
    click.echo(f"{given} {options.current().namespace}")


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("-l", "a in (b", "expected: ',' or ')'"),
        ("-l", "!!", "found '!'"),
        ("-l", "a=b,,c", "','"),
        ("-l", " ", "it is empty"),
        ("--field-selector", "x", "can't understand 'x'"),
        ("--field-selector", "", "it is empty"),
    ],
)
def test_invalid_selector_is_a_usage_error(option: str, text: str, said: str) -> None:
    found = testing.CliRunner().invoke(_command, [option, text])
    assert found.exit_code == 2
    shown = " ".join(found.output.split())
    assert said in shown
    assert "app=web" in shown or "metadata.name=x" in shown


@pytest.mark.parametrize("text", ["a=b", "a!=b,c in (d,e),!f", "kilnwork.dev/x", "a==b"])
def test_selector_is_passed_on_unchanged(text: str) -> None:
    found = testing.CliRunner().invoke(_command, ["-l", text])
    assert (found.exit_code, text in found.output) == (0, True)


@pytest.mark.parametrize("text", ["A", "a b", "-a", "a" * 64])
def test_invalid_namespace_is_a_usage_error(text: str) -> None:
    found = testing.CliRunner().invoke(_command, [f"--namespace={text}"])
    assert found.exit_code == 2
    assert "lower-case letters" in found.output
