"""Managed fields: which manager owns which field (`metadata.managedFields`), and server-side apply.

Used by `object_writer`, `write_checks` and `resource_handler`. Does no I/O; the time is passed in.
Follows k8s.io/apimachinery/pkg/util/managedfields and merge/update.go of structured-merge-diff: a
write owns the fields it changes, an apply owns the fields it names; changing a field of another
manager is a conflict unless forced; a field that an applier no longer names is removed if no other
manager owns it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import field_sets, statuses, structured_merge
from kilnwork.controlplane.apiserver.field_types import FieldType

APPLY, UPDATE = "Apply", "Update"
MAX_UPDATERS = 10
"""Maximum number of entries with operation Update; beyond it the oldest are merged."""

MAX_MANAGER = 128
_ANCIENT = "ancient-changes"
_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_BEFORE_APPLY = "before-first-apply"

_METADATA: field_sets.Set = {"f:metadata": {}}
"""Kept in every object, even when no manager owns anything in it."""

_NOT_TRACKED: field_sets.Set = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:clusterName": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}
_KIND = ("apiVersion", "kind")
_OF_THE_SERVER = frozenset(name.removeprefix("f:") for name in _NOT_TRACKED["f:metadata"])
_ALWAYS_THERE: meta.JsonObject = {
    "metadata": {},
    "spec": {},
    "status": {},
    "roleRef": {},
    "rules": None,
}
"""Empty values that Go encodes in built-in objects even if the client sent no such field.

These are structs, and lists without `omitempty`. The creator of an object does not own them.
"""


class FieldManager(msgspec.Struct, frozen=True):
    """Identity of a writer: name, API version, subresource and operation."""

    name: str
    api_version: str
    subresource: str = ""
    operation: str = UPDATE

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Return the key that identifies the entry of a manager.

        An applier has the same key in every API version.
        """
        version = "" if self.operation == APPLY else self.api_version
        return (self.name, self.operation, version, self.subresource)


class _Entry(msgspec.Struct):
    manager: FieldManager
    time: str
    fields: field_sets.Set = msgspec.field(default_factory=dict)


_Entries = dict[tuple[str, str, str, str], _Entry]


def name_of(given: str, user_agent: str) -> str:
    """Return the name of the field manager of a request.

    It is the parameter `fieldManager`, else the user agent up to the first slash.
    """
    plain = given or user_agent.partition("/")[0]
    return "".join(c for c in plain if c.isprintable())[:MAX_MANAGER] or "unknown"


def created(
    type_: FieldType,
    obj: meta.JsonObject,
    manager: FieldManager,
    *,
    now: str,
    custom: bool,
    filled_in: meta.JsonObject | None = None,
) -> None:
    """Set the managedFields of a new object.

    `filled_in` are fields that the server filled in and no manager owns, by part of the object.
    """
    nothing: meta.JsonObject = {"metadata": {}}
    if not custom:
        nothing |= _ALWAYS_THERE | (filled_in or {})
    own = structured_merge.compare(type_, nothing, _tracked(obj)).taken
    _write(obj, {manager.identity: _Entry(manager, now, own)} if own else {})


def updated(
    type_: FieldType,
    old: meta.JsonObject,
    new: meta.JsonObject,
    manager: FieldManager,
    *,
    given: Any,
    now: str,
) -> None:
    """Set the managedFields of a changed object.

    `given` are the managedFields that the client sent. An object without any entry is not tracked
    until the first apply.
    """
    # The documented way to reset the field: a list with one empty entry.
    if given == [{}]:
        _write(new, {})
        return
    before = old["metadata"].get("managedFields")
    # A client may change the entries themselves; unreadable ones are ignored.
    entries = _read(given if given != before and _is_readable(given) else before)
    if not entries:
        _write(new, {})
        return
    _take(entries, structured_merge.compare(type_, _tracked(old), _tracked(new)), manager, now)
    _write(new, _capped(entries))


