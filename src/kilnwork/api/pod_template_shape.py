"""The parts of a PodTemplateSpec that kilnwork reads, and a check of their shape.

Used by the validation of SyncSets and by the controller of TaskClusters: our schemas do not
describe templates, which are too large for them. The API server checks the rest. No I/O.
"""

from typing import Any

import msgspec


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    image: str | None = None
    env: list[dict[str, Any]] | None = None
    resources: dict[str, dict[str, Any] | list[Any] | None] | None = None
    volumeMounts: list[dict[str, Any]] | None = None  # noqa: N815 - the field's name


class _Spec(msgspec.Struct, frozen=True):
    containers: list[_Container] | None = None
    schedulingGates: list[dict[str, Any]] | None = None  # noqa: N815 - the field's name
    tolerations: list[dict[str, Any]] | None = None
    volumes: list[dict[str, Any]] | None = None


class _Meta(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(msgspec.Struct, frozen=True):
    metadata: _Meta | None = None
    spec: _Spec | None = None


def shape_problem(template: dict[str, Any] | None) -> str:
    """Return why no Pod can be created from a template, or "" if the parts that are read are
    valid."""
    try:
        msgspec.convert(template, _Template | None)
    except msgspec.ValidationError as error:
        return f"is no Pod template: {error}"
    return ""
