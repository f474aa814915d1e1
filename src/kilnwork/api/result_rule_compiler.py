"""Result rules: how users describe when a task is running, has succeeded or has failed, and their
compiler.

Used by admission and by executors that read the outcome from an object or a response written by
another program. Rules are checked and compiled on admission; `result_rule_evaluation` has the
compiled form. Not for `x-kubernetes-validations`, which the API server evaluates
(`controlplane.apiserver.rules_cel`).
"""

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kilnwork.api import cel_evaluation, iregexp, json_limits, result_rule_evaluation, task
from kilnwork.kit import errors

if TYPE_CHECKING:
    from kilnwork.api import jsonpaths

Operator = result_rule_evaluation.Operator
RuleOutcome = result_rule_evaluation.RuleOutcome

Problem = tuple[str, str]
"""Dotted path of the field, and a sentence without subject, as in `task_validation`."""

MAX_RULES = 16
"""Maximum number of rules in one condition."""

MAX_RULE_CHARS = 4096
"""Maximum length of `jsonPath` including the comparison."""

MAX_VALUE_SIZE = 16 * 1024
"""Maximum size of `value`: values and characters."""


class Rule(task.Wire, frozen=True):
    """One rule: a JSONPath with an operator and a value, or an expression in CEL."""

    json_path: str = ""
    """JSONPath (RFC 9535) to the compared value; kubectl's `.status.phase` and `{.status.phase}`
    are accepted too. Without `operator` and `value` it may be a comparison: `.status.phase ==
    "Succeeded"`."""
    operator: str = ""
    """One of `Operator`. Empty: `Equal` if there is a `value`, otherwise `IsTrue`."""
    value: Any = msgspec.UNSET
    """Value to compare with: any JSON; a list for `In` and `NotIn`, a number for `Gt` and `Lt`,
    and for `Matches` a regular expression (RFC 9485) that matches the whole text."""
    cel: str = ""
    """CEL expression about `object`, instead of `jsonPath`."""


Condition = str | Rule | tuple[str | Rule, ...]
"""One rule, or several that must all be true; a string is a rule with that `jsonPath`."""


class ResultRules(task.Wire, frozen=True):
    """The conditions from which the state of a task is derived."""

    success_condition: Condition | None = None
    """Condition for success."""
    failure_condition: Condition | None = None
    """Condition for failure. It takes precedence over `success_condition`."""
    running_condition: Condition | None = None
    """Condition for the state running. None: the task is running as soon as the document exists."""


