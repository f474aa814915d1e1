"""Substitution of variables such as `${task.name}` in the templates of tasks.

Used by all executors in the same way, on a parsed template. Each string is substituted separately,
so that a value can never become structure, and once, so that no value is parsed for variables.
Only names that begin with one of PREFIXES are variables: all other text is left unchanged,
including a shell's `${HOME}`. Not for the environment of a worker's command (`KILN_*`).
"""

import copy
import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import json_limits
from kilnwork.kit import errors

Problem = tuple[str, str]
"""Dotted path of the field, and a sentence without subject, as in `task_validation`."""

PREFIXES = ("job.", "jobconfig.", "task.", "option.")
"""Prefixes of variable names. In a text they are recognised only within `${}`."""

MAX_SIZE = json_limits.MAX_SIZE
"""Maximum size of the result: its values and characters together."""

MAX_PROBLEMS = 100
"""Maximum number of problems reported at once."""

UNKNOWN_VARIABLE = "UnknownVariable"
"""Reason of the condition `Valid` of an object whose template cannot be substituted."""

TASK_VARIABLES = {
    "task.name": "Name of the Task; of a spawned task its id.",
    "task.namespace": "Namespace of the task.",
    "task.id": "Id of the task, a UUID: `metadata.uid` of a Task.",
    "task.run": "Number of the run, from 1.",
    "task.attempt": "Number of the attempt in this run, from 1.",
    "task.retry_index": "How many attempts of this run were before this one: 0 for the first.",
    "task.cluster_name": "Name of the TaskCluster, `spec.clusterName`.",
}
"""The variables of every task, with their descriptions."""

INPUT_PREFIX = "task.inputs."
"""Prefix of the variables for the inputs of a task; the name of the input follows. Not available
in Pods, where inputs are in a file."""

_TEXT_FIELDS = """
    annotations args claimName command driver env fieldPath host hostname image key labels
    matchLabels mountPath name namespace nodeName nodeSelector operator path priorityClassName
    resourceName runtimeClassName schedulerName secretName server serviceAccountName subPath
    subPathExpr subdomain topologyKey value values workingDir
"""

TEXT_FIELDS = frozenset(_TEXT_FIELDS.split())
"""Fields of a Pod below which every value is text: numbers are converted to text there."""

_NAME = "|".join(re.escape(prefix) for prefix in PREFIXES)
_REFERENCE = re.compile(rf"(?<!\$)(\$++)\{{(?=(?:{_NAME}))([^{{}}$]*)(\}}?)")
"""The dollar signs, name and closing brace of a variable, whatever follows the prefix of the
name. A match begins at the first of several dollar signs and takes all of them: otherwise the
time would grow with the square of their number."""


_DOLLARS = re.compile(rf"(?<!\$)(\$++)(?=\{{(?:{_NAME}))")
"""The dollar signs that _REFERENCE considers the beginning of a variable."""


class Variable(msgspec.Struct, frozen=True):
    """A variable in a text."""

    name: str


_NOTHING: Mapping[str, str] = {}


class _Names(NamedTuple):
    """The names that have values, and alternatives for some of the other names."""

    known: Collection[str]
    instead: Mapping[str, str]


class InvalidTemplate(errors.KilnError):
    """The template cannot be substituted; `problems` gives the place, the reason and the remedy
    for each."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{field} {problem}".lstrip() for field, problem in problems))


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts from which the values of TASK_VARIABLES are derived."""

    name: str
    namespace: str
    id: str
    run: int
    attempt: int
    cluster_name: str


def task_variables(facts: TaskFacts) -> dict[str, Any]:
    """Return the values of TASK_VARIABLES."""
    values = {f"task.{name}": value for name, value in msgspec.structs.asdict(facts).items()}
    return {**values, "task.retry_index": facts.attempt - 1}


def input_names(inputs: Iterable[str]) -> list[str]:
    """Return the names of the variables for inputs with these names."""
    return [f"{INPUT_PREFIX}{name}" for name in inputs]


def input_variables(document: bytes | None) -> dict[str, Any]:
    """Return the values of an attempt's inputs, by the names of their variables.

    `document`: the JSON object of the inputs, or None without inputs.
    """
    values: dict[str, Any] = {} if document is None else msgspec.json.decode(document)
    return {f"{INPUT_PREFIX}{name}": value for name, value in values.items()}


def find_problems(
    template: Any,
    known: Collection[str],
    field: str = "",
    *,
    instead: Mapping[str, str] = _NOTHING,
) -> list[Problem]:
    """Return the problems of a template at `field` if only the `known` names have values, for
    admission.

    `instead`: alternatives for names that are variables elsewhere.

    Raises LimitExceeded for a template that is too large or too deep.
    """
    json_limits.measure(template)
    names = _Names(known, instead)
    found = list(itertools.islice(_problems(template, names, field), MAX_PROBLEMS + 1))
    if len(found) > MAX_PROBLEMS:
        found[MAX_PROBLEMS:] = [(field, f"has more than these {MAX_PROBLEMS} problems")]
    return found


