"""OpenAPI documents, for `kubectl explain`, `kubectl apply` and client generators.

Used by the HTTP app for `/openapi/v3`, `/openapi/v3/GROUPVERSION` and `/openapi/v2`. Built-in kinds
are described as by Kubernetes, custom ones by the schema of their definition. Documents are
generated at first use, cached as bytes, and generated again when other kinds are served.
"""

import copy
import hashlib
import re
from typing import Any

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane import kubernetes_version
from kilnwork.controlplane.apiserver import (
    builtin,
    builtin_schemas,
    openapi_paths,
    openapi_protobuf,
    openapi_v2,
    response_formats,
    statuses,
)

Kinds = tuple[builtin.ServedResource, ...]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_OBJECT_META = f"{_META}.ObjectMeta"
_LIST_META = f"{_META}.ListMeta"
_ALWAYS = tuple(f"{_META}.{name}" for name in ("DeleteOptions", "Patch", "Status"))
_V2 = "/openapi/v2"
_V2_PROTOBUF = "/openapi/v2 as protobuf"
_V3_ROOT = "/openapi/v3/"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION = {
    "description": (
        "APIVersion defines the versioned schema of this representation of an object. Servers "
        "should convert recognized schemas to the latest internal value, and may reject "
        f"unrecognized values. More info: {_CONVENTIONS}#resources"
    ),
    "type": "string",
}
_KIND = {
    "description": (
        "Kind is a string value representing the REST resource this object represents. Servers "
        "may infer this from the endpoint the client submits requests to. Cannot be updated. In "
        f"CamelCase. More info: {_CONVENTIONS}#types-kinds"
    ),
    "type": "string",
}


class EncodedDocument(msgspec.Struct, frozen=True):
    """An encoded OpenAPI document.

    `digest` is the SHA-512 of the document as JSON, in upper-case hex, also if `body` is protobuf.
    """

    body: bytes
    digest: str
    media_type: str = response_formats.JSON

    @classmethod
    def of(cls, document: meta.JsonObject) -> "EncodedDocument":
        body = msgspec.json.encode(document)
        return cls(body, hashlib.sha512(body).hexdigest().upper())


class Documents:
    """Cache of the OpenAPI documents of the kinds that are served now."""

    def __init__(self) -> None:
        self._served: Kinds = ()
        self._pages: dict[str, EncodedDocument] = {}

    def find(self, path: str, served: Kinds, *, accept: str = "*/*") -> EncodedDocument | None:
        """Return the OpenAPI document at a URL path, or None when there is none.

        Raises 406 for clients that accept OpenAPI v2 neither as JSON nor as protobuf.
        """
        # The catalog creates a new tuple whenever other kinds are served.
        if served is not self._served:
            self._served, self._pages = served, {}
        if path == _V2 and _v2_media_type(accept) != response_formats.JSON:
            path = _V2_PROTOBUF
        if path not in self._pages:
            made = self._make(path)
            if made is None:
                return None
            self._pages[path] = made
        return self._pages[path]

    def _make(self, path: str) -> EncodedDocument | None:
        if path == _V2:
            return EncodedDocument.of(_v2(self._served))
        if path == _V2_PROTOBUF:
            json = self.find(_V2, self._served)
            if json is None:
                return None
            body = openapi_protobuf.encode(msgspec.json.decode(json.body))
            return EncodedDocument(body, json.digest, openapi_protobuf.MEDIA_TYPE)
        groups = _by_group(self._served)
        if path == "/openapi/v3":
            paths = {}
            for name in groups:
                page = self.find(_V3_ROOT + name, self._served)
                digest = "" if page is None else page.digest
                # With the hash in its URL, clients may cache a document for ever (KEP-2896).
                paths[name] = {"serverRelativeURL": f"{_V3_ROOT}{name}?hash={digest}"}
            return EncodedDocument.of({"paths": paths})
        served = groups.get(path.removeprefix(_V3_ROOT))
        return None if served is None else EncodedDocument.of(_group_document(served))


