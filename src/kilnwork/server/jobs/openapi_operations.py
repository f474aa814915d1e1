"""The operations of the API for the OpenAPI page: parameters, bodies, responses.

Pure; used by `openapi`. A test checks that this table lists exactly what `app` routes.
"""

from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import file_job_types
from kilnwork.server.jobs import aksjobscheduler_settings, parameters

_Object = dict[str, Any]

_TEXTS = {
    "200": "OK",
    "201": "Created",
    "202": "Accepted",
    "204": "No content",
    "206": "Partial content",
    "304": "Not modified",
    "400": "It cannot be understood; `detail` names the field",
    "401": "A token is missing or not known",
    "403": "The token may not do this",
    "404": "There is no such thing",
    "405": "The path does not take this method",
    "408": "The body did not come in time",
    "409": "Not in this state; `progress` says how far it is",
    "410": "It is not in the store any more",
    "412": "If-Match names another version",
    "413": "Larger than this server takes",
    "415": "A type or coding that is not taken here",
    "416": "The range begins after the end",
    "422": "Understood, and cannot be carried out",
    "429": "Too often; Retry-After says when to come again",
    "503": "Starting or stopping: come again",
    "507": "No room on the server's disk; nothing was kept",
}
_COMMON = ("400", "401", "403", "405", "503")

_JOB, _PART, _MANIFEST = "JobDocument", "PartDocument", "ManifestDocument"
_SPEC: _Object = {"schema": {"$ref": "#/components/schemas/JobOrder"}}
_LINES: _Object = {"type": "string", "pattern": "^[ -~]{1,2000}$"}
"""Schema of an example file that is valid with any parameters of the page; `csv`, `json` and gzip
need other content."""

FUNCTION = "^[A-Za-z_][A-Za-z0-9_.]{0,99}:[A-Za-z_][A-Za-z0-9_]{0,99}$"
_BY_HAND = ("spec", "command")
"""Parameters of a URL whose schemas are written by hand: `spec` is JSON, `command` excludes another
parameter."""

_SHARED: dict[str, _Object] = {
    "clusterName": {"$ref": "#/components/schemas/FileJobSpec/properties/clusterName"},
    "maxLineBytes": {"$ref": "#/components/schemas/InputSpec/properties/maxLineBytes"},
}
"""Parameters whose schemas depend on the server and are filled in by `openapi`."""


def paths() -> _Object:
    """Return the `paths` object of the OpenAPI page."""
    job, file = _path_parameter("job"), _path_parameter("file", uuid=True)
    found: _Object = {
        "/jobs": {"get": _list_jobs(), "post": _create_job()},
        "/jobs/{job}": {
            "get": _read_operation("job", _schema_ref(_JOB), _wait_parameter(), "304"),
            "patch": _patch(),
            "delete": _operation("deleteJob", {"202": None}, "404", "412"),
            "parameters": [job],
        },
        "/jobs/{job}/parts": {
            "get": _read_operation(
                "parts",
                _array("PartDocument"),
                [_enum_parameter("state", file_job_types.PartState), *_page_parameters()],
            ),
            "parameters": [job],
        },
        "/jobs/{job}/manifest": {
            "get": _read_operation("manifest", _schema_ref(_MANIFEST)),
            "parameters": [job],
        },
        "/jobs/{job}/watch": {"get": _watch(), "parameters": [job]},
        "/files": {
            "get": _operation("listFiles", {"200": _array("Upload")}, "404"),
            "post": _begin_upload(),
        },
        "/files/{file}": {
            "get": _operation("getFile", {"200": _schema_ref("Upload")}, "404"),
            "head": _operation("headFile", {"204": None}, "404"),
            "patch": _continue_upload(),
            "delete": _operation("deleteFile", {"204": None}, "404"),
            "parameters": [file],
        },
        "/jobs/openapi.json": {"get": _operation("describe", {"200": {"type": "object"}}, "404")},
    }
    partial = _query_parameter("partial", {"type": "boolean"})
    part = _query_parameter("part", _integer(1, filejobs.MAX_PARTS))
    downloads = {"results": [part, partial], "errors": [partial], "input": []}
    for name, taken in downloads.items():
        found[f"/jobs/{{job}}/{name}"] = {"get": _download(name, taken), "parameters": [job]}
    for name in ("cancel", "suspend", "resume", "retry", *_FORMER):
        done = _operation(f"{name}Job", {"202": _schema_ref(_JOB)}, "404", "409", "412")
        if name in _FORMER:
            done["deprecated"] = True
        found[f"/jobs/{{job}}/{name}"] = {"post": done, "parameters": [job]}
    for item in found.values():
        item.setdefault("parameters", []).append(_namespace())
    return found