class InvalidRules(errors.KilnError):
    """The rules cannot be compiled; `problems` gives the field, the reason and the remedy for
    each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field} {problem}" for field, problem in problems))


def problems(rules: ResultRules, field: str) -> list[Problem]:
    """Return the problems of the rules at `field`, for admission; an empty list if they are
    valid.
    """
    try:
        compile_rules(rules, field)
    except InvalidRules as error:
        return list(error.problems)
    return []


def compile_rules(rules: ResultRules, field: str = "") -> result_rule_evaluation.CompiledRules:
    """Compile the rules at `field`; equal rules are compiled once. Raises InvalidRules."""
    return _compile_rules(msgspec.json.encode(rules), field)


@functools.lru_cache(maxsize=256)
def _compile_rules(encoded: bytes, field: str) -> result_rule_evaluation.CompiledRules:
    rules = msgspec.json.decode(encoded, type=ResultRules)
    found: list[Problem] = []
    compiled: dict[str, result_rule_evaluation.CompiledCondition | None] = {}
    for name, condition in (
        ("success", rules.success_condition),
        ("failure", rules.failure_condition),
        ("running", rules.running_condition),
    ):
        compiled[name] = None
        try:
            if condition is not None:
                compiled[name] = compile_condition(
                    condition, f"{field}.{name}Condition".lstrip(".")
                )
        except InvalidRules as error:
            found.extend(error.problems)
    if found:
        raise InvalidRules(found)
    return result_rule_evaluation.CompiledRules(**compiled)


def compile_condition(
    condition: Condition, field: str = ""
) -> result_rule_evaluation.CompiledCondition:
    """Compile a condition at `field`; raises InvalidRules with all problems."""
    if not isinstance(condition, tuple):
        return result_rule_evaluation.CompiledCondition([_compile_rule(condition, field)])
    if not 1 <= len(condition) <= MAX_RULES:
        raise _invalid(field, f"has {len(condition)} rules; it must have 1 to {MAX_RULES}")
    rules: list[result_rule_evaluation.PathRule | cel_evaluation.Predicate] = []
    found: list[Problem] = []
    for position, rule in enumerate(condition):
        try:
            rules.append(_compile_rule(rule, f"{field}[{position}]"))
        except InvalidRules as error:
            found.extend(error.problems)
    if found:
        raise InvalidRules(found)
    return result_rule_evaluation.CompiledCondition(rules)


def compile_path(text: str, field: str) -> "jsonpaths.Path":
    """Compile a path at `field`, in the notation of rules; raises InvalidRules."""
    return _read_path(field, text, whole_path(text.strip()))


def _compile_rule(
    rule: str | Rule, field: str
) -> result_rule_evaluation.PathRule | cel_evaluation.Predicate:
    if isinstance(rule, str):
        return _compile_path_rule(Rule(json_path=rule), field, path_field=field)
    if bool(rule.json_path) is bool(rule.cel):
        raise _invalid(field, "must have one of jsonPath and cel")
    if rule.json_path:
        return _compile_path_rule(rule, field, path_field=f"{field}.jsonPath")
    if rule.operator or rule.value is not msgspec.UNSET:
        raise _invalid(f"{field}.cel", "is a whole rule; leave out operator and value")
    try:
        return cel_evaluation.Predicate(rule.cel)
    except cel_evaluation.CelError as error:
        raise _invalid(f"{field}.cel", f"{error}; it is {json_limits.show(rule.cel)}") from error


def _compile_path_rule(
    rule: Rule, field: str, *, path_field: str
) -> result_rule_evaluation.PathRule:
    if len(rule.json_path) > MAX_RULE_CHARS:
        raise _invalid(path_field, f"has more than {MAX_RULE_CHARS} characters")
    text, sign, literal = _split(rule.json_path)
    if sign:
        if rule.operator or rule.value is not msgspec.UNSET:
            raise _invalid(path_field, f"compares with {sign}; leave out operator and value")
        operator, value = _read_comparison(path_field, sign, literal)
    else:
        operator, value = _read_operator(rule, f"{field}.operator"), rule.value
    # in a comparison, the value is part of the path's field
    problem = _value_problem(operator, value)
    if problem:
        raise _invalid(path_field if sign else f"{field}.value", problem)
    path = whole_path(text)
    if not path.startswith("$"):
        remedy = (
            "CEL is written {cel: …}" if text.startswith("cel:") else "write .status.phase, say"
        )
        seen = json_limits.show(rule.json_path)
        raise _invalid(path_field, f"must begin with $, . or {{; {remedy}; it is {seen}")
    if operator is Operator.MATCHES:
        value = _read_pattern(f"{field}.value", value)
    wanted = "" if rule.value is msgspec.UNSET else f" {json_limits.show(rule.value)}"
    shown = rule.json_path if sign else f"{text} {operator}{wanted}"
    return result_rule_evaluation.PathRule(
        shown, _read_path(path_field, rule.json_path, path), operator, value
    )


def _read_path(field: str, text: str, path: str) -> "jsonpaths.Path":
    """Compile the path contained in `text`."""
    from kilnwork.api import jsonpaths  # noqa: PLC0415 - its library takes 30 ms; few servers need it

    try:
        return jsonpaths.compile_path(path)
    except jsonpaths.PathError as error:
        dots = "; a name with dots is written ['a.b']" if "\\." in path else ""
        raise _invalid(field, f"{error}{dots}; it is {json_limits.show(text)}") from error


def _read_pattern(field: str, value: str) -> iregexp.Pattern:
    try:
        return iregexp.compile_pattern(value)
    except iregexp.PatternError as error:
        seen = json_limits.show(value)
        raise _invalid(field, f"is no I-Regexp (RFC 9485): {error}; it is {seen}") from error


def _read_operator(rule: Rule, field: str) -> Operator:
    if not rule.operator:
        return Operator.IS_TRUE if rule.value is msgspec.UNSET else Operator.EQUAL
    try:
        return Operator(rule.operator)
    except ValueError as error:
        seen = json_limits.show(rule.operator)
        raise _invalid(field, f"must be one of {', '.join(Operator)}; it is {seen}") from error


def _read_comparison(field: str, sign: str, literal: str) -> tuple[Operator, Any]:
    """Return the operator and the value of `PATH sign literal`."""
    if sign not in _SIGNS:
        raise _invalid(field, f"has {sign}; write one of {', '.join(_SIGNS)}, or an operator")
    try:
        return _SIGNS[sign], msgspec.json.decode(_double_quoted(literal))
    except (msgspec.DecodeError, RecursionError) as error:
        shown = json_limits.show(literal)
        if not literal:
            remedy = "a value must follow"
        elif literal[0] in "\"'":
            remedy = (
                f"the text is not closed, or has escapes that JSON does not know; it is {shown}"
            )
        elif isinstance(error, RecursionError):
            remedy = "it is too deep"
        else:
            remedy = f"a text needs quotes, as in {sign} {shown}"
        raise _invalid(field, f"compares with no value: {remedy}") from error


def _double_quoted(literal: str) -> str:
    """Return a literal in JSON; JSONPath allows single quotes too."""
    if len(literal) < len("''") or literal[0] != "'" or literal[-1] != "'":
        return literal
    return '"' + literal[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def _split(text: str) -> tuple[str, str, str]:
    """Return path, sign and literal; the last two are empty if there is no sign outside of
    brackets."""
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in ("[", "(", "{"):
            depth += 1
        elif token in ("]", ")", "}"):
            depth -= 1
        elif token[0] in "=!<>" and depth == 0:
            return text[: found.start()].strip(), token, text[found.end() :].strip()
    return text.strip(), "", ""


def whole_path(text: str) -> str:
    """Return a path in the notation of RFC 9535: without kubectl's braces, with `$`."""
    if text[:1] == "{" and text[-1:] == "}":
        text = text[1:-1].strip()
    return f"${text}" if text[:1] in (".", "[") else text


