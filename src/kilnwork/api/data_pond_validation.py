"""Checks of DataPonds beyond their schema; they return problems as (field, text) pairs.

Used by admission and by the controller. No I/O.
"""

from collections.abc import Iterator
from urllib import parse

from kilnwork.api import data_pond, file_job_uris, quantities
from kilnwork.kit import egress

Problem = tuple[str, str]

_SYSTEM = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/sbin", "/sys", "/usr")
"""System directories, which must not contain data of a pond."""


def problems(pond: data_pond.DataPond) -> list[Problem]:
    """Return the problems of a DataPond that conforms to its schema."""
    return list(_problems(pond.spec))


def _problems(spec: data_pond.DataPondSpec) -> Iterator[Problem]:
    if spec.path is not None:
        yield from _path_problems(spec.path)
    if spec.capacity is not None:
        try:
            capacity = quantities.parse(spec.capacity)
        except ValueError as error:
            yield "spec.capacity", f"is {spec.capacity!r}: {error}"
        else:
            if capacity < 1:
                yield "spec.capacity", f"is {spec.capacity!r}: must be a byte or more"
    try:
        rate = quantities.parse(spec.scrub_rate)
    except ValueError as error:
        yield "spec.scrubRate", f"is {spec.scrub_rate!r}: {error}"
    else:
        if rate < 0 or rate != int(rate):
            yield "spec.scrubRate", f"is {spec.scrub_rate!r}: must be a number of bytes, or 0"
    if spec.low_watermark > spec.high_watermark:
        yield (
            "spec.lowWatermark",
            f"is {spec.low_watermark:g}: must not be above highWatermark ({spec.high_watermark:g})",
        )
    names = [source.name for source in spec.sources]
    for index, source in enumerate(spec.sources):
        field = f"spec.sources[{index}]"
        if source.name in names[:index]:
            yield f"{field}.name", f"{source.name!r} is there twice"
        yield from _source_problems(field, source)


def _path_problems(path: str) -> Iterator[Problem]:
    parts = path.rstrip("/").split("/")[1:]
    if any(part in ("", ".", "..") for part in parts) and path != "/":
        yield "spec.path", f"is {path!r}: must be a path without '..', '.' and empty parts"
    elif (path.rstrip("/") or "/") in _SYSTEM:
        yield "spec.path", f"is {path!r}: name a directory of its own, like /var/lib/kilnwork/pond"


def _source_problems(field: str, source: data_pond.PondSource) -> Iterator[Problem]:
    parts = parse.urlsplit(source.uri)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        yield f"{field}.uri", f"is no URI: {error}"
        return
    if parts.scheme in (file_job_uris.SCHEME, "file"):
        if why := _job_uri_problem(source.uri) if parts.scheme != "file" else _file_problem(parts):
            yield f"{field}.uri", why
        if source.secret_name is not None:
            yield f"{field}.secretName", "is for HTTP sources"
        return
    if not host or port == 0:
        yield f"{field}.uri", "needs a host"
    if parts.username is not None or parts.password is not None:
        yield (
            f"{field}.uri",
            "must hold no password: put it into a Secret and name it in secretName",
        )
    if parts.fragment:
        yield f"{field}.uri", "must have no fragment"
    for position, text in enumerate(source.allow_addresses):
        try:
            egress.parse_allowance(text)
        except ValueError as error:
            yield f"{field}.allowAddresses[{position}]", f"is {text!r}: {error}"


def _job_uri_problem(uri: str) -> str:
    try:
        if uri != file_job_uris.PREFIX:
            file_job_uris.parse_uri(uri)
    except ValueError as error:
        return str(error)
    return ""


def _file_problem(parts: parse.SplitResult) -> str:
    if parts.netloc not in ("", "localhost"):
        return f"names the host {parts.netloc!r}: write file:///PATH"
    if any(part in (".", "..") for part in parse.unquote(parts.path).split("/")):
        return "must have no component '.' or '..'"
    return ""