_FORMER = ("pause", "redrive")
"""Former names of suspend and retry, which still work."""


def _operation(name: str, good: _Object, *bad: str) -> _Object:
    responses: _Object = {}
    for code, schema in good.items():
        responses[code] = {"description": _TEXTS[code]}
        if schema is not None:
            responses[code]["content"] = {"application/json": {"schema": schema}}
    for code in sorted({*bad, *_COMMON}):
        content = {"application/problem+json": {"schema": _schema_ref("Problem")}}
        responses[code] = {"description": _TEXTS[code], "content": content}
    # at `kiln up`, requests without a token get an error in the format of Kubernetes
    responses["401"]["content"]["application/json"] = {"schema": {"type": "object"}}
    return {"operationId": name, "responses": responses}


def _list_jobs() -> _Object:
    named = _query_parameter("name", {"type": "string"})
    everywhere = _query_parameter("allNamespaces", {"type": "boolean"})
    taken = [
        _enum_parameter("phase", filejobs.FileJobPhase),
        named,
        everywhere,
        *_page_parameters(text=True),
    ]
    return {**_operation("listJobs", {"200": _array(_JOB)}), "parameters": taken}


def _read_operation(
    name: str, schema: _Object, taken: list[_Object] | None = None, *more: str
) -> _Object:
    found = _operation(name, {"200": schema}, "404")
    for code in more:
        found["responses"][code] = {"description": _TEXTS[code]}
    return {**found, "parameters": taken or []}


def _create_job() -> _Object:
    found = _operation(
        "createJob",
        {"202": _schema_ref(_JOB)},
        *("404", "408", "409", "413", "415", "422", "429", "507"),
    )
    found["responses"]["202"]["content"]["text/plain"] = {"schema": {"type": "string"}}
    found["responses"]["202"]["headers"] = {"Location": {"schema": {"type": "string"}}}
    form = {
        "type": "object",
        "properties": {**_fields(), "file": _LINES},
        "required": ["file"],
        "not": {"required": ["mapper", "command"]},
        "additionalProperties": False,
    }
    found["requestBody"] = {
        "required": True,
        "description": "The file: a field of a form, or the body itself, of any type",
        "content": {
            "multipart/form-data": {"schema": form},
            "text/plain": {"schema": _LINES},
        },
    }
    known = [_query_parameter(name, one) for name, one in _fields().items() if name not in _BY_HAND]
    known.append({"name": "spec", "in": "query", "content": {"application/json": _SPEC}})
    compat = [
        _query_parameter(name, {"type": "string"})
        for name in aksjobscheduler_settings.PARAMETERS
        if name != "batch"
    ]
    by_file = _query_parameter(
        "file", {"type": "string", "format": "uuid"}, "A file of /files, instead of a body"
    )
    found["parameters"] = [by_file, *known, *compat]
    found["description"] = (
        "Repeats with the same Idempotency-Key make one job (other content: 422, under way: 409). "
        "`command`: a program with arguments, instead of `mapper`; `batchRecords`: with a "
        "function; `gzip=true` for a compressed file, `format` csv and json for those. Fields that "
        "say how the file is read come before it in a form. With `Accept: text/plain` the response "
        "is the id alone."
    )
    return found


def _fields() -> _Object:
    """Return the schemas of the flat parameters, taken from the fields of the spec that they
    set.
    """
    _, schemas = msgspec.json.schema_components([filejobs.FileJobSpec])
    found: _Object = {}
    for name, place in parameters.FLAT.items():
        schema = schemas["FileJobSpec"]
        for one in place:
            schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
            schema = _resolved(schema["properties"][one], schemas)
        found[name] = _SHARED.get(place[-1]) or _parameter_schema(schema)
    del found["gzip"]
    found["format"] = {"type": "string", "enum": ["jsonl", "text"]}
    function = FUNCTION.strip("^$")
    found["mapper"] = {"type": "string", "pattern": f"^(calculator|identity|{function})$"}
    found["command"] = {"type": "string", "pattern": "^[A-Za-z]+( [a-z0-9]+)*$"}
    found["reducer"] = {"type": "string", "pattern": f"^(identity|{function})$"}
    found["spec"] = _SPEC["schema"]
    return found