def same_but_times(old: meta.JsonObject, new: meta.JsonObject) -> bool:
    """Return whether the managedFields of two objects differ at most in their times."""
    before, after = (o["metadata"].get("managedFields") or [] for o in (old, new))
    return [_timeless(e) for e in before] == [_timeless(e) for e in after]


def _timeless(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "time"}


def adopt(
    type_: FieldType, live: meta.JsonObject, api_version: str, *, now: str, custom: bool
) -> None:
    """Assign the fields of an untracked object to the manager `before-first-apply`.

    Called before every apply; does nothing if the object has managedFields or is only being
    created.
    """
    # Without a uid the object is only being created: no manager had it before.
    if not live["metadata"].get("managedFields") and live["metadata"].get("uid"):
        created(type_, live, FieldManager(_BEFORE_APPLY, api_version), now=now, custom=custom)


def apply(
    type_: FieldType,
    live: meta.JsonObject,
    config: meta.JsonObject,
    manager: FieldManager,
    *,
    force: bool,
    now: str,
) -> meta.JsonObject:
    """Return the object `live` merged with `config`, with updated managedFields.

    Raises 409 for a conflict, and `structured_merge.NotOfType` when `config` does not fit its type.
    """
    structured_merge.check(type_, config)
    before = _plain(live)
    entries = _read(live["metadata"].get("managedFields"))
    last = entries.get(manager.identity)
    wanted = structured_merge.fields(type_, config)
    merged = structured_merge.merge(type_, before, config)
    # Only what this manager has applied before can be removed by omitting it.
    if last is not None:
        others = [e.fields for key, e in entries.items() if key != manager.identity]
        kept = _joined([wanted, *others, _METADATA])
        merged = structured_merge.prune(type_, merged, last.fields, kept)
    changed = structured_merge.compare(type_, before, merged)
    allowed = _last_applied(type_, before) if manager.name == _KUBECTL else {}
    _settle(entries, changed, manager, force=force, allowed=allowed)
    own = field_sets.difference(wanted, _NOT_TRACKED)
    since = now
    if merged == before or (last is not None and last.fields == own):
        since = last.time if last is not None else ""  # a no-op apply must not change the object
    if own:
        entries[manager.identity] = _Entry(manager, since, own)
    else:
        entries.pop(manager.identity, None)
    made: meta.JsonObject = {**merged, "metadata": dict(merged.get("metadata") or {})}
    _write(made, entries)
    return made


def _settle(
    entries: _Entries,
    changed: structured_merge.Comparison,
    manager: FieldManager,
    *,
    force: bool,
    allowed: field_sets.Set,
) -> None:
    """Take the changed fields from other managers; without `force`, raise a 409 that names them.

    `allowed` are fields that may be taken without force.
    """
    # Only changed values conflict: managers that apply the same value own the field together.
    conflicts = {
        key: both
        for key, entry in entries.items()
        if key != manager.identity
        if (both := field_sets.intersection(entry.fields, changed.taken))
    }
    found = [
        (_shown(entries[key]), path)
        for key in sorted(conflicts)
        for path in field_sets.paths(field_sets.difference(conflicts[key], allowed))
    ]
    if found and not force:
        raise statuses.apply_conflict(found)
    lost = field_sets.union(changed.taken, changed.removed)
    for key in [key for key in entries if key != manager.identity]:
        entries[key].fields = field_sets.difference(entries[key].fields, lost)
        if not entries[key].fields:
            del entries[key]


def _last_applied(type_: FieldType, live: meta.JsonObject) -> field_sets.Set:
    """Return the fields that client-side apply has set and that are unchanged.

    kubectl takes these without a conflict when it switches to server-side apply.
    """
    annotations = live["metadata"].get("annotations") or {}
    try:
        last = msgspec.json.decode(annotations.get(_LAST_APPLIED, ""), type=dict)
    except msgspec.MsgspecError:
        return {}
    if not isinstance(last.get("metadata", {}), dict):
        return {}
    changed = structured_merge.compare(type_, live, last)
    return field_sets.difference(structured_merge.fields(type_, last), changed.taken)


