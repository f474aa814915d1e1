"""The types of built-in kinds, as the real API server describes them in OpenAPI v3.

Used for unknown fields, the keys by which lists merge, apply patches, and what `kubectl explain`
shows. The file behind it is made by `hack/kinds.py` from Kubernetes (Apache License 2.0). Schemas
of custom kinds are in their CustomResourceDefinitions, and rules beyond types in `rules_*`.
"""

import functools
import gzip
from importlib import resources
from typing import Any

import msgspec

from kilnwork.api import resource

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/"

_GVK = "x-kubernetes-group-version-kind"
_UNNAMED: Schema = {}


@functools.cache
def definitions() -> dict[str, Schema]:
    """Every type by its full name (`io.k8s.api.core.v1.Pod`). Not to be changed. 20 ms at first."""
    packed = resources.files("kilnwork.controlplane.apiserver").joinpath("types.json.gz")
    found: dict[str, Schema] = msgspec.json.decode(gzip.decompress(packed.read_bytes()))
    return found


@functools.cache
def _by_kind() -> dict[tuple[str, str, str], str]:
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in definitions().items()
        for gvk in schema.get(_GVK, ())
    }


def name_of(group: str, version: str, kind: str) -> str | None:
    """The full name of a kind's type, or None."""
    return _by_kind().get((group, version, kind))


def of(kind: resource.Resource) -> Schema | None:
    """The type of a built-in kind; None when it is not described."""
    name = name_of(kind.group, kind.version, kind.kind)
    return None if name is None else definitions()[name]


def resolved(schema: Schema) -> Schema:
    """`schema` itself, or what it refers to (by `$ref`, or `allOf` with one `$ref`)."""
    reference = schema.get("$ref")
    if reference is None and "allOf" in schema:
        reference = schema["allOf"][0].get("$ref")
    if reference is None:
        return schema
    return definitions().get(reference.removeprefix(REFERENCE), _UNNAMED)


def below(schema: Schema, name: str) -> Schema | None:
    """The type of field `name` in an object of type `schema`, unresolved; None when unknown."""
    known = schema.get("properties", {}).get(name)
    found: Schema | None = schema.get("additionalProperties") if known is None else known
    return found
