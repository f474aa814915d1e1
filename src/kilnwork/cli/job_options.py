"""Values for the options of a JobConfig: from `-O`, from `--option`, and typed at prompts.

Used by `kiln run-job` and `kiln backfill`. `api.job_config_options` validates them.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kilnwork.api import job_config, job_option_forms, option_values
from kilnwork.api import job_config_options as api_options
from kilnwork.cli import errors, manifests

Option = job_config.Option
Type = job_config.OptionType

FIELD = "option"
"""Field path of values in error texts."""


def parse_values(
    options: job_config.Options | None, text: str | None, pairs: Sequence[str]
) -> dict[str, Any]:
    """Return the option values that `-O` and `--option` give, by name.

    Values of `--option` take precedence. Raises `api.job_config_options.InvalidOptions` and
    `errors.InvalidInput`.
    """
    values = api_options.parse_values(_text(text), FIELD) if text is not None else {}
    known = {one.name: one for one in (options.options if options is not None else ())}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise errors.InvalidInput(f"--option {pair}: write NAME=VALUE")
        option = known.get(name)
        values[name] = value if option is None else job_option_forms.from_text(option, value, FIELD)
    unknown = {name: value for name, value in values.items() if name not in known}
    if unknown:
        api_options.evaluate(_all_optional(options), unknown, field=FIELD)
    return values


def _all_optional(options: job_config.Options | None) -> job_config.Options:
    """Return the options of a JobConfig with none of them required."""
    made = (Option(type=Type.STRING, name=one.name) for one in (options.options if options else ()))
    return job_config.Options(options=tuple(made))


def _text(text: str) -> str:
    """Return the content of the file for `@FILE`, and any other text unchanged.

    `@-` is standard input.
    """
    if not text.startswith("@"):
        return text
    if text == "@-":
        return manifests.read_stdin()
    return manifests.read_text(Path(text[1:]))


def ask(
    options: job_config.Options | None,
    values: Mapping[str, Any],
    *,
    only_needed: bool,
    prompt: Callable[..., Any] = click.prompt,
) -> dict[str, Any]:
    """Ask the user for the options that have no value yet, and return all values.

    `only_needed`: ask only for required options without a default. Asks again after an invalid
    value.
    """
    found = dict(values)
    for option in options.options if options is not None else ():
        if option.name in found or (only_needed and not job_option_forms.is_asked(option)):
            continue
        value = prompt(
            label(option),
            default="",
            show_default=False,
            value_proc=lambda text, option=option: _typed(option, text),
            err=True,
        )
        if value is not None:
            found[option.name] = value
    return found


def _typed(option: Option, text: str) -> Any:
    try:
        return job_option_forms.from_text(option, text, FIELD)
    except api_options.InvalidOptions as error:
        raise click.UsageError(str(error)) from error


def label(option: Option) -> str:
    """Return the text of a prompt: the option's label, its allowed values, and the meaning of
    Enter.
    """
    text = option.label or option.name
    if option.label and option.label != option.name:
        text += f" ({option.name})"
    hint = _hint(option)
    text += f", {hint}" if hint else ""
    return f"{text} [{_default(option)}]"


def _default(option: Option) -> str:
    default = option_values.default_of(option)
    if default is None:
        return "required" if job_option_forms.is_asked(option) else "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, list | tuple):
        return ",".join(str(one) for one in default) or "none"
    return str(default) if default != "" else "none"


def _hint(option: Option) -> str:
    config = option_values.config_of(option)
    match option.type:
        case Type.BOOL:
            return "yes or no"
        case Type.SELECT | Type.MULTI:
            several = option.type is Type.MULTI
            how = "some of" if several else "one of"
            custom = ", or another" if config.allow_custom else ""
            return f"{how} {', '.join(config.values)}{custom}{', with commas' * several}"
        case Type.DATE:
            return "a time such as 2026-01-02T03:04:05Z"
        case Type.INT:
            return "a whole number"
        case Type.FLOAT:
            return "a number"
        case Type.JSON:
            return "JSON"
        case Type.STRING:
            return ""