def _take(
    entries: _Entries, changed: structured_merge.Comparison, manager: FieldManager, now: str
) -> None:
    """Assign the changed fields to a manager.

    Changed and deleted fields are removed from all other managers.
    """
    taken = changed.taken
    lost = field_sets.union(taken, changed.removed)
    ours = manager.identity
    before = entries.get(ours)
    kept = before.fields if before is not None else {}
    for key in list(entries):
        if taken and key == ours:
            continue  # created again below
        entries[key].fields = field_sets.difference(entries[key].fields, lost)
        if not entries[key].fields:
            del entries[key]
    if taken:
        rest = field_sets.difference(kept, changed.removed)
        entries[ours] = _Entry(manager, now, field_sets.union(rest, taken))


def _plain(obj: meta.JsonObject) -> meta.JsonObject:
    """Return the object without managedFields."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {**obj, "metadata": metadata}


def _tracked(obj: meta.JsonObject) -> meta.JsonObject:
    """Return the object without the fields that no manager can own."""
    metadata = {k: v for k, v in obj["metadata"].items() if k not in _OF_THE_SERVER}
    return {k: metadata if k == "metadata" else v for k, v in obj.items() if k not in _KIND}


def _joined(sets: Iterable[field_sets.Set]) -> field_sets.Set:
    made: field_sets.Set = {}
    for one in sets:
        made = field_sets.union(made, one)
    return made


def _shown(entry: _Entry) -> str:
    """Return the text by which error messages name the manager of an entry (printManager in
    apimachinery).
    """
    manager = entry.manager
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    if manager.operation == UPDATE:
        text += f" using {manager.api_version}"
    return text


def _read(wire: Sequence[Mapping[str, Any]] | None) -> _Entries:
    found: _Entries = {}
    for one in wire or ():
        manager = FieldManager(
            str(one.get("manager", "")),
            str(one.get("apiVersion", "")),
            str(one.get("subresource", "")),
            str(one.get("operation", UPDATE)),
        )
        fields = dict(one.get("fieldsV1") or {})
        if fields:
            found[manager.identity] = _Entry(manager, str(one.get("time", "")), fields)
    return found


def _is_readable(wire: Any) -> bool:
    """Return whether managedFields that a client sent are well-formed; others are ignored."""
    if not isinstance(wire, list) or not wire:
        return False
    return all(
        isinstance(one, dict)
        and isinstance(one.get("fieldsV1"), dict)
        and field_sets.is_set(one["fieldsV1"])
        for one in wire
    )


def _write(obj: meta.JsonObject, entries: _Entries) -> None:
    """Write the managedFields into the metadata of an object: appliers first, then by time and
    name.
    """
    metadata = obj["metadata"]
    metadata.pop("managedFields", None)
    if not entries:
        return
    in_order = sorted(
        entries.values(), key=lambda e: (e.manager.operation, e.time, e.manager.identity)
    )
    metadata["managedFields"] = [_encoded(entry) for entry in in_order]


def _encoded(entry: _Entry) -> dict[str, Any]:
    manager = entry.manager
    encoded = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        **({"time": entry.time} if entry.time else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields,
    }
    return encoded | ({"subresource": manager.subresource} if manager.subresource else {})


def _capped(entries: _Entries) -> _Entries:
    """Return at most `MAX_UPDATERS` entries of updates; the oldest are merged into one."""
    updates = [e for e in entries.values() if e.manager.operation == UPDATE]
    if len(updates) <= MAX_UPDATERS:
        return entries
    by_age = sorted(updates, key=lambda e: (e.time, e.manager.identity))
    # One more than there are too many, since the merged entry counts too.
    old = by_age[: len(updates) - MAX_UPDATERS + 1]
    kept = {key: entry for key, entry in entries.items() if entry not in old}
    version = old[-1].manager.api_version
    ancient = FieldManager(_ANCIENT, version)
    kept[ancient.identity] = _Entry(ancient, old[-1].time, _joined(e.fields for e in old))
    return kept
