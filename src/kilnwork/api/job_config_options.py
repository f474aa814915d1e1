"""Options of a JobConfig: their validation, and the evaluation of a Job's values.

The types are those of Furiko with its rules, plus Int, Float and JSON. Used by validation, by code
that passes Jobs to the engine, and by `job_option_forms`, which prompts users. A value becomes the
value of a variable `option.NAME` and is not parsed for variables. No I/O.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kilnwork.api import (
    job_config,
    job_variables,
    json_limits,
    momentjs_formats,
    option_values,
    yaml_loader,
)
from kilnwork.kit import errors

Option = job_config.Option
Type = job_config.OptionType
Problem = tuple[str, str]
"""Dotted path of the field, and a sentence without subject, as in `task_validation`."""

FIELD = "spec.option"
"""Path of the options in a JobConfig."""

VALUES_FIELD = "spec.optionValues"
"""Path of the option values in a Job."""


class InvalidOptions(errors.KilnError):
    """Values are invalid for their options; `problems` gives the option, the reason and the
    remedy for each."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field} {problem}" for field, problem in problems))


def variable_name(option: Option) -> str:
    """Return the name of the variable for an option."""
    return job_variables.OPTION_PREFIX + option.name


def problems(options: job_config.Options | None, field: str = FIELD) -> Iterator[Problem]:
    """Yield the problems of the options of a JobConfig at `field`."""
    seen: dict[str, int] = {}
    for position, option in enumerate(options.options if options is not None else ()):
        at = f"{field}.options[{position}]"
        if option.name in seen:
            first = seen[option.name]
            yield f"{at}.name", f"is {option.name!r}, as options[{first}] is called; rename one"
        seen.setdefault(option.name, position)
        yield from _definition_problems(option, at)


def parse_values(given: Any, field: str = VALUES_FIELD) -> dict[str, Any]:
    """Return values by name, from an object or its text in JSON or YAML; {} if nothing is given.

    Raises InvalidOptions for anything else, for a duplicate key, and for values that are not JSON.
    """
    found = _parse_text(given, field) if isinstance(given, str) else given
    if found is None:
        return {}
    try:
        json_limits.measure(found)
    except json_limits.LimitExceeded as error:
        raise InvalidOptions([(field, str(error))]) from error
    if not isinstance(found, dict):
        wanted = "an object of values by the names of options, or its text in JSON or YAML"
        raise InvalidOptions([(field, f"must be {wanted}, not {option_values.show(found)}")])
    wrong = [(f"{field}.{name}", problem) for name, problem in _find_non_json(found)]
    if wrong:
        raise InvalidOptions(wrong)
    return dict(found)


def evaluate(
    options: job_config.Options | None,
    given: Any,
    *,
    substitutions: Mapping[str, Any] = {},
    field: str = VALUES_FIELD,
) -> dict[str, Any]:
    """Return the value of each option by the name of its variable, from the values of a Job.

    The options must be valid (`problems`). `substitutions`, by full names, take precedence over
    `given`: an option with a substitution needs no value. Raises InvalidOptions with all problems.
    """
    values = parse_values(given, field)
    known = {option.name: option for option in (options.options if options is not None else ())}
    found: list[Problem] = [
        (f"{field}.{name}", _unknown_message(name, known)) for name in values if name not in known
    ]
    evaluated: dict[str, Any] = {}
    for name, option in known.items():
        variable = variable_name(option)
        value = values.get(name)
        if variable in substitutions and value is None:
            evaluated[variable] = substitutions[variable]
            continue
        try:
            evaluated[variable] = substitutions.get(variable, option_values.evaluate(option, value))
        except option_values.Refused as refused:
            found.append((f"{field}.{name}", str(refused)))
    if found:
        raise InvalidOptions(found)
    return evaluated


