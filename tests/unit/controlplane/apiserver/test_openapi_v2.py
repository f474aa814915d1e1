"""OpenAPI v3 forms in those of v2."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import builtin_schemas, openapi_v2

REFERENCE = f"{builtin_schemas.REFERENCE}io.k8s.X"
V2 = {"$ref": "#/definitions/io.k8s.X"}


@pytest.mark.parametrize(
    ("v3", "v2"),
    [
        ({"$ref": REFERENCE}, V2),
        ({"allOf": [{"$ref": REFERENCE}], "default": {}}, V2),
        (
            {"allOf": [{"$ref": REFERENCE}], "description": "d", "default": {}},
            {"description": "d", **V2},
        ),
        ({"type": "integer", "nullable": True}, {"type": "integer"}),
        ({"oneOf": [{"type": "string"}], "format": "f"}, {"type": "string", "format": "f"}),
        ({"properties": {"a": {"$ref": REFERENCE}}}, {"properties": {"a": V2}}),
        ({"items": [{"$ref": REFERENCE}, 3]}, {"items": [V2, 3]}),
    ],
)
def test_v3_schemas_are_converted(v3: Any, v2: Any) -> None:
    assert openapi_v2.as_v2(v3) == v2


def test_property_named_ref_is_kept() -> None:
    schema = {"$ref": {"type": "string"}}
    assert openapi_v2.as_v2(schema) == schema


def test_request_body_becomes_a_parameter() -> None:
    schema = {"$ref": REFERENCE}
    operation = {
        "parameters": [{"name": "q", "in": "query", "schema": {"type": "string"}}],
        "requestBody": {"content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "OK", "content": {"a/b": {"schema": schema}}}},
        "x-kubernetes-action": "post",
        "operationId": "dropped",
    }
    paths = {"/p": {"parameters": [{"name": "n", "schema": {"type": "x"}}], "post": operation}}
    made = openapi_v2.document({"title": "t"}, paths, {"X": {"nullable": True}})
    assert made == {
        "swagger": "2.0",
        "info": {"title": "t"},
        "definitions": {"X": {}},
        "paths": {
            "/p": {
                "parameters": [{"name": "n", "type": "x"}],
                "post": {
                    "x-kubernetes-action": "post",
                    "parameters": [
                        {"name": "q", "in": "query", "type": "string"},
                        {"name": "body", "in": "body", "required": True, "schema": V2},
                    ],
                    "produces": ["application/json", "application/yaml"],
                    "consumes": ["application/json"],
                    "responses": {"200": {"description": "OK", "schema": V2}},
                },
            }
        },
    }
