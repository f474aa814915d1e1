"""Text for people and machines: plain tables, and YAML and JSON as kubectl writes them.

Used by all commands that print objects. No I/O: takes values, returns text. Uses no colour, so that
the output can be searched with grep.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from kilnwork.api import api_resources, meta

MIN_CELL = 12
"""Minimum width to which a column is cut."""

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]  # the C dumper has no types
    """YAML dumper that writes multi-line text as blocks, like kubectl, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value and not value.startswith((" ", "\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(enum.StrEnum, lambda dumper, member: _text(dumper, member.value))


def yaml_text(value: Any, *, sort_keys: bool = True) -> str:
    """Return YAML, with sorted keys by default, as kubectl prints objects.

    `sort_keys=False` keeps the order of the keys, for manifests that people read and keep.
    """
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=sort_keys, default_flow_style=False, allow_unicode=True
    )
    return text


def json_text(value: Any) -> str:
    """Return JSON indented by four, with sorted keys, as kubectl prints objects."""
    plain = msgspec.json.encode(value, order="sorted")
    return msgspec.json.format(plain, indent=4).decode() + "\n"


def document(value: Any, form: str | None, *, managed_fields: bool = False) -> str:
    """Return an object as JSON for `-o json`, otherwise as YAML.

    `managed_fields`: keep metadata.managedFields, of objects alone or in a list, which kubectl
    leaves out by default.
    """
    if not managed_fields and isinstance(value, dict):
        value = _without_managed_fields(value)
        if isinstance(value.get("items"), list):
            value["items"] = [_without_managed_fields(item) for item in value["items"]]
    return json_text(value) if form == "json" else yaml_text(value)


def _without_managed_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    metadata = found.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return dict(found)
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**found, "metadata": kept}


def columns(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table with three spaces between columns, aligned like kubectl's."""
    cells = [list(header), *([cell(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return [
        "   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def fitted(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    width: int,
    flexible: Sequence[str],
) -> list[str]:
    """Return the lines of a table that are at most `width` characters long.

    The columns named in `flexible`, in this order, lose the middle of long cells, down to
    `MIN_CELL`. Lines are longer only if that is not enough.
    """
    cells = [[cell(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in (list(header), *cells)) for i in range(len(header))]
    too_wide = sum(widths) + 3 * (len(widths) - 1) - width
    for i in map(list(header).index, flexible):
        less = max(0, min(too_wide, widths[i] - MIN_CELL))
        widths[i] -= less
        too_wide -= less
    return columns(header, [[cut(c, widths[i]) for i, c in enumerate(row)] for row in cells])


def cut(text: str, width: int) -> str:
    """Return a text with its middle removed if it is longer than `width`."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def cell(value: object) -> str:
    """Return a value as the text of a table cell; None is `<none>`, as in kubectl."""
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace("\n", "\\n")


def short_time(seconds: float) -> str:
    """Return an age as kubectl shows it: `5s`, `3m`, `2h`, `4d`."""
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{seconds:.0f}s"


def took(seconds: float) -> str:
    """Return a time span like `short_time`, but below ten seconds as `52ms`, `3.4s`."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 9.95 else short_time(seconds)


def full_name(served: api_resources.Resource, name: str) -> str:
    """Return the name of an object as `singular.group/name`.

    `-o name` and the results of changes name objects in this form.
    """
    kind = f"{served.singular}.{served.group}" if served.group else served.singular
    return f"{kind}/{name}"


def object_list(items: Sequence[meta.JsonObject]) -> meta.JsonObject:
    """Return several objects as one List, as `kubectl get -o yaml` prints them."""
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": list(items),
        "metadata": {"resourceVersion": ""},
    }
