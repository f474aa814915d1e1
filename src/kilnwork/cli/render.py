"""Text for people and machines: plain tables, YAML and JSON as kubectl writes them.

Used by all commands that print objects. Pure: takes values, gives text. Never colour, so that every
state can be grepped.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from kilnwork.api import meta, resource

MIN_CELL = 12
"""No column is cut below this width."""

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]  # the C dumper has no types
    """Text with line breaks as a block, like kubectl; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value and not value.startswith((" ", "\n")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(enum.StrEnum, lambda dumper, member: _text(dumper, member.value))


def yaml_text(value: Any) -> str:
    """YAML with keys in order of the alphabet, as kubectl prints objects."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=True, default_flow_style=False, allow_unicode=True
    )
    return text


def json_text(value: Any) -> str:
    """JSON indented by four, keys in order of the alphabet, as kubectl prints objects."""
    plain = msgspec.json.encode(value, order="sorted")
    return msgspec.json.format(plain, indent=4).decode() + "\n"


def document(value: Any, form: str | None, *, managed_fields: bool = False) -> str:
    """JSON when `-o` says so, else YAML. `managed_fields`: of objects, alone or in a list, also who
    set which field, which kubectl leaves out unless it is asked for as well."""
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
    """Lines of a table with three spaces between columns, as kubectl aligns them."""
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
    """The same in lines of `width`: columns with these names, in this order, lose the middle of
    long cells, down to `MIN_CELL`. Wider only when that does not suffice."""
    cells = [[cell(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in (list(header), *cells)) for i in range(len(header))]
    too_wide = sum(widths) + 3 * (len(widths) - 1) - width
    for i in map(list(header).index, flexible):
        less = max(0, min(too_wide, widths[i] - MIN_CELL))
        widths[i] -= less
        too_wide -= less
    return columns(header, [[cut(c, widths[i]) for i, c in enumerate(row)] for row in cells])


def cut(text: str, width: int) -> str:
    """A text without its middle when it is longer."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def cell(value: object) -> str:
    """One value of a table; nothing is `<none>`, as kubectl has it."""
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace("\n", "\\n")


def short_time(seconds: float) -> str:
    """As kubectl shows ages: `5s`, `3m`, `2h`, `4d`."""
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{seconds:.0f}s"


def took(seconds: float) -> str:
    """How long something took: as `short_time`, and below ten seconds `52ms`, `3.4s`."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 9.95 else short_time(seconds)


def full_name(served: resource.Resource, name: str) -> str:
    """`singular.group/name`: how `-o name` and the results of changes name an object."""
    kind = f"{served.singular}.{served.group}" if served.group else served.singular
    return f"{kind}/{name}"


def object_list(items: Sequence[meta.JsonObject]) -> meta.JsonObject:
    """Several objects as one, as `kubectl get -o yaml` prints them."""
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": list(items),
        "metadata": {"resourceVersion": ""},
    }
