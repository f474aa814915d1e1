"""Jobs and parts as JSON documents: fields of aksjobscheduler first, then newer ones.

Pure; used by `context` and `job_views`, and by `openapi`, which generates schemas from the structs.
Members without a value are left out, as in aksjobscheduler.
"""

from collections.abc import Sequence

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import file_job_types
from kilnwork.kit import clock
from kilnwork.server.jobs import aksjobscheduler_settings, ignored_fields

_SUCCEEDED = filejobs.FileJobPhase.SUCCEEDED


class JsonDocument(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False
):
    """Base class of the JSON documents of this API."""


class FileFacts(JsonDocument, frozen=True, kw_only=True):
    """A file that can be downloaded. `lines`: number of its lines, for an input that of its
    records.
    """

    bytes: int
    lines: int
    sha256: str


class Progress(JsonDocument, frozen=True, kw_only=True):
    """Progress of a job. `fraction`: share of the bytes of its input that are in finished parts;
    `parts`: counts by state; `recordsPerSecond`: average since the start; `etaSeconds`: remaining
    time at that rate."""

    fraction: float
    parts: file_job_types.PartCounts
    records_per_second: float | None = None
    eta_seconds: float | None = None


class JobDocument(JsonDocument, frozen=True, kw_only=True):
    """JSON document of a job.

    `status`: `Not Started`, `Pending`, `Complete` or `Failed`, as in aksjobscheduler; `phase` is
    more detailed. `completions`: number of parts, plus one for the merge of their results;
    `succeeded`: how many of these are done, which equals `completions` once the result exists.
    `active`, `failed`: numbers of parts. `warnings`: requested settings that have no effect.
    `storageBlobPrefix`: the job's directory in the store. `runningOnAci`: present only if the
    server emulates aksjobscheduler.
    """

    id: str
    status: str
    start_time: str = ""
    completion_time: str = ""
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    parallelism: int = 0
    parts: int = 0
    completions: int = 0
    storage_container: str
    storage_blob_prefix: str
    execution_location: str
    running_on_aci: bool | None = None
    namespace: str
    name: str = ""
    phase: filejobs.FileJobPhase
    reason: str = ""
    message: str = ""
    creation_time: str
    expiration_time: str = ""
    run: int
    version: int
    user: str = ""
    records: filejobs.Records
    progress: Progress
    input: FileFacts
    result: FileFacts | None = None
    errors: FileFacts | None = None
    failures: int = 0
    losses: int = 0
    deleting: bool = False
    warnings: tuple[str, ...] = ()
    spec: filejobs.FileJobSpec


class PartDocument(JsonDocument, frozen=True, kw_only=True):
    """A part of a job's input: bytes `start` to `end` (exclusive), and its state.

    `attempt`, `worker`: number and worker of the newest attempt. `task`: id of the part's task in
    the journal, for `kiln logs`.
    """

    part: int
    state: file_job_types.PartState
    run: int
    attempt: int = 0
    worker: str = ""
    message: str = ""
    start: int
    end: int
    first_line: int
    lines: int
    start_time: str = ""
    completion_time: str = ""
    records: filejobs.Records
    result: FileFacts | None = None
    errors: FileFacts | None = None
    task: str = ""


class ManifestFile(FileFacts, frozen=True, kw_only=True):
    """A file in the store. `key`: its key below the directory of the job."""

    key: str


class ManifestPart(JsonDocument, frozen=True, kw_only=True):
    """A part of a job's input, and its outcome: `outcome`, `result` and `errors` are present once
    the part has ended.

    `crc32`: checksum of bytes `start` to `end` (exclusive) of the input, eight hex digits (zlib).
    """

    part: int
    start: int
    end: int
    first_line: int
    lines: int
    crc32: str
    outcome: filejobs.PartOutcome | None = None
    run: int = 0
    records: filejobs.Records | None = None
    result: ManifestFile | None = None
    errors: ManifestFile | None = None
    message: str = ""


