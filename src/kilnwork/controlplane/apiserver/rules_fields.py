"""Warnings for fields that are kept and have no effect here, from the table in `api`.

Used by admission. Nothing is refused for it: a Pod may be meant for another node than ours. The
real API server has no such warnings; there nodes and controllers say the same in conditions.
"""

from collections.abc import Iterator

from kilnwork.api import field_effects, kinds, meta, pod_fields, resource, task_fields
from kilnwork.api.field_effects import Side


def warnings(
    kind: resource.Resource, new: meta.JsonObject, *, old: meta.JsonObject | None = None
) -> Iterator[str]:
    """One for each field that does not do what it says; of an update for those that it changes."""
    before = set() if old is None else set(_sentences(kind, old))
    yield from (text for text in _sentences(kind, new) if text not in before)


def _sentences(kind: resource.Resource, obj: meta.JsonObject) -> Iterator[str]:
    if kind == resource.PODS:
        found = pod_fields.findings(obj.get("spec"), Side.EMBEDDED)
    else:
        found = task_fields.findings(kind.kind if kind in kinds.OURS else "", obj, Side.EMBEDDED)
    yield from map(field_effects.sentence, found)
