"""Paths of the OpenAPI documents: the operations of each resource and their parameters.

Used by `openapi`. Clients look up here what a server supports, such as `fieldValidation` on PATCH.
"""

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import builtin, builtin_schemas

GVK = "x-kubernetes-group-version-kind"

_PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC = "application/strategic-merge-patch+json"
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_INTEGERS = frozenset({"limit", "timeoutSeconds", "gracePeriodSeconds"})
_FLAGS = frozenset(
    {"allowWatchBookmarks", "watch", "force", "sendInitialEvents", "orphanDependents"}
)


def schema_name(what: api_resources.Resource) -> str:
    """Return the full name of the type of a kind.

    For custom kinds it contains the group reversed, like a package.
    """
    known = builtin_schemas.name_of(what.group, what.version, what.kind)
    if known is not None:
        return known
    return f"{'.'.join(reversed(what.group.split('.')))}.{what.version}.{what.kind}"


def gvk(what: api_resources.Resource, *, suffix: str = "") -> dict[str, str]:
    """Return the group, version and kind with which OpenAPI marks a type or operation."""
    return {"group": what.group, "version": what.version, "kind": f"{what.kind}{suffix}"}


def reference(name: str) -> meta.JsonObject:
    return {"$ref": f"{builtin_schemas.REFERENCE}{name}"}


def paths(served: builtin.ServedResource) -> meta.JsonObject:
    """Return all paths of one resource with their operations."""
    what = served.resource
    base = what.base("{namespace}" if what.namespaced else None)
    found: meta.JsonObject = {base: _collection(served), f"{base}/{{name}}": _item(served)}
    if what.namespaced:
        # All namespaces together can only be listed.
        found[what.base()] = {"get": _operation(served, "list", _LIST, suffix="List")}
    for name in ("status", "ephemeralcontainers"):
        if served.subresource(name) is not None:
            found[f"{base}/{{name}}/{name}"] = _item(served, below=True)
    return found


def _collection(served: builtin.ServedResource) -> meta.JsonObject:
    found = {
        "parameters": _path_parameters(served, named=False),
        "get": _operation(served, "list", _LIST, suffix="List"),
        "post": _operation(served, "post", _WRITE, bodies=("application/json",)),
    }
    if "deletecollection" in served.verbs:
        found["delete"] = _operation(served, "deletecollection", _DELETE)
    return found


def _item(served: builtin.ServedResource, *, below: bool = False) -> meta.JsonObject:
    patches = _PATCHES if served.custom else (*_PATCHES, _STRATEGIC)
    found = {
        "parameters": _path_parameters(served, named=True),
        "get": _operation(served, "get", ()),
        "put": _operation(served, "put", _WRITE, bodies=("application/json",)),
        "patch": _operation(served, "patch", (*_WRITE, "force"), bodies=patches),
    }
    if not below:
        found["delete"] = _operation(served, "delete", _DELETE)
    return found


def _operation(
    served: builtin.ServedResource,
    action: str,
    parameters: tuple[str, ...],
    *,
    suffix: str = "",
    bodies: tuple[str, ...] = (),
) -> meta.JsonObject:
    what = served.resource
    response = reference(f"{schema_name(what)}{suffix}")
    operation: meta.JsonObject = {
        "parameters": [_query_parameter(p) for p in parameters],
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": response}}},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action,
        GVK: gvk(what),
    }
    if bodies:
        given = reference(_PATCH) if action == "patch" else response
        operation["requestBody"] = {"content": {body: {"schema": given} for body in bodies}}
    return operation


def _query_parameter(name: str) -> meta.JsonObject:
    type_ = "integer" if name in _INTEGERS else "boolean" if name in _FLAGS else "string"
    return {"name": name, "in": "query", "schema": {"type": type_, "uniqueItems": True}}


def _path_parameters(served: builtin.ServedResource, *, named: bool) -> list[meta.JsonObject]:
    names = ["namespace"] if served.resource.namespaced else []
    if named:
        names.append("name")
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
