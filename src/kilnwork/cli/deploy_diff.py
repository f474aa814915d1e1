"""Changes that `kiln deploy` makes: compares two versions of a JobConfig field by field.

No I/O; used by the command `deploy`. The server computes the new version (a dry run of server-side
apply), so that its defaults and the fields of other clients are included.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import job_config, meta
from kilnwork.cli import merge_patch

FIELD_MANAGER = "kiln-deploy"
"""Field manager of server-side apply for deployed fields."""

MAX_VALUE = 80
"""Maximum length of a value in the line about a change."""

_ABSENT: Any = msgspec.UNSET


class FieldChange(NamedTuple):
    """Change of one field between two versions of a JobConfig; UNSET stands for a missing value."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.before is _ABSENT:
            return f"{self.field}: added {_shown(self.after)}"
        if self.after is _ABSENT:
            return f"{self.field}: removed, was {_shown(self.before)}"
        return f"{self.field}: {_shown(self.before)} -> {_shown(self.after)}"


def changes(live: meta.JsonObject, wanted: meta.JsonObject) -> list[FieldChange]:
    """Return the fields of spec, labels and annotations in which two versions of an object
    differ.
    """
    return list(_differences("", _compared(live), _compared(wanted)))


def _compared(obj: meta.JsonObject) -> dict[str, Any]:
    metadata = obj.get("metadata") or {}
    kept = {name: metadata.get(name) or {} for name in ("labels", "annotations")}
    return {"metadata": kept, "spec": obj.get("spec") or {}}


def with_defaults(body: meta.JsonObject) -> meta.JsonObject:
    """Return a valid JobConfig with the defaults of omitted optional parts written out.

    Server-side apply removes only what it has set before. Without the defaults, removing a schedule
    from the module would leave the server's default values, which are not a valid schedule.
    """
    declared = msgspec.convert(body, job_config.JobConfig)
    template = _filled(body["spec"]["template"]["spec"], declared.spec.template.spec, _OPTIONAL)
    what = declared.spec.template.spec.effective_task
    template["taskTemplate"] = _filled(template["taskTemplate"], what, None)
    spec = _filled(body["spec"], declared.spec, frozenset({"schedule"}))
    return {**body, "spec": {**spec, "template": {**spec["template"], "spec": template}}}


_OPTIONAL = frozenset({"retry", "timeouts", "parallelism", "finalizer"})
"""Optional parts of a template."""


def _filled(given: meta.JsonObject, declared: Any, parts: frozenset[str] | None) -> meta.JsonObject:
    """Return the object with defaults filled in below the fields in `parts`.

    None for `parts`: everywhere.
    """
    made = dict(given)
    for field in msgspec.structs.fields(declared):
        name = field.encode_name
        if name in given and (parts is None or name in parts):
            made[name] = _whole(given[name], getattr(declared, field.name))
    return made


def _whole(given: Any, declared: Any) -> Any:
    if isinstance(declared, tuple) and isinstance(given, list):
        return [_whole(*pair) for pair in zip(given, declared, strict=True)]
    if not isinstance(declared, msgspec.Struct) or not isinstance(given, dict):
        return given
    made = _filled(given, declared, None)
    for field in msgspec.structs.fields(declared):
        value = getattr(declared, field.name)
        if field.encode_name not in given and isinstance(value, str | int | float) and value:
            made[field.encode_name] = value
    return made


def _differences(field: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            at = f"{field}.{name}" if field else name
            yield from _differences(at, before.get(name, _ABSENT), after.get(name, _ABSENT))
    elif (old := _by_name(before)) is not None and (new := _by_name(after)) is not None:
        if list(old) != list(new) and old.keys() == new.keys():
            yield FieldChange(f"{field}[*].name", list(old), list(new))
        for name in dict.fromkeys((*old, *new)):
            at = f"{field}[{name}]"
            yield from _differences(at, old.get(name, _ABSENT), new.get(name, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for position, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(f"{field}[{position}]", *pair)
    elif not merge_patch.same(before, after):
        yield FieldChange(field, before, after)


def _by_name(value: Any) -> dict[str, Any] | None:
    """Return the items of a list by name, or None if an item has no name or two items share one."""
    if not isinstance(value, list) or not value:
        return None
    named = {item["name"]: item for item in value if isinstance(item, Mapping) and "name" in item}
    return named if len(named) == len(value) else None


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value, order="sorted").decode()
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