def split(text: str) -> list[str | Variable]:
    """Split a valid text into literal texts, with escapes resolved, and variables."""
    parts: list[str | Variable] = []
    literal, end = "", 0
    for found in _REFERENCE.finditer(text):
        literal += text[end : found.start()] + "$" * (len(found[1]) // 2)
        end = found.end()
        if not _is_ours(found):
            literal += f"{{{found[2]}{found[3]}"
            continue
        if literal:
            parts.append(literal)
        parts.append(Variable(found[2]))
        literal = ""
    literal += text[end:]
    return [*parts, literal] if literal else parts


def join(parts: Iterable[str | Variable]) -> str:
    """Return the text that `split` would split into these parts."""
    text, literal = "", ""
    for part in parts:
        if isinstance(part, str):
            # A part may end with dollar signs that belong to a variable in the next part.
            literal += part
            continue
        dollars = len(literal) - len(literal.rstrip("$"))
        text += escape(literal) + "$" * dollars + f"${{{part.name}}}"
        literal = ""
    return text + escape(literal)


def escape(text: str) -> str:
    """Return a text that substitution converts to `text`, whatever it contains."""
    return _DOLLARS.sub(r"\1\1", text) if "${" in text else text


def substitute(
    template: Any,
    variables: Mapping[str, Any],
    *,
    field: str = "",
    text_fields: Collection[str] = (),
) -> Any:
    """Return a copy of parsed JSON with every variable in its strings replaced by its value.

    A string that consists of one variable becomes the value with its type, such as a number. Below
    `text_fields`, and next to other text, values other than strings are written as JSON. Raises
    InvalidTemplate with all unknown names, and LimitExceeded.
    """
    problems = find_problems(template, variables.keys(), field)
    if problems:
        raise InvalidTemplate(problems)
    rendered = _Rendering(variables, text_fields).render(template, texts=False)
    json_limits.measure(rendered, max_size=MAX_SIZE)
    return rendered


class _Rendering:
    """One pass over a template that is known to be valid."""

    def __init__(self, variables: Mapping[str, Any], text_fields: Collection[str]) -> None:
        self._variables = variables
        self._text_fields = text_fields
        self._left = MAX_SIZE

    def render(self, template: Any, *, texts: bool) -> Any:
        """Return the copy; if `texts` is true, values become text."""
        if isinstance(template, dict):
            return {
                key: self.render(value, texts=texts or key in self._text_fields)
                for key, value in template.items()
            }
        if isinstance(template, list):
            return [self.render(value, texts=texts) for value in template]
        return self._text(template, texts=texts) if isinstance(template, str) else template

    def _text(self, text: str, *, texts: bool) -> Any:
        whole = _REFERENCE.fullmatch(text)
        if whole is not None and len(whole[1]) == 1 and not texts:
            value = self._variables[whole[2]]
            self._spend(len(to_text(value)))
            return copy.deepcopy(value)
        return _REFERENCE.sub(self._replacement, text)

    def _replacement(self, found: re.Match[str]) -> str:
        dollars, name = found[1], found[2]
        literal = "$" * (len(dollars) // 2)
        if len(dollars) % 2 == 0:
            return f"{literal}{{{name}{found[3]}"
        value = to_text(self._variables[name])
        self._spend(len(value))
        return literal + value

    def _spend(self, characters: int) -> None:
        """Count characters before they are inserted, so that a short text cannot produce a huge
        one."""
        self._left -= characters
        if self._left < 0:
            raise json_limits.LimitExceeded(f"has more than {MAX_SIZE} characters once substituted")


def to_text(value: Any) -> str:
    """Return a value as part of a text: strings unchanged, other values as JSON. Raises
    LimitExceeded.

    Members are sorted by name, as an API server sorts those of stored objects: the same Job gives
    the same texts on every server.
    """
    if isinstance(value, str):
        return value
    json_limits.measure(value)
    return msgspec.json.encode(value, order="sorted").decode()


def _problems(template: Any, names: _Names, field: str) -> Iterator[Problem]:
    if isinstance(template, dict):
        for key, value in template.items():
            below = f"{field}.{key}" if field else str(key)
            if any(_is_ours(found) for found in _REFERENCE.finditer(key)):
                yield below, "is a key, and keys are not substituted; put the variable into a value"
            yield from _problems(value, names, below)
    elif isinstance(template, list):
        for position, value in enumerate(template):
            yield from _problems(value, names, f"{field}[{position}]")
    elif isinstance(template, str):
        for found in _REFERENCE.finditer(template):
            problem = _reference_problem(found, names)
            if problem:
                yield field, problem


def inputs_in(template: Any) -> frozenset[str]:
    """Return the names of the inputs that a template uses as variables.

    Raises LimitExceeded for a template that is too large or too deep.
    """
    json_limits.measure(template)
    names: set[str] = set()
    left = [template]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, str):
            names.update(found[2] for found in _REFERENCE.finditer(value) if _is_ours(found))
    ours = (name for name in names if name.startswith(INPUT_PREFIX))
    return frozenset(name.removeprefix(INPUT_PREFIX) for name in ours)


def _is_ours(found: re.Match[str]) -> bool:
    """Return whether a match is a variable and not escaped."""
    return len(found[1]) % 2 == 1


def _reference_problem(found: re.Match[str], names: _Names) -> str:
    name, known = found[2], names.known
    if not _is_ours(found) or (found[3] and name in known):
        return ""
    shown = json_limits.show(f"${{{name}{found[3]}")[1:-1]
    if not found[3]:
        return f"has {shown} without its }}; to keep it as it is, write $${{"
    if name in names.instead:
        return f"has {shown}, which is not known yet here: {names.instead[name]}"
    close = difflib.get_close_matches(name[:100], known, n=1)
    remedy = f"did you mean ${{{close[0]}}}?" if close else f"known are {_list_names(known)}"
    return f"has {shown}, which is no variable: {remedy} To keep it as it is, write ${shown}"


def _list_names(known: Collection[str]) -> str:
    return ", ".join(sorted(known)[:20]) + "." if known else "none here."
