"""YAML as Kubernetes tools read it, for PyYAML.

Timestamps stay text, `1:30` is not a number, a duplicate key is an error, keys are text. Unlike in
those tools, a key `on`, `off`, `yes` or `no` is kept as text: fields have such names, and no key is
meant as a boolean. Used by `kiln`, which reads files, and by `object_task_manifests` and
`job_config_options`, which parse texts in objects.
"""

import re
from typing import Any

import yaml

from kilnwork.kit import errors

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_FLOAT = re.compile(
    r"^(?:[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
)
_INT = re.compile(r"^[-+]?(0b[0-1_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")


def _kept_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return PyYAML's resolvers without those of numbers and times."""
    dropped = {f"{_TAG}{name}" for name in ("timestamp", "int", "float")}
    return {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in dropped]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }


class Loader(_Base):  # type: ignore[misc]  # the C loader has no types
    """YAML 1.1 as Kubernetes reads it."""

    yaml_implicit_resolvers = _kept_resolvers()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}merge":
                continue
            _to_text(key)
            if key.value in seen:
                problem = f"key {key.value!r} is already set in this mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found


def _to_text(key: yaml.ScalarNode) -> None:
    """Convert a number or boolean used as a key to its text, since JSON has no other keys."""
    if key.tag == f"{_TAG}int":
        key.value = str(_integer(None, key))
    elif key.tag == f"{_TAG}bool" and key.value.lower() in ("true", "false"):
        key.value = key.value.lower()
    key.tag = f"{_TAG}str"


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits.startswith("0") and len(digits) > 1 and digits[1].isdigit():
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _float(loader: Any, node: yaml.ScalarNode) -> float:
    return float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))


Loader.add_implicit_resolver(f"{_TAG}int", _INT, list("-+0123456789"))
Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+.0123456789"))
Loader.add_constructor(f"{_TAG}int", _integer)
Loader.add_constructor(f"{_TAG}float", _float)


class MalformedYaml(errors.KilnError):
    """The text is not valid YAML; the message gives the position."""


def load_all(text: str) -> list[Any]:
    """Return all values of a text that are not null, as JSON; raises MalformedYaml."""
    try:
        return [value for value in yaml.load_all(text, Loader) if value is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise MalformedYaml(f"{error.problem or error}{where}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise MalformedYaml(str(error)) from error
