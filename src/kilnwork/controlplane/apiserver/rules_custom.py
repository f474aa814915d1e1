"""Validation of custom objects: by schema, by CEL rules, and by rules registered for the kind.

Used by admission. Registered rules are in `installed_kind_types`; this module turns their problems
into causes.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kilnwork.api import meta
from kilnwork.controlplane import installed_kind_types
from kilnwork.controlplane.apiserver import (
    builtin,
    causes,
    field_types,
    rules_cel,
    schema_validation,
    typed_decoding,
)


def validate(
    served: builtin.ServedResource, obj: meta.JsonObject, *, old: meta.JsonObject | None = None
) -> Iterator[causes.Cause]:
    """Yield the problems of a custom object; rules are checked only if it conforms to the schema.

    Problems that `old` already had are ignored, as with schemas (KEP-4008): an object that predates
    a rule can still be deleted, and its finalizers can be removed.
    """
    problems = validate_schema(served, obj, old=old)
    if not problems and served.extension is not None:
        problems = list(_extended(served.extension, obj))
        if problems and old is not None:
            old_problems = list(_extended(served.extension, old))
            problems = [cause for cause in problems if cause not in old_problems]
    # CEL rules presuppose an object that conforms to its schema.
    yield from problems or rules_cel.validate(served, obj, old=old)
    if old is not None and served.extension is not None:
        yield from _causes(served.extension.validate_update(old, obj), obj)


def validate_schema(
    served: builtin.ServedResource, obj: meta.JsonObject, *, old: meta.JsonObject | None
) -> list[causes.Cause]:
    """Return a cause for each place where the object does not conform to its schema."""
    return (
        []
        if served.schema is None
        else list(schema_validation.validate(served.schema, obj, old=old))
    )


def validate_status(
    served: builtin.ServedResource, obj: meta.JsonObject, *, old: meta.JsonObject
) -> Iterator[causes.Cause]:
    """Yield forbidden changes of the status."""
    if served.extension is not None:
        yield from _causes(served.extension.validate_status(old, obj), obj)


def warnings(
    served: builtin.ServedResource, new: meta.JsonObject, *, old: meta.JsonObject | None
) -> Iterable[str]:
    """Return the registered warnings about an object."""
    return () if served.extension is None else served.extension.warnings(new, old)


def _extended(
    kind: installed_kind_types.InstalledKind, obj: meta.JsonObject
) -> Iterator[causes.Cause]:
    yield from _causes(kind.validate(obj), obj)
    if kind.pod_template:
        template = (obj.get("spec") or {}).get(kind.pod_template) or {}
        try:
            typed_decoding.read_typed(_pod_template(), template)
        except typed_decoding.WrongType as error:
            field = f"spec.{kind.pod_template}"
            yield causes.invalid(field, "", f"is no Pod template: {error}")


def _causes(
    problems: Iterable[installed_kind_types.Problem], obj: meta.JsonObject
) -> Iterator[causes.Cause]:
    for field, why in problems:
        yield causes.invalid(field, _value_at(obj, field), why)


@functools.cache
def _pod_template() -> field_types.FieldType:
    """Return the type core/v1 PodTemplateSpec."""
    spec = field_types.named("io.k8s.api.core.v1.PodSpec")
    return field_types.FieldType(
        field_types.ValueForm.STRUCT,
        go="v1.PodTemplateSpec",
        fields={"metadata": field_types.metadata(), "spec": spec},
    )


def _value_at(obj: meta.JsonObject, path: str) -> Any:
    """Return the value at a path such as `spec.inputs[0].path`, or None if it is missing."""
    value: Any = obj
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list):
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value
