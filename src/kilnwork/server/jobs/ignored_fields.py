"""Fields and headers that the API accepts and ignores: each gets a warning that names it.

Pure; used by `submit`, `documents` and `http_resource_base`. A warning is a `Warning` header with
code 299, as in Kubernetes (KEP-1693). The response of POST /jobs has all of them in `warnings` of
the job's document, too; later documents have only those about the spec.
"""

from collections.abc import Iterable, Mapping

from kilnwork.api import filejobs

_KEY, _OFFSET, _COMPLETE, _LENGTH = (
    b"idempotency-key",
    b"upload-offset",
    b"upload-complete",
    b"upload-length",
)
_TAGS = (b"if-match", b"if-none-match")

_UNHEEDED = {
    b"if-match": "the request is carried out whatever the version is",
    b"if-unmodified-since": "there are no times of modification; If-Match heeds versions",
    b"content-range": "a body is taken as a whole; PATCH /files goes on at Upload-Offset",
    b"content-digest": "it is not checked; the document of the job has the sha256 of its input",
    b"repr-digest": "it is not checked; the document of the job has the sha256 of its input",
    b"digest": "it is not checked; the document of the job has the sha256 of its input",
    b"content-md5": "it is not checked; the document of the job has the sha256 of its input",
    b"x-http-method-override": "the method is that of the request",
    _KEY: "only POST /jobs is done once for each key",
    _OFFSET: "only PATCH /files goes on somewhere",
    _COMPLETE: "only /files takes a body in pieces",
    _LENGTH: "only /files takes a body in pieces",
}
"""Headers that clients send with an intention, and what happens where they are ignored. Headers
that HTTP itself allows a server to ignore (Range, Accept, caching, Prefer) are not listed."""

_HEEDED: dict[tuple[str, str], tuple[bytes, ...]] = {
    ("POST", "/jobs"): (_KEY,),
    ("PATCH", "/jobs/{job}"): _TAGS,
    ("DELETE", "/jobs/{job}"): _TAGS,
    ("POST", "/files"): (_COMPLETE, _LENGTH),
    ("PATCH", "/files/{file}"): (_OFFSET, _COMPLETE, _LENGTH),
    **{("GET", f"/jobs/{{job}}/{name}"): _TAGS for name in ("results", "errors", "input")},
    **{
        ("POST", f"/jobs/{{job}}/{name}"): _TAGS
        for name in ("cancel", "suspend", "pause", "resume", "retry", "redrive")
    },
}

HEADERS = tuple(name.decode() for name in _UNHEEDED)
"""Headers that cause a warning where they are ignored."""


def unheeded(method: str, path: str) -> frozenset[bytes]:
    """Return the headers that are ignored for a method and a path of the routing table of `app`."""
    method = "GET" if method == "HEAD" else method
    return frozenset(_UNHEEDED) - frozenset(_HEEDED.get((method, path), ()))


def of_headers(headers: Iterable[tuple[bytes, bytes]], passed_over: frozenset[bytes]) -> list[str]:
    """Return a warning for each header of a request whose name is in `passed_over`."""
    return [
        f"{name.decode().title()} is ignored: {_UNHEEDED[name]}"
        for name, _ in headers
        if name in passed_over
    ]


def of_spec(spec: filejobs.FileJobSpec) -> tuple[str, ...]:
    """Return warnings for fields of a spec that have no effect on its job."""
    found = []
    if spec.placement is not None:
        found.append(
            f"placement: {spec.placement!r} is kept with the job and changes nothing: its parts "
            f"run on the workers of TaskCluster {spec.cluster_name}"
        )
    if spec.input.delimiter != "," and spec.input.format != filejobs.Format.CSV:
        found.append(
            f"input.delimiter: {spec.input.delimiter!r} is ignored: format "
            f"{spec.input.format} has no columns, csv has"
        )
    return tuple(found)


_OF_SOURCE = {
    "aci": "no job leaves the cluster for container instances",
    "gpu": "name a TaskCluster whose workers have one (clusterName)",
    "gpuQuantity": "a TaskCluster says what its workers have (clusterName)",
    "batch": "there is no Azure Batch here",
}


def of_parameters(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return warnings for parameters of aksjobscheduler that have no effect on how a job runs."""
    if _OF_SOURCE.keys().isdisjoint(given):
        return ()
    return tuple(
        f"{name}={given[name][:100]} is ignored: {why}"
        for name, why in _OF_SOURCE.items()
        if name in given
    )


def of_unknown(names: Iterable[str]) -> tuple[str, ...]:
    """Return warnings for unknown parameters in the request of a caller without a token."""
    return tuple(f"{name[:100]!r} is ignored: no parameter has this name" for name in names)


def header(text: str) -> tuple[bytes, bytes]:
    """Return the `Warning` header (RFC 7234 §5.5) for a text."""
    plain = text.encode("ascii", "backslashreplace").decode()
    shown = "".join(one if " " <= one <= "~" else "?" for one in plain)
    quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
    return b"warning", f'299 - "{quoted}"'.encode("ascii")
