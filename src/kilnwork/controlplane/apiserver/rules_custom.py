"""Rules for custom objects: their schema, rules in CEL, and what is registered for their kind.

Used by admission. What is registered stands in `extensions`; only the refusal is made here.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kilnwork.api import meta
from kilnwork.controlplane import extensions
from kilnwork.controlplane.apiserver import (
    builtin,
    causes,
    decoding,
    field_types,
    rules_cel,
    structural,
)


def validate(
    served: builtin.ServedResource, obj: meta.JsonObject, *, old: meta.JsonObject | None = None
) -> Iterator[causes.Cause]:
    """Yield what is wrong with a custom object; rules only when the schema is fulfilled.

    What was as wrong in `old` is let be, as with schemas (KEP-4008): an object from before a rule
    can still be killed, and its finalizers removed.
    """
    found = validate_schema(served, obj, old=old)
    if not found and served.extension is not None:
        found = list(_extended(served.extension, obj))
        if found and old is not None:
            known = list(_extended(served.extension, old))
            found = [cause for cause in found if cause not in known]
    yield from found or rules_cel.validate(served, obj, old=old)
    if old is not None and served.extension is not None:
        yield from _causes(served.extension.validate_update(old, obj), obj)


def validate_schema(
    served: builtin.ServedResource, obj: meta.JsonObject, *, old: meta.JsonObject | None
) -> list[causes.Cause]:
    """Return what its schema says is wrong."""
    return [] if served.schema is None else list(structural.validate(served.schema, obj, old=old))


def validate_status(
    served: builtin.ServedResource, obj: meta.JsonObject, *, old: meta.JsonObject
) -> Iterator[causes.Cause]:
    """Yield what may not change in the status."""
    if served.extension is not None:
        yield from _causes(served.extension.validate_status(old, obj), obj)


def warnings(
    served: builtin.ServedResource, new: meta.JsonObject, *, old: meta.JsonObject | None
) -> Iterable[str]:
    """Return what is registered as allowed but surprising."""
    return () if served.extension is None else served.extension.warnings(new, old)


def _extended(kind: extensions.Kind, obj: meta.JsonObject) -> Iterator[causes.Cause]:
    yield from _causes(kind.validate(obj), obj)
    if kind.pod_template:
        template = (obj.get("spec") or {}).get(kind.pod_template) or {}
        try:
            decoding.read_as(_pod_template(), template)
        except decoding.WrongType as error:
            field = f"spec.{kind.pod_template}"
            yield causes.invalid(field, "", f"is no Pod template: {error}")


def _causes(problems: Iterable[extensions.Problem], obj: meta.JsonObject) -> Iterator[causes.Cause]:
    for field, why in problems:
        yield causes.invalid(field, _value_at(obj, field), why)


@functools.cache
def _pod_template() -> field_types.FieldType:
    """core/v1 PodTemplateSpec."""
    spec = field_types.named("io.k8s.api.core.v1.PodSpec")
    return field_types.FieldType(
        field_types.ValueForm.STRUCT,
        go="v1.PodTemplateSpec",
        fields={"metadata": field_types.metadata(), "spec": spec},
    )


def _value_at(obj: meta.JsonObject, path: str) -> Any:
    """Return the value at `spec.inputs[0].path`; None when there is none."""
    value: Any = obj
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list):
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value
