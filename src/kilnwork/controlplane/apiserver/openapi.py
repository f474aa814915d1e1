"""OpenAPI documents: what `kubectl explain`, `apply` and client generators read.

Used by the HTTP app for `/openapi/v3`, `/openapi/v3/GROUPVERSION` and `/openapi/v2`. Our kinds are
described in full, from the CRD schemas; built-in kinds as far as `shapes` knows them. Documents are
made on first use and kept as bytes.
"""

import copy
import functools
import hashlib
from typing import Any

import msgspec

from kilnwork import version as versions
from kilnwork.api import meta, resource, schema
from kilnwork.controlplane.apiserver import builtin, shapes, statuses

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_OBJECT_META = f"{_META}.ObjectMeta"
_LIST_META = f"{_META}.ListMeta"
_STATUS = f"{_META}.Status"
_V3_REFERENCE = "#/components/schemas/"
_V2_REFERENCE = "#/definitions/"
_GVK = "x-kubernetes-group-version-kind"

_PACKAGES = {
    "": "io.k8s.api.core.v1",
    "coordination.k8s.io": "io.k8s.api.coordination.v1",
    "rbac.authorization.k8s.io": "io.k8s.api.rbac.v1",
}

_ABOUT = {
    "Namespace": "A scope for names.",
    "Node": "A machine that runs Pods.",
    "Pod": "Containers that run together on one node.",
    "Secret": "Small secret data. Values of `data` are base64, of `stringData` plain text.",
    "ConfigMap": "Configuration data for Pods to consume.",
    "ServiceAccount": "An identity for processes in Pods.",
    "Event": "A report of something that happened to an object.",
    "Lease": "A claim with a holder and a time of renewal.",
    "Role": "A set of rights in one namespace.",
    "RoleBinding": "Gives the rights of a Role to users, groups or service accounts.",
}

_METADATA_ABOUT = {
    "name": "Unique within a namespace for this kind; cannot be changed.",
    "generateName": "A prefix for a name that the server completes, when `name` is not given.",
    "namespace": "The scope within which the name is unique; cannot be changed.",
    "uid": "Unique over space and time; set by the server.",
    "resourceVersion": "Opaque version of the object; it changes with every write.",
    "generation": "Counts the changes of the desired state.",
    "creationTimestamp": "When the object was made, RFC 3339; set by the server.",
    "deletionTimestamp": "When the object will be gone; set by the server on deletion.",
    "labels": "Keys and values by which objects are selected.",
    "annotations": "Keys and values for tools; not selectable.",
    "ownerReferences": "Objects that this one depends on: it is deleted once all are gone.",
    "finalizers": "Names that must all be removed before the object is really deleted.",
}

_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_LIST_PARAMETERS = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "watch",
)
_DELETE_PARAMETERS = ("dryRun", "gracePeriodSeconds", "propagationPolicy")


def document(path: str, *, accept: str = "*/*") -> bytes | None:
    """The document at a URL path under `/openapi`, as JSON; None when there is none.

    406 for clients that take OpenAPI v2 as protobuf only.
    """
    if path == "/openapi/v2":
        if not _accepts_json(accept):
            raise statuses.not_acceptable(
                "only the following media types are accepted: application/json"
            )
        return _v2()
    if path == "/openapi/v3":
        return _index()
    return _group_document(path.removeprefix("/openapi/v3/"))


def _index() -> bytes:
    """Where the document of each group and version is, with its hash."""
    paths = {}
    for path in _group_paths():
        digest = hashlib.sha256(_group_document(path) or b"").hexdigest()[:32].upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return msgspec.json.encode({"paths": paths})