def _parse_text(text: str, field: str) -> Any:
    """Parse JSON, or else YAML: JSON with tabs is not valid YAML."""
    if len(text) > json_limits.MAX_SIZE:
        raise InvalidOptions([(field, f"has more than {json_limits.MAX_SIZE} characters")])
    try:
        return json.loads(text, object_pairs_hook=unique_members)
    except yaml_loader.MalformedYaml as error:
        raise InvalidOptions([(field, f"is no object: {error}")]) from error
    except (ValueError, RecursionError):
        pass
    try:
        found = yaml_loader.load_all(text)
    except yaml_loader.MalformedYaml as error:
        raise InvalidOptions([(field, f"is neither JSON nor YAML: {error}")]) from error
    if len(found) > 1:
        raise InvalidOptions([(field, f"must be one document of YAML; it has {len(found)}")])
    return found[0] if found else None


def _find_non_json(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        odd = json_limits.find_non_json(value)
        if odd is None:
            try:
                msgspec.json.encode({name: value})
            except UnicodeEncodeError:
                odd = "half of a surrogate pair"
        if odd is not None:
            yield ascii(name)[1:-1], f"has {odd}, which cannot be written as JSON"


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, as a hook of `json.loads`; raises MalformedYaml for a duplicate key."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise yaml_loader.MalformedYaml(f"key {key!r} is already set in this object")
        found[key] = value
    return found


def _unknown_message(name: str, known: Mapping[str, Option]) -> str:
    if not known:
        return "is no option: the JobConfig has none; leave it out"
    close = difflib.get_close_matches(name[:100], known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    shown = ", ".join(sorted(known)[: option_values.MAX_LISTED])
    return f"is no option; {hint}known are {shown}"


def _definition_problems(option: Option, at: str) -> Iterator[Problem]:
    for type_, (attribute, _) in option_values.CONFIGS.items():
        if type_ is not option.type and getattr(option, attribute) is not None:
            what = f"is for an option of type {type_}, and this one has type {option.type}"
            yield f"{at}.{attribute.strip('_')}", f"{what}; leave it out"
    below = f"{at}.{option_values.CONFIGS[option.type][0].strip('_')}"
    match option.type:
        case Type.BOOL:
            yield from _bool_problems(option, at, below)
        case Type.SELECT | Type.MULTI:
            yield from _choice_problems(option, below)
        case Type.DATE:
            yield from _date_problems(option, below)
        case Type.INT | Type.FLOAT | Type.JSON:
            yield from _default_problems(option, below)


def _bool_problems(option: Option, at: str, below: str) -> Iterator[Problem]:
    if option.required:
        why = "must be false for type Bool, which always has a value; leave it out"
        yield f"{at}.required", why
    config: job_config.BoolOption = option_values.config_of(option)
    if config.format is job_config.BoolFormat.CUSTOM and config.true_val == config.false_val:
        shown = json_limits.show(config.true_val)
        yield below, f"must have a trueVal and a falseVal that differ; both are {shown}"


def _choice_problems(option: Option, below: str) -> Iterator[Problem]:
    config: job_config.SelectOption | job_config.MultiOption = option_values.config_of(option)
    if not config.values:
        yield f"{below}.values", "must have at least one value"
    for position, value in enumerate(config.values):
        if not value:
            yield f"{below}.values[{position}]", "must not be empty; leave it out"
    if isinstance(config, job_config.MultiOption):
        defaults = {f"{below}.default[{n}]": value for n, value in enumerate(config.default)}
    else:
        defaults = {f"{below}.default": config.default} if config.default else {}
    for field, value in defaults.items():
        if value not in config.values:
            yield field, option_values.unlisted_message(value, config.values)


def _date_problems(option: Option, below: str) -> Iterator[Problem]:
    config: job_config.DateOption = option_values.config_of(option)
    try:
        momentjs_formats.check_format(config.format)
    except momentjs_formats.InvalidFormat as error:
        yield f"{below}.format", str(error)


def _default_problems(option: Option, below: str) -> Iterator[Problem]:
    config = option_values.config_of(option)
    minimum, maximum = getattr(config, "minimum", None), getattr(config, "maximum", None)
    if minimum is not None and maximum is not None and minimum > maximum:
        yield f"{below}.minimum", f"is {minimum}, above maximum, which is {maximum}"
        return
    if config.default is not None:
        try:
            option_values.evaluate(option, config.default)
        except option_values.Refused as refused:
            yield f"{below}.default", str(refused)
