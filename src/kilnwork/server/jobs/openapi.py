"""OpenAPI 3.1 page of the Jobs API; its schemas are generated from the structs that the API sends.

Used by `app`, by client generators, and by the tests that compare the page with the server.
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from kilnwork import version
from kilnwork.api import filejobs
from kilnwork.api import schema_generation as api_schema
from kilnwork.jobs import file_job_types
from kilnwork.kit import asgi
from kilnwork.server.jobs import (
    context,
    control,
    documents,
    http_resource_base,
    openapi_operations,
    parameters,
    upload_handlers,
)

_REF = "#/components/schemas/{name}"

_Object = dict[str, Any]


class OpenApiPage:
    """Handler of the OpenAPI page, which lists the TaskClusters of the requested namespace."""

    def __init__(self, shared: context.HandlerContext) -> None:
        self._shared = shared

    async def document(
        self, request: http_resource_base.JobRequest, response: asgi.Response
    ) -> None:
        """Send the OpenAPI page: GET /jobs/openapi.json."""
        request.check_known()
        known = self._shared.clusters_of(await self._shared.check(request, "list"))
        most = self._shared.settings.most_line_bytes
        page = document(sorted(known), most_line_bytes=most)
        await response.send(200, asgi.JSON, msgspec.json.encode(page) + b"\n")


def document(clusters: Sequence[str] = (), *, most_line_bytes: int = 1 << 30) -> _Object:
    """Return the whole OpenAPI page.

    `clusters`: TaskClusters on which jobs may run; if empty, any name is allowed.
    `most_line_bytes`: maximum record size of the server; by default the maximum of a job's spec.
    """
    kinds = (
        documents.JobDocument,
        documents.PartDocument,
        documents.Problem,
        control.Patch,
        upload_handlers.Upload,
        documents.ManifestDocument,
        filejobs.FileJobSpec,
        file_job_types.PartState,
    )
    _, schemas = api_schema.schema_components(kinds, ref_template=_REF)
    described = {"description": schemas["Mapper"]["description"]}
    schemas["Mapper"] = {**described, **_mapper_schema(parameters.BUILTINS, batches=True)}
    schemas["Reducer"] = _mapper_schema([parameters.IDENTITY], batches=False)
    reducer = [{"$ref": _REF.format(name="Reducer")}, {"type": "null"}]
    if clusters:
        schemas["FileJobSpec"]["properties"]["clusterName"]["enum"] = list(clusters)
    schemas["FileJobSpec"]["properties"]["reducer"] = {"anyOf": reducer}
    order = schemas["JobOrder"] = copy.deepcopy(schemas["FileJobSpec"])
    order["title"] = "JobOrder"
    order["description"] = "A FileJobSpec with `input`, which says how the file is read."
    del order["properties"]["input"]
    schemas["InputSpec"]["properties"]["maxLineBytes"]["maximum"] = most_line_bytes
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kilnwork Jobs API",
            "version": version.__version__,
            "summary": "Upload a file, map it in parallel, get one ordered result.",
        },
        "security": [{"token": []}],
        "paths": openapi_operations.paths(),
        "components": {
            "schemas": {name: _clean_schema(one) for name, one in schemas.items()},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A Kubernetes token; `kiln token` prints one.",
                }
            },
        },
    }


def _mapper_schema(builtins: Sequence[str], *, batches: bool) -> _Object:
    """Return the schema of a mapper or reducer, which must be exactly one of three kinds of
    mapper.
    """
    text = {"type": "string", "pattern": parameters.WORD}
    digest = {"type": ["string", "null"], "pattern": parameters.DIGEST}
    function: _Object = {"type": "string", "pattern": parameters.FUNCTION}
    called: _Object = {"function": function, "code": digest, "environment": digest}
    if batches:
        called["batchRecords"] = {"type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000}
    command = {"type": "array", "items": text, "minItems": 1}
    ways: list[tuple[str, _Object]] = [
        ("builtin", {"builtin": {"type": "string", "enum": list(builtins)}}),
        ("function", called),
        ("command", {"command": command, "environment": digest}),
    ]
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": properties,
                "required": [name],
                "additionalProperties": False,
            }
            for name, properties in ways
        ]
    }


def _clean_schema(schema: Any) -> Any:
    """Return a schema with dedented descriptions, and without defaults, which are not part of the
    contract."""
    if isinstance(schema, dict):
        found = {key: _clean_schema(value) for key, value in schema.items() if key != "default"}
        text = found.get("description")
        return {**found, "description": inspect.cleandoc(text)} if isinstance(text, str) else found
    return [_clean_schema(one) for one in schema] if isinstance(schema, list) else schema
