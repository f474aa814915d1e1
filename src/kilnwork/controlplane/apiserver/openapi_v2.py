"""The OpenAPI v2 document as JSON, converted from the v3 documents.

Used by `openapi`. Does no I/O. kubectl reads the document for kinds that the v3 documents lack.
"""

from typing import Any

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import builtin_schemas

_V2_REFERENCE = "#/definitions/"
_PRODUCED = ["application/json", "application/yaml"]


def document(info: meta.JsonObject, paths: meta.JsonObject, schemas: meta.JsonObject) -> Any:
    """Return the OpenAPI v2 document with the given paths and types, which are in v3 form."""
    return {
        "swagger": "2.0",
        "info": info,
        "paths": {path: _path_item(item) for path, item in paths.items()},
        "definitions": as_v2(schemas),
    }


def as_v2(node: Any) -> Any:
    """Convert a schema from OpenAPI v3 to Swagger 2.

    The result has no `nullable` and no `oneOf`, and no `allOf` or `default` around a reference.
    """
    if isinstance(node, list):
        return [as_v2(item) for item in node]
    if not isinstance(node, dict):
        return node
    target = _target(node)
    if target is not None:
        about = {"description": node["description"]} if "description" in node else {}
        return {**about, "$ref": target.replace(builtin_schemas.REFERENCE, _V2_REFERENCE)}
    kept = {key: as_v2(value) for key, value in node.items() if key not in ("nullable", "oneOf")}
    # Swagger 2 has no oneOf; of the built-in types only quantities use it: strings there.
    return {"type": "string", **kept} if isinstance(node.get("oneOf"), list) else kept


def _target(node: dict[str, Any]) -> str | None:
    """Return the reference of a schema, or None.

    A field may be called `$ref` too, but is no string.
    """
    wrapped = node.get("allOf")
    if isinstance(wrapped, list) and len(wrapped) == 1:
        node = wrapped[0]
    found = node.get("$ref")
    return found if isinstance(found, str) else None


def _path_item(item: meta.JsonObject) -> meta.JsonObject:
    """Convert a path item of OpenAPI v3: `parameters` is a list, every other member an
    operation.
    """
    return {
        key: [_parameter(one) for one in value] if key == "parameters" else _operation(value)
        for key, value in item.items()
    }


def _operation(operation: meta.JsonObject) -> meta.JsonObject:
    found = {key: value for key, value in operation.items() if key.startswith("x-")}
    found["parameters"] = [_parameter(one) for one in operation["parameters"]]
    found["produces"] = _PRODUCED
    found["responses"] = {
        code: _response(response) for code, response in operation["responses"].items()
    }
    given = operation.get("requestBody")
    if given:
        found["consumes"] = list(given["content"])
        schema = as_v2(next(iter(given["content"].values()))["schema"])
        body = {"name": "body", "in": "body", "required": True, "schema": schema}
        found["parameters"].append(body)
    return found


def _parameter(parameter: meta.JsonObject) -> meta.JsonObject:
    """Convert a query or path parameter, whose type is beside its name in v2."""
    named = {key: value for key, value in parameter.items() if key != "schema"}
    return {**named, **parameter["schema"]}


def _response(response: meta.JsonObject) -> meta.JsonObject:
    found = {"description": response["description"]}
    for content in response.get("content", {}).values():
        found["schema"] = as_v2(content["schema"])
    return found