@functools.lru_cache(maxsize=32)
def _group_document(path: str) -> bytes | None:
    """The OpenAPI v3 document of `api/v1` or `apis/GROUP/VERSION`; None when not served."""
    served = _group_paths().get(path)
    if served is None:
        return None
    paths: meta.JsonObject = {}
    schemas = _common_schemas()
    for one in served:
        paths |= _paths(one)
        schemas |= _schemas(one)
    return msgspec.json.encode(
        {
            "openapi": "3.0.0",
            "info": _info(),
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


@functools.cache
def _v2() -> bytes:
    """Definitions, and the paths that clients look up."""
    paths: meta.JsonObject = {}
    definitions = _common_schemas()
    for one in builtin.SERVED:
        paths |= {path: {} for path in _paths(one)}
        definitions |= _schemas(one)
    return msgspec.json.encode(
        {
            "swagger": "2.0",
            "info": _info(),
            "paths": paths,
            "definitions": _as_v2(definitions),
        }
    )


def _accepts_json(accept: str) -> bool:
    wanted = [option.partition(";")[0].strip() for option in accept.split(",")]
    return any(option in ("", "*/*", "application/*", "application/json") for option in wanted)


def _info() -> meta.JsonObject:
    return {"title": "kilnwork", "version": versions.__version__}


@functools.cache
def _group_paths() -> dict[str, list[builtin.Served]]:
    found: dict[str, list[builtin.Served]] = {}
    for served in builtin.SERVED:
        what = served.resource
        prefix = f"apis/{what.group}" if what.group else "api"
        found.setdefault(f"{prefix}/{what.version}", []).append(served)
    return found


def _schema_name(what: resource.Resource) -> str:
    package = _PACKAGES.get(what.group)
    if package is None:
        package = f"{'.'.join(reversed(what.group.split('.')))}.{what.version}"
    return f"{package}.{what.kind}"


def _gvk(what: resource.Resource, *, suffix: str = "") -> dict[str, str]:
    return {"group": what.group, "version": what.version, "kind": f"{what.kind}{suffix}"}


def _reference(name: str) -> meta.JsonObject:
    return {"$ref": f"{_V3_REFERENCE}{name}"}


def _schemas(served: builtin.Served) -> dict[str, Any]:
    what = served.resource
    name = _schema_name(what)
    own = _custom_schema(served) if served.custom else _built_in_schema(what)
    own[_GVK] = [_gvk(what)]
    items = {
        "description": f"List of {what.plural}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [_reference(_LIST_META)], "default": {}},
            "items": {"type": "array", "items": _reference(name)},
        },
        _GVK: [_gvk(what, suffix="List")],
    }
    return {name: own, f"{name}List": items}


def _custom_schema(served: builtin.Served) -> schema.Schema:
    own: schema.Schema = copy.deepcopy(served.schema or {})
    own["properties"]["metadata"] = _metadata()
    return own


def _built_in_schema(what: resource.Resource) -> schema.Schema:
    own = schema.structural(shapes.of(what), defaults=False)
    own["description"] = _ABOUT.get(what.kind, what.kind)
    own["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **{key: _open(value) for key, value in own["properties"].items()},
        "metadata": _metadata(),
    }
    own[schema.PRESERVE] = True
    return own


def _open(node: schema.Schema) -> schema.Schema:
    """Marks every object as holding more than is described, and drops what only msgspec says."""
    kept = {k: v for k, v in node.items() if k not in ("nullable", "description")}
    if "properties" in kept:
        kept["properties"] = {k: _open(v) for k, v in kept["properties"].items()}
        kept[schema.PRESERVE] = True
    if "items" in kept:
        kept["items"] = _open(kept["items"])
    return kept


def _metadata() -> schema.Schema:
    return {
        "description": "Standard object metadata.",
        "allOf": [_reference(_OBJECT_META)],
        "default": {},
    }


def _common_schemas() -> dict[str, Any]:
    object_meta = _open(schema.structural(shapes.Metadata, defaults=False))
    object_meta.pop(schema.PRESERVE, None)
    object_meta["description"] = "Metadata that every stored object has."
    for field, about in _METADATA_ABOUT.items():
        node = object_meta["properties"][field]
        object_meta["properties"][field] = {"description": about} | node
    list_meta = {
        "description": "Metadata of a list.",
        "type": "object",
        "properties": {
            "continue": {"type": "string"},
            "remainingItemCount": {"type": "integer"},
            "resourceVersion": {"type": "string"},
        },
    }
    status = {"description": "The outcome of a request.", "type": "object", schema.PRESERVE: True}
    status[_GVK] = [{"group": "", "version": "v1", "kind": "Status"}]
    return {_OBJECT_META: object_meta, _LIST_META: list_meta, _STATUS: status}


def _paths(served: builtin.Served) -> meta.JsonObject:
    what = served.resource
    base = what.base("{namespace}" if what.namespaced else None)
    paths = {
        base: _collection(served),
        f"{base}/{{name}}": _item(served),
    }
    if what.namespaced:
        everywhere = {"get": _operation(served, "list", _LIST_PARAMETERS, suffix="List")}
        paths[what.base()] = everywhere
    if served.status_subresource:
        paths[f"{base}/{{name}}/status"] = _item(served, status=True)
    return paths


def _collection(served: builtin.Served) -> meta.JsonObject:
    return {
        "parameters": _path_parameters(served, named=False),
        "get": _operation(served, "list", _LIST_PARAMETERS, suffix="List"),
        "post": _operation(served, "post", _WRITE_PARAMETERS, body="application/json"),
        "delete": _operation(served, "deletecollection", _DELETE_PARAMETERS),
    }


def _item(served: builtin.Served, *, status: bool = False) -> meta.JsonObject:
    item = {
        "parameters": _path_parameters(served, named=True),
        "get": _operation(served, "get", ()),
        "put": _operation(served, "put", _WRITE_PARAMETERS, body="application/json"),
        "patch": _operation(
            served, "patch", _WRITE_PARAMETERS, body="application/merge-patch+json"
        ),
    }
    if not status:
        item["delete"] = _operation(served, "delete", _DELETE_PARAMETERS)
    return item


def _operation(
    served: builtin.Served,
    action: str,
    parameters: tuple[str, ...],
    *,
    suffix: str = "",
    body: str = "",
) -> meta.JsonObject:
    what = served.resource
    name = f"{_schema_name(what)}{suffix}"
    operation: meta.JsonObject = {
        "parameters": [_query_parameter(p) for p in parameters],
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": _reference(name)}},
            },
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action,
        _GVK: _gvk(what),
    }
    if body:
        operation["requestBody"] = {"content": {body: {"schema": _reference(name)}}}
    return operation


_INTEGERS = frozenset({"limit", "timeoutSeconds", "gracePeriodSeconds"})
_FLAGS = frozenset({"allowWatchBookmarks", "watch"})


def _query_parameter(name: str) -> meta.JsonObject:
    type_ = "integer" if name in _INTEGERS else "boolean" if name in _FLAGS else "string"
    return {"name": name, "in": "query", "schema": {"type": type_, "uniqueItems": True}}


def _path_parameters(served: builtin.Served, *, named: bool) -> list[meta.JsonObject]:
    names = ["namespace"] if served.resource.namespaced else []
    if named:
        names.append("name")
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _as_v2(node: Any) -> Any:
    """Swagger 2 knows no `nullable` and no `allOf` around a reference with more beside it."""
    if isinstance(node, list):
        return [_as_v2(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "allOf" in node and len(node["allOf"]) == 1:
        return _as_v2(node["allOf"][0])
    if "$ref" in node:
        return {"$ref": node["$ref"].replace(_V3_REFERENCE, _V2_REFERENCE)}
    return {key: _as_v2(value) for key, value in node.items() if key != "nullable"}
