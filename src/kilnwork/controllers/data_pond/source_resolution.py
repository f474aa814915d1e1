"""Resolution of the source of a snapshot: a source that the pond declares or a path within it,
files of a file job, or inline content.

Used by `pond_state`. No I/O. Users of a pond may read only files that it declares and the results
of file jobs in its namespace, because its agents can read files of nodes and have credentials.
"""

from urllib import parse

from kilnwork.api import data_pond, file_job_uris, pond_messages, snapshot_source_validation
from kilnwork.data import errors

FILES = "files"
"""Name of the source of `from.files` in messages."""


def order(
    spec: data_pond.DataPondSpec, wanted: data_pond.SnapshotSource
) -> pond_messages.SourceOrder:
    """Return the order for an agent to read a source. Raises SourceRefused with the path of the
    field.
    """
    for field, text in snapshot_source_validation.problems(wanted):
        raise errors.SourceRefused(f"{field}: {text}")
    if wanted.output is not None:
        raise errors.SourceRefused(
            "from.output: only SyncSets may have it; a lease names the digest, which is in the "
            "status of the SyncSet"
        )
    if wanted.files is not None:
        return _of_job("from.files", FILES, f"{wanted.files}/{wanted.path}", wanted)
    if wanted.inline is not None:
        return _inline(wanted)
    declared, uri = _declared(spec, wanted)
    if uri.startswith(file_job_uris.PREFIX):
        path = f"{parse.unquote(uri.removeprefix(file_job_uris.PREFIX))}/{wanted.path}"
        return _of_job("from", declared.name, path, wanted)
    if wanted.path:
        uri = f"{uri.rstrip('/')}/{parse.quote(wanted.path)}"
        if wanted.paths and not uri.startswith("file:"):
            uri += "/"
    return pond_messages.SourceOrder(
        name=declared.name,
        uri=uri,
        paths=wanted.paths,
        glob=wanted.glob,
        allow=declared.allow_addresses,
        below=uri.rstrip("/").count("/") - declared.uri.rstrip("/").count("/"),
    )


def _of_job(
    field: str, name: str, path: str, wanted: data_pond.SnapshotSource
) -> pond_messages.SourceOrder:
    """Return the order for an agent to read the result of a file job.

    The job must be in the pond's own namespace, the only one that agents can read.
    """
    try:
        found = file_job_uris.of_path(path, path.strip("/"))
    except ValueError as error:
        raise errors.SourceRefused(f"{field}: {error}") from error
    return pond_messages.SourceOrder(name=name, uri=found.uri, paths=wanted.paths, glob=wanted.glob)


def _declared(
    spec: data_pond.DataPondSpec, wanted: data_pond.SnapshotSource
) -> tuple[data_pond.PondSource, str]:
    if wanted.source is not None:
        for one in spec.sources:
            if one.name == wanted.source:
                return one, one.uri
        known = ", ".join(one.name for one in spec.sources) or "none"
        raise errors.SourceRefused(f"from.source: {wanted.source!r} is none of the pond's: {known}")
    uri = wanted.uri or ""
    if any(part in (".", "..") for part in parse.unquote(uri).split("/")):
        raise errors.SourceRefused(f"from.uri: {uri!r} has a component '..': write it without")
    for one in spec.sources:
        base = one.uri if one.uri == file_job_uris.PREFIX else one.uri.rstrip("/") + "/"
        if uri == one.uri or uri.startswith(base):
            return one, uri
    raise errors.SourceRefused(
        f"from.uri: {uri!r} is not below the uri of a source of the pond: declare one in "
        "spec.sources"
    )


def _inline(wanted: data_pond.SnapshotSource) -> pond_messages.SourceOrder:
    return pond_messages.SourceOrder(
        name="inline", inline=wanted.inline, paths=wanted.paths, glob=wanted.glob
    )