def _resolved(schema: _Object, schemas: _Object) -> _Object:
    found = {key: value for key, value in schema.items() if key != "default"}
    name = found.pop("$ref", None)
    if name is None and len(found.get("allOf", ())) == 1:
        name = found["allOf"][0].get("$ref")
    return found if name is None else dict(schemas[name.rpartition("/")[2]])


def _parameter_schema(schema: _Object) -> _Object:
    """Return the schema of a parameter, made from the schema of a field by removing null: a
    parameter without a value is left out.
    """
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    found = dict(kinds[0]) if kinds else schema
    return {key: value for key, value in found.items() if key not in ("title", "description")}


def _patch() -> _Object:
    found = _operation(
        "changeJob", {"200": _schema_ref(_JOB)}, "404", "408", "409", "412", "413", "415", "422"
    )
    content = {"application/merge-patch+json": {"schema": _schema_ref("Patch")}}
    return {**found, "requestBody": {"required": True, "content": content}}


def _download(name: str, taken: list[_Object]) -> _Object:
    found = _operation(name, {}, "404", "409", "410", "412", "416")
    lines = {"application/x-ndjson": {"schema": {"type": "string"}}}
    for code in ("200", "206"):
        found["responses"][code] = {"description": _TEXTS[code], "content": lines}
    found["responses"]["304"] = {"description": _TEXTS["304"]}
    return {**found, "parameters": taken, "description": "Range, If-Range, If-Match as usual."}


def _watch() -> _Object:
    found = _operation("watch", {"204": None}, "404")
    text = {"type": "string"}
    event = {"type": "object", "properties": {"event": text, "id": text, "data": text}}
    stream = {"text/event-stream": {"schema": event}}
    found["responses"]["200"] = {"description": "Events `job`", "content": stream}
    last = _header_parameter("Last-Event-ID", {"type": "string"})
    return {**found, "parameters": [last]}


def _begin_upload() -> _Object:
    found = _operation(
        "beginFile", {"201": _schema_ref("Upload")}, "404", "408", "409", "413", "415", "429", "507"
    )
    body = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {**found, **_upload_parameters(), "requestBody": {"content": body}}


def _continue_upload() -> _Object:
    found = _operation(
        "continueFile",
        {"200": _schema_ref("Upload"), "204": None},
        *("404", "408", "409", "413", "415", "429", "507"),
    )
    offset = _header_parameter("Upload-Offset", _integer(0, 2**49))
    body = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    more = _upload_parameters()
    more["parameters"].append({**offset, "required": True})
    return {**found, **more, "requestBody": {"content": body}}


def _upload_parameters() -> _Object:
    complete = _header_parameter("Upload-Complete", {"type": "string", "enum": ["?1", "?0"]})
    text = (
        "draft-ietf-httpbis-resumable-upload: Content-Type application/partial-upload for PATCH; "
        "Upload-Length if it is known"
    )
    return {"parameters": [complete], "description": text}


def _page_parameters(*, text: bool = False) -> list[_Object]:
    cursor = {"type": "string", "pattern": "^[0-9]{1,18}$"}
    after = cursor if text else _integer(0, filejobs.MAX_PARTS)
    return [_query_parameter("limit", _integer(1, 1000)), _query_parameter("after", after)]


def _wait_parameter() -> list[_Object]:
    return [_query_parameter("wait", _integer(0, 60), "Seconds to wait for its end")]


def _enum_parameter(
    name: str, kind: type[filejobs.FileJobPhase] | type[file_job_types.PartState]
) -> _Object:
    return _query_parameter(name, {"type": "string", "enum": list(kind)})


def _namespace() -> _Object:
    pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
    return _query_parameter(
        "namespace", {"type": "string", "pattern": pattern}, "Default: `default`"
    )


def _path_parameter(name: str, *, uuid: bool = False) -> _Object:
    schema = {"type": "string", "format": "uuid"} if uuid else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(name: str, schema: _Object, text: str = "") -> _Object:
    found = {"name": name, "in": "query", "schema": schema}
    return {**found, "description": text} if text else found


def _header_parameter(name: str, schema: _Object) -> _Object:
    return {"name": name, "in": "header", "schema": schema}


def _integer(least: int, most: int) -> _Object:
    return {"type": "integer", "minimum": least, "maximum": most}


def _schema_ref(name: str) -> _Object:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(name: str) -> _Object:
    return {"type": "array", "items": _schema_ref(name)}