def _by_group(served: Kinds) -> dict[str, list[builtin.ServedResource]]:
    found: dict[str, list[builtin.ServedResource]] = {}
    for one in served:
        what = one.resource
        root = f"apis/{what.group}" if what.group else "api"
        found.setdefault(f"{root}/{what.version}", []).append(one)
    return dict(sorted(found.items()))


def _group_document(served: list[builtin.ServedResource]) -> meta.JsonObject:
    paths: meta.JsonObject = {}
    schemas: dict[str, Any] = {}
    for one in served:
        paths |= openapi_paths.paths(one)
        schemas |= _schemas(one)
    _complete(schemas)
    return {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _v2(served: Kinds) -> Any:
    paths: meta.JsonObject = {}
    schemas: dict[str, Any] = {}
    for one in served:
        paths |= openapi_paths.paths(one)
        schemas |= _schemas(one)
    _complete(schemas)
    return openapi_v2.document(_info(), paths, schemas)


def _v2_media_type(accept: str) -> str:
    """Return the media type of OpenAPI v2 that the client prefers: JSON or protobuf.

    Raises 406 when it accepts neither.
    """
    for wanted in response_formats.media_ranges(accept):
        if wanted in ("*/*", "application/*", response_formats.JSON):
            return response_formats.JSON
        if wanted in (openapi_protobuf.MEDIA_TYPE, openapi_protobuf.OLD_MEDIA_TYPE):
            return openapi_protobuf.MEDIA_TYPE
    raise statuses.not_acceptable(
        "only the following media types are accepted: "
        f"{response_formats.JSON}, {openapi_protobuf.MEDIA_TYPE}"
    )


def _info() -> meta.JsonObject:
    version = f"{kubernetes_version.MAJOR}.{kubernetes_version.MINOR}"
    return {"title": "Kubernetes", "version": version}


def _schemas(served: builtin.ServedResource) -> dict[str, Any]:
    what = served.resource
    name = openapi_paths.schema_name(what)
    own = _custom(served) if served.custom else builtin_schemas.type_of(what) or {"type": "object"}
    items = {
        "description": f"{what.kind}List is a list of {what.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _API_VERSION,
            "items": {
                "description": f"List of {what.plural}. More info: {_CONVENTIONS}",
                "type": "array",
                "items": openapi_paths.reference(name),
            },
            "kind": _KIND,
            "metadata": _described(
                f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds", _LIST_META
            ),
        },
        openapi_paths.GVK: [openapi_paths.gvk(what, suffix="List")],
    }
    return {name: own, f"{name}List": items}


def _custom(served: builtin.ServedResource) -> meta.JsonObject:
    own = copy.deepcopy(served.schema or {})
    own.setdefault("type", "object")
    own["properties"] = {
        **own.get("properties", {}),
        "apiVersion": _API_VERSION,
        "kind": _KIND,
        "metadata": _described(
            f"Standard object's metadata. More info: {_CONVENTIONS}#metadata", _OBJECT_META
        ),
    }
    own[openapi_paths.GVK] = [openapi_paths.gvk(served.resource)]
    return own


def _described(about: str, name: str) -> meta.JsonObject:
    return {"description": about, "allOf": [openapi_paths.reference(name)]}


_REFERENCE = re.compile(rf'"{re.escape(builtin_schemas.REFERENCE)}([^"]+)"')


def _complete(schemas: dict[str, Any]) -> None:
    known = builtin_schemas.definitions()
    # Paths refer to these, whatever kinds are served.
    missing = {*_ALWAYS, *_referred(list(schemas.values()))} - schemas.keys()
    while missing:
        found = {name: known[name] for name in missing if name in known}
        schemas |= found
        missing = _referred(list(found.values())) - schemas.keys()


def _referred(schemas: list[Any]) -> set[str]:
    return set(_REFERENCE.findall(msgspec.json.encode(schemas).decode()))
