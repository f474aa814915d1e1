"""The operations of the API for the OpenAPI page: parameters, bodies, responses.

Pure; used by `openapi`. A test checks that this table lists exactly what `app` routes.
"""

from typing import Any

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import model
from kilnwork.server.jobs import parameters, source_sizing

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
"""A file that is valid with any of its parameters here; `csv`, `json` and gzip need other
content."""

FUNCTION = "^[A-Za-z_][A-Za-z0-9_.]{0,99}:[A-Za-z_][A-Za-z0-9_]{0,99}$"
_BY_HAND = ("spec", "command")
"""Parameters of a URL that need a special schema: one is JSON, one excludes another."""

_SHARED: dict[str, _Object] = {
    "clusterName": {"$ref": "#/components/schemas/FileJobSpec/properties/clusterName"},
    "maxLineBytes": {"$ref": "#/components/schemas/InputSpec/properties/maxLineBytes"},
}
"""Parameters whose schemas depend on the server and are filled in by `openapi`."""


def paths() -> _Object:
    """Return `paths` of the page."""
    job, file = _in_path("job"), _in_path("file", uuid=True)
    found: _Object = {
        "/jobs": {"get": _list(), "post": _submit()},
        "/jobs/{job}": {
            "get": _reads("job", _ref(_JOB), _wait(), "304"),
            "patch": _patch(),
            "delete": _op("deleteJob", {"202": None}, "404", "412"),
            "parameters": [job],
        },
        "/jobs/{job}/parts": {
            "get": _reads(
                "parts", _array("PartDocument"), [_enum("state", model.PartState), *_paged()]
            ),
            "parameters": [job],
        },
        "/jobs/{job}/manifest": {
            "get": _reads("manifest", _ref(_MANIFEST)),
            "parameters": [job],
        },
        "/jobs/{job}/watch": {"get": _watch(), "parameters": [job]},
        "/files": {"get": _op("listFiles", {"200": _array("Upload")}, "404"), "post": _begin()},
        "/files/{file}": {
            "get": _op("getFile", {"200": _ref("Upload")}, "404"),
            "head": _op("headFile", {"204": None}, "404"),
            "patch": _go_on(),
            "delete": _op("deleteFile", {"204": None}, "404"),
            "parameters": [file],
        },
        "/jobs/openapi.json": {"get": _op("describe", {"200": {"type": "object"}}, "404")},
    }
    partial = _query("partial", {"type": "boolean"})
    part = _query("part", _whole(1, filejobs.MAX_PARTS))
    downloads = {"results": [part, partial], "errors": [partial], "input": []}
    for name, taken in downloads.items():
        found[f"/jobs/{{job}}/{name}"] = {"get": _download(name, taken), "parameters": [job]}
    for name in ("cancel", "suspend", "resume", "retry", *_FORMER):
        done = _op(f"{name}Job", {"202": _ref(_JOB)}, "404", "409", "412")
        if name in _FORMER:
            done["deprecated"] = True
        found[f"/jobs/{{job}}/{name}"] = {"post": done, "parameters": [job]}
    for item in found.values():
        item.setdefault("parameters", []).append(_namespace())
    return found


_FORMER = ("pause", "redrive")
"""Former names of suspend and retry, which still work."""


def _op(name: str, good: _Object, *bad: str) -> _Object:
    responses: _Object = {}
    for code, schema in good.items():
        responses[code] = {"description": _TEXTS[code]}
        if schema is not None:
            responses[code]["content"] = {"application/json": {"schema": schema}}
    for code in sorted({*bad, *_COMMON}):
        content = {"application/problem+json": {"schema": _ref("Problem")}}
        responses[code] = {"description": _TEXTS[code], "content": content}
    # who has no token meets Kubernetes' own form at `kiln up`
    responses["401"]["content"]["application/json"] = {"schema": {"type": "object"}}
    return {"operationId": name, "responses": responses}


def _list() -> _Object:
    named = _query("name", {"type": "string"})
    everywhere = _query("allNamespaces", {"type": "boolean"})
    taken = [_enum("phase", filejobs.FileJobPhase), named, everywhere, *_paged(text=True)]
    return {**_op("listJobs", {"200": _array(_JOB)}), "parameters": taken}


def _reads(name: str, schema: _Object, taken: list[_Object] | None = None, *more: str) -> _Object:
    found = _op(name, {"200": schema}, "404")
    for code in more:
        found["responses"][code] = {"description": _TEXTS[code]}
    return {**found, "parameters": taken or []}


