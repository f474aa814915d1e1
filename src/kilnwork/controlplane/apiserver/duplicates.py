"""Detection of duplicate fields in a body, reported in the words of Go's decoders.

Duplicate fields are errors with `fieldValidation` Strict, warnings with Warn, and ignored with
Ignore. Used by `resource_handler`, `app` and `patches`, after `bodies` has decoded the body and
checked its nesting.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

YAML_ERRORS = "yaml: unmarshal errors:\n"
_CYAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE_KEY = "tag:yaml.org,2002:merge"
_STRING = "tag:yaml.org,2002:str"


def find_duplicates(
    raw: bytes, content_type: str, obj: dict[str, Any], *, typed: bool
) -> tuple[str, ...]:
    """Return the messages about duplicate fields of a body that was decoded as `obj`.

    `typed`: the kind is built in. Go decodes its JSON into a struct, where duplicate maps are
    merged; the same is done to `obj`. In all other cases the last value counts.
    """
    if content_type == "application/json":
        return tuple(f'duplicate field "{path}"' for path in find_in_json(raw, obj, merged=typed))
    if content_type.endswith("/yaml"):
        found = find_in_yaml(raw)
        return (found,) if found else ()
    return ()


def find_in_json(
    raw: bytes, obj: dict[str, Any] | None = None, *, merged: bool = False
) -> list[str]:
    """Return the paths of duplicate fields in a JSON text.

    `merged`: merge their values in `obj` in the way of Go's decoder.
    """
    # A cheap pass first, as hardly any body has duplicates.
    if not _has_any(raw):
        return []
    found: list[str] = []
    read = _merged(json.loads(raw, object_pairs_hook=_Pairs), "", found)
    if merged and obj is not None:
        obj.clear()
        obj.update(read)
    return found


def find_in_yaml(raw: bytes) -> str:
    """Return go-yaml's error about duplicate keys of mappings, or "" when there are none."""
    lines = list(_duplicate_keys(yaml.compose(raw, _CYAML), set()))
    return YAML_ERRORS + "\n".join(lines) if lines else ""


def find_in_apply(raw: bytes) -> str:
    """Return go-yaml's error about duplicate keys in an apply patch, or "" when there are none.

    The patch is JSON in most cases.
    """
    if raw.lstrip().startswith(b"{"):
        try:
            if not _has_any(raw):
                return ""
        except ValueError:
            pass  # it is YAML that begins with a brace
    return find_in_yaml(raw)


def warnings(found: Iterable[str]) -> list[str]:
    """Return the texts of `Warning` headers: one for each line of go-yaml's error."""
    listed: list[str] = []
    for text in found:
        _, of_yaml, lines = text.partition(YAML_ERRORS)
        listed += [line.strip() for line in lines.splitlines()] if of_yaml else [text]
    return listed


class _DuplicateField(Exception):
    """An object has a duplicate field."""


def _check_unique(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len(dict(pairs)) != len(pairs):
        raise _DuplicateField


def _has_any(raw: bytes) -> bool:
    try:
        json.loads(raw, object_pairs_hook=_check_unique)
    except _DuplicateField:
        return True
    return False


class _Pairs(list[tuple[str, Any]]):
    """Name-value pairs of a JSON object, in a type that differs from that of a JSON list."""


def _merged(value: Any, path: str, found: list[str]) -> Any:
    if isinstance(value, _Pairs):
        made: dict[str, Any] = {}
        for key, item in value:
            below = f"{path}.{key}" if path else key
            one = _merged(item, below, found)
            if key in made:
                found.append(below)
                if isinstance(one, dict) and isinstance(made[key], dict):
                    # Go decodes the second map into the first one.
                    one = {**made[key], **one}
            made[key] = one
        return made
    if isinstance(value, list):
        return [_merged(item, f"{path}[{i}]", found) for i, item in enumerate(value)]
    return value


def _duplicate_keys(node: yaml.Node | None, visited: set[int]) -> Iterator[str]:
    """Yield the lines of go-yaml's error about duplicate keys.

    The target of an alias is visited only once.
    """
    if node is None or id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _duplicate_keys(item, visited)
    elif isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            yield from _duplicate_keys(value, visited)
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE_KEY:
                continue
            if (key.tag, key.value) in seen:
                shown = json.dumps(key.value) if key.tag == _STRING else key.value
                yield f"  line {value.start_mark.line + 1}: key {shown} already set in map"
            seen.add((key.tag, key.value))
