"""Types of the built-in kinds, as kube-apiserver describes them in OpenAPI v3.

Used to find unknown fields and the keys by which lists merge, for apply patches, and for `kubectl
explain`. `hack/kinds.py` generates the data file from Kubernetes (Apache License 2.0). Schemas of
custom kinds are in their CustomResourceDefinitions; rules beyond types are in `rules_*`.
"""

import functools
import gzip
from importlib import resources
from typing import Any

import msgspec

from kilnwork.api import api_resources

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/"

_GVK = "x-kubernetes-group-version-kind"
_UNNAMED: Schema = {}


@functools.cache
def definitions() -> dict[str, Schema]:
    """Return all types of built-in kinds by full name (`io.k8s.api.core.v1.Pod`).

    Callers must not change them. The first call takes 20 ms.
    """
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
    """Return the full name of the type of a kind, or None if the kind is not built in."""
    return _by_kind().get((group, version, kind))


def type_of(kind: api_resources.Resource) -> Schema | None:
    """Return the type of a built-in kind, or None when it is not described."""
    name = name_of(kind.group, kind.version, kind.kind)
    return None if name is None else definitions()[name]


def resolved(schema: Schema) -> Schema:
    """Return the type that a schema refers to, or the schema itself if it refers to none.

    References are `$ref`, or `allOf` with one `$ref`.
    """
    reference = schema.get("$ref")
    if reference is None and "allOf" in schema:
        reference = schema["allOf"][0].get("$ref")
    if reference is None:
        return schema
    return definitions().get(reference.removeprefix(REFERENCE), _UNNAMED)


def below(schema: Schema, name: str) -> Schema | None:
    """Return the type of a field of objects of type `schema`, without resolving references.

    None for an unknown field.
    """
    known = schema.get("properties", {}).get(name)
    found: Schema | None = schema.get("additionalProperties") if known is None else known
    return found