def _submit() -> _Object:
    found = _op(
        "createJob",
        {"202": _ref(_JOB)},
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
    known = [_query(name, one) for name, one in _fields().items() if name not in _BY_HAND]
    known.append({"name": "spec", "in": "query", "content": {"application/json": _SPEC}})
    compat = [
        _query(name, {"type": "string"}) for name in source_sizing.PARAMETERS if name != "batch"
    ]
    by_file = _query(
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
    """Return the schemas of the flat parameters, taken from the fields that they stand for."""
    _, schemas = msgspec.json.schema_components([filejobs.FileJobSpec])
    found: _Object = {}
    for name, place in parameters.FLAT.items():
        schema = schemas["FileJobSpec"]
        for one in place:
            schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
            schema = _resolved(schema["properties"][one], schemas)
        found[name] = _SHARED.get(place[-1]) or _value(schema)
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


def _value(schema: _Object) -> _Object:
    """Return the schema of a parameter, which cannot be null: it is left out instead."""
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    found = dict(kinds[0]) if kinds else schema
    return {key: value for key, value in found.items() if key not in ("title", "description")}


def _patch() -> _Object:
    found = _op("changeJob", {"200": _ref(_JOB)}, "404", "408", "409", "412", "413", "415", "422")
    content = {"application/merge-patch+json": {"schema": _ref("Patch")}}
    return {**found, "requestBody": {"required": True, "content": content}}


def _download(name: str, taken: list[_Object]) -> _Object:
    found = _op(name, {}, "404", "409", "410", "412", "416")
    lines = {"application/x-ndjson": {"schema": {"type": "string"}}}
    for code in ("200", "206"):
        found["responses"][code] = {"description": _TEXTS[code], "content": lines}
    found["responses"]["304"] = {"description": _TEXTS["304"]}
    return {**found, "parameters": taken, "description": "Range, If-Range, If-Match as usual."}


def _watch() -> _Object:
    found = _op("watch", {"204": None}, "404")
    text = {"type": "string"}
    event = {"type": "object", "properties": {"event": text, "id": text, "data": text}}
    stream = {"text/event-stream": {"schema": event}}
    found["responses"]["200"] = {"description": "Events `job`", "content": stream}
    last = _header("Last-Event-ID", {"type": "string"})
    return {**found, "parameters": [last]}


def _begin() -> _Object:
    found = _op(
        "beginFile", {"201": _ref("Upload")}, "404", "408", "409", "413", "415", "429", "507"
    )
    body = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {**found, **_upload(), "requestBody": {"content": body}}


def _go_on() -> _Object:
    found = _op(
        "continueFile",
        {"200": _ref("Upload"), "204": None},
        *("404", "408", "409", "413", "415", "429", "507"),
    )
    offset = _header("Upload-Offset", _whole(0, 2**49))
    body = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    more = _upload()
    more["parameters"].append({**offset, "required": True})
    return {**found, **more, "requestBody": {"content": body}}


def _upload() -> _Object:
    complete = _header("Upload-Complete", {"type": "string", "enum": ["?1", "?0"]})
    text = (
        "draft-ietf-httpbis-resumable-upload: Content-Type application/partial-upload for PATCH; "
        "Upload-Length if it is known"
    )
    return {"parameters": [complete], "description": text}


def _paged(*, text: bool = False) -> list[_Object]:
    cursor = {"type": "string", "pattern": "^[0-9]{1,18}$"}
    after = cursor if text else _whole(0, filejobs.MAX_PARTS)
    return [_query("limit", _whole(1, 1000)), _query("after", after)]


def _wait() -> list[_Object]:
    return [_query("wait", _whole(0, 60), "Seconds to wait for its end")]


def _enum(name: str, kind: type[filejobs.FileJobPhase] | type[model.PartState]) -> _Object:
    return _query(name, {"type": "string", "enum": list(kind)})


def _namespace() -> _Object:
    pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
    return _query("namespace", {"type": "string", "pattern": pattern}, "Default: `default`")


def _in_path(name: str, *, uuid: bool = False) -> _Object:
    schema = {"type": "string", "format": "uuid"} if uuid else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(name: str, schema: _Object, text: str = "") -> _Object:
    found = {"name": name, "in": "query", "schema": schema}
    return {**found, "description": text} if text else found


def _header(name: str, schema: _Object) -> _Object:
    return {"name": name, "in": "header", "schema": schema}


def _whole(least: int, most: int) -> _Object:
    return {"type": "integer", "minimum": least, "maximum": most}


def _ref(name: str) -> _Object:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(name: str) -> _Object:
    return {"type": "array", "items": _ref(name)}