class ManifestDocument(JsonDocument, frozen=True, kw_only=True):
    """The parts of a job's input, and their results."""

    format: filejobs.Format
    bytes: int
    lines: int
    sha256: str
    header: tuple[str, ...] | None = None
    parts: list[ManifestPart]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Problem details of an error (RFC 9457). `message` repeats `detail`, under the name
    that aksjobscheduler uses.
    """

    type: str
    title: str
    status: int
    detail: str
    reason: str
    message: str
    progress: Progress | None = None


def job(
    view: file_job_types.JobView, *, now: float, compat: aksjobscheduler_settings.Source | None
) -> JobDocument:
    """Return the document of a job. `now`: wall clock time, from which its rate is computed."""
    published = view.phase is _SUCCEEDED
    parts = view.parts
    return JobDocument(
        id=view.id,
        status=status(view),
        start_time=_time(view.started),
        completion_time=_time(view.finished),
        active=parts.running,
        succeeded=parts.succeeded + published,
        failed=parts.failed,
        parallelism=min(view.spec.parallelism or parts.total, parts.total),
        parts=parts.total,
        completions=parts.total + 1,
        storage_container="jobs" if compat is None else compat.container,
        storage_blob_prefix=view.directory,
        execution_location="cluster",
        running_on_aci=None if compat is None else False,
        namespace=view.namespace,
        name=view.spec.name,
        phase=view.phase,
        reason=view.reason,
        message=view.message,
        creation_time=clock.rfc3339_micro(view.created),
        expiration_time=_time(view.expires),
        run=view.run,
        version=view.version,
        user=view.user,
        records=view.progress.records,
        progress=progress(view, now=now),
        input=FileFacts(
            bytes=view.progress.bytes, lines=view.progress.lines, sha256=view.progress.sha256
        ),
        result=_file(view.progress.output),
        errors=_file(view.progress.errors),
        failures=view.failures,
        losses=view.losses,
        deleting=view.deleting,
        warnings=ignored_fields.of_spec(view.spec),
        spec=view.spec,
    )


def status(view: file_job_types.JobView) -> str:
    """Return the state of a job in the terms of aksjobscheduler.

    It has no state for running jobs: a job is `Pending` from its first started part to its end.
    """
    if view.phase.final:
        return "Complete" if view.phase is _SUCCEEDED else "Failed"
    idle = view.parts.pending == view.parts.total
    return "Not Started" if idle else "Pending"


def progress(view: file_job_types.JobView, *, now: float) -> Progress:
    """Return the progress of a job."""
    fraction = view.progress.done_bytes / view.progress.bytes if view.progress.bytes else 1.0
    rate = eta = None
    if view.started is not None and view.progress.records.total:
        seconds = (view.finished or now) - view.started
        rate = round(view.progress.records.total / max(seconds, 1e-3), 1)
        left = max(view.progress.lines - view.progress.records.total, 0)
        eta = None if view.phase.final else round(left / rate, 1) if rate else None
    return Progress(
        fraction=round(fraction, 4), parts=view.parts, records_per_second=rate, eta_seconds=eta
    )


def part(view: file_job_types.PartView) -> PartDocument:
    """Return the document of a part."""
    found, commit = view.part, view.commit
    return PartDocument(
        part=found.number,
        state=view.state,
        run=view.run,
        attempt=view.attempt,
        worker=view.worker,
        message=view.message,
        start=found.start,
        end=found.end,
        first_line=found.first_line,
        lines=found.lines,
        start_time=_time(view.started),
        completion_time=_time(view.finished),
        records=filejobs.Records() if commit is None else commit.records,
        result=None if commit is None else _file(commit.output),
        errors=None if commit is None else _file(commit.errors),
        task=view.task,
    )


def manifest(found: filejobs.Manifest, commits: Sequence[filejobs.Commit]) -> ManifestDocument:
    """Return the document of a job's input, its parts and their results."""
    ended = {commit.part: commit for commit in commits}
    return ManifestDocument(
        format=found.format,
        bytes=found.bytes,
        lines=found.lines,
        sha256=found.sha256,
        header=found.header,
        parts=[_manifest_part(one, ended.get(one.number)) for one in found.parts],
    )


def _manifest_part(found: filejobs.Part, commit: filejobs.Commit | None) -> ManifestPart:
    shown = ManifestPart(
        part=found.number,
        start=found.start,
        end=found.end,
        first_line=found.first_line,
        lines=found.lines,
        crc32=f"{found.crc32:08x}",
    )
    if commit is None:
        return shown
    return msgspec.structs.replace(
        shown,
        outcome=commit.outcome,
        run=commit.run,
        records=commit.records,
        result=_stored(commit.output),
        errors=_stored(commit.errors),
        message=commit.message,
    )


def _stored(found: filejobs.StoredFile | None) -> ManifestFile | None:
    if found is None:
        return None
    return ManifestFile(key=found.key, bytes=found.bytes, lines=found.lines, sha256=found.sha256)


def _file(found: filejobs.StoredFile | None) -> FileFacts | None:
    if found is None:
        return None
    return FileFacts(bytes=found.bytes, lines=found.lines, sha256=found.sha256)


def _time(seconds: float | None) -> str:
    """Format a time in whole seconds, as aksjobscheduler does."""
    return "" if seconds is None else clock.rfc3339(seconds)