def _value_problem(operator: Operator, value: Any) -> str:
    if operator in _WITHOUT_VALUE:
        return "" if value is msgspec.UNSET else f"must be left out with {operator}"
    if value is msgspec.UNSET:
        return f"is needed with {operator}"
    try:
        json_limits.measure(value, max_size=MAX_VALUE_SIZE)
    except json_limits.LimitExceeded as error:
        return str(error)
    seen = json_limits.show(value)
    if operator in (Operator.IN, Operator.NOT_IN) and not (isinstance(value, list) and value):
        return f"must be a list with {operator}, as in [a, b]; it is {seen}"
    if operator in (Operator.GT, Operator.LT) and not result_rule_evaluation.is_number(value):
        return f"must be a number with {operator}; it is {seen}"
    if operator is Operator.MATCHES and not isinstance(value, str):
        return f"must be a text with Matches; it is {seen}"
    return ""


def _invalid(field: str, problem: str) -> InvalidRules:
    return InvalidRules([(field, problem)])


_WITHOUT_VALUE = (Operator.EXISTS, Operator.DOES_NOT_EXIST, Operator.IS_TRUE)

_SIGNS = {
    "==": Operator.EQUAL,
    "!=": Operator.NOT_EQUAL,
    ">": Operator.GT,
    "<": Operator.LT,
}

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[=!<>]+|.', re.DOTALL)
