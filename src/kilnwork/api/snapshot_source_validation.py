"""Rules for `from` of a snapshot that do not depend on the pond.

Used by the validation of SyncSets, and by the controller of DataPonds for leases that no SyncSet
requests. No I/O.
"""

from collections.abc import Iterator

from kilnwork.api import data_pond, file_job_uris, task_validation
from kilnwork.kit import globs, snapshot_path_validation

PLACES = ("source", "uri", "inline", "output", "files")
"""Fields that name the source of a snapshot: exactly one is set."""


def problems(
    source: data_pond.SnapshotSource, at: str = "from"
) -> Iterator[task_validation.Problem]:
    """Yield the paths of invalid fields, each with its problem."""
    given = [field for field in PLACES if getattr(source, field) is not None]
    if len(given) != 1:
        yield at, "must have exactly one of source, uri, inline, output and files"
        return
    if source.output is not None:
        for field in ("path", "paths", "glob"):
            if getattr(source, field):
                yield f"{at}.{field}", "may not be given: an output is taken whole"
        return
    yield from _selection_problems(source, at)
    if source.files is not None:
        yield from _job_problems(source, at)
    if source.inline is not None:
        yield from _inline_problems(source, at)


def _selection_problems(
    source: data_pond.SnapshotSource, at: str
) -> Iterator[task_validation.Problem]:
    if source.path and source.inline is not None:
        yield f"{at}.path", "may not be given: inline files have paths of their own"
    elif (
        source.path
        and source.files is None
        and (why := snapshot_path_validation.problem(source.path))
    ):
        yield f"{at}.path", f"{source.path!r} {why}"
    for position, path in enumerate(source.paths):
        if why := snapshot_path_validation.problem(path):
            yield f"{at}.paths[{position}]", f"{path!r} {why}"
        elif path in source.paths[:position]:
            yield f"{at}.paths[{position}]", f"{path!r} is there twice"
    if source.glob and source.paths:
        yield f"{at}.glob", "give paths or glob, not both"
    elif source.glob and (why := globs.problem(source.glob)):
        yield f"{at}.glob", why


def _job_problems(source: data_pond.SnapshotSource, at: str) -> Iterator[task_validation.Problem]:
    if "/" in (source.files or ""):
        yield f"{at}.files", f"{source.files!r} is more than a job: its directory goes into path"
    elif not source.files:
        yield f"{at}.files", "names no file job"
    elif source.path:
        try:
            file_job_uris.of_path(f"{source.files}/{source.path}", source.path)
        except ValueError as error:
            yield f"{at}.path", str(error)


def _inline_problems(
    source: data_pond.SnapshotSource, at: str
) -> Iterator[task_validation.Problem]:
    files = source.inline or {}
    wrong = False
    for path in files:
        if why := snapshot_path_validation.problem(path):
            wrong = True
            yield f"{at}.inline", f"{path!r} {why}"
    if wrong:
        return
    size = sum(len(content.encode()) for content in files.values())
    if not files or size > data_pond.MAX_INLINE_BYTES:
        yield (
            f"{at}.inline",
            (
                f"{len(files)} files of {size:,} bytes; there must be some, of at most "
                f"{data_pond.MAX_INLINE_BYTES:,} bytes"
            ),
        )
    for path in sorted(files):
        for parent in snapshot_path_validation.parents(path):
            if parent in files:
                yield f"{at}.inline", f"{path!r} is below {parent!r}, which is a file"
