"""Rows of the tables of jobs: what a job is as SQL values, and back. Pure.

Used by `tables`, which writes and reads them, and by the service. The order of values is that of
`sql/queries.sql`.
"""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from kilnwork.api import filejobs, names
from kilnwork.jobs import model, records

Value = str | int | float | bytes | None
_SMALL = 4096
_encode = msgspec.json.Encoder().encode
_stored_file = msgspec.json.Decoder(filejobs.StoredFile).decode
_commit = msgspec.json.Decoder(filejobs.Commit).decode
_spec = msgspec.json.Decoder(filejobs.JobSpec)
_manifest = msgspec.json.Decoder(filejobs.Manifest).decode


class JobRow(NamedTuple):
    """A row of `job`."""

    row: int
    uuid: bytes
    id: str
    namespace: str
    name: str | None
    user: str
    created: float
    key_user: str | None
    key: str | None
    fingerprint: bytes | None
    lines: int
    input_bytes: int
    sha256: str
    parts: int
    source: str | None
    blobs: bytes | None
    spec: bytes
    phase: str
    stage: int
    stored: int
    verdict: str | None
    reason: str
    message: str
    run: int
    base_run: int
    started: float | None
    finished: float | None
    expires: float | None
    succeeded: int
    failed: int
    cancelled: int
    good: int
    bad: int
    skipped: int
    done_bytes: int
    output: bytes | None
    errors: bytes | None
    failures: int
    losses: int
    deleting: int
    version: int


class PartRow(NamedTuple):
    """A row of `part`."""

    part: int
    run: int
    state: int
    record: bytes | None

    @property
    def commit(self) -> filejobs.Commit | None:
        """Its record."""
        return None if self.record is None else _commit(self.record)


def decode_spec(encoded: bytes) -> filejobs.JobSpec:
    """Equal small specs are one object: most jobs are like others."""
    return _spec.decode(encoded) if len(encoded) > _SMALL else _small_spec(encoded)


@lru_cache(maxsize=1024)
def _small_spec(encoded: bytes) -> filejobs.JobSpec:
    return _spec.decode(encoded)


def decode_manifest(encoded: bytes) -> filejobs.Manifest:
    """As `of_input` wrote it."""
    return _manifest(encoded)


def of_new(job: records.Job, key: model.Key | None) -> tuple[Value, ...]:
    """The whole row."""
    manifest = job.manifest
    return (
        job.row,
        job.id.uuid,
        job.id.text,
        job.namespace,
        job.spec.name or None,
        job.user,
        job.created,
        None if key is None else key.user,
        None if key is None else key.text,
        None if key is None else key.fingerprint,
        manifest.lines,
        manifest.bytes,
        manifest.sha256,
        job.size,
        job.source,
        _blobs(job.spec) or None,
        *of_job(job),
    )


def _blobs(spec: filejobs.JobSpec) -> bytes:
    """Digests that mapper and reducer name."""
    named: set[str | None] = set()
    for mapper in (spec.mapper, spec.reducer):
        if mapper is not None and (mapper.code or mapper.environment):
            named |= {mapper.code, mapper.environment}
    return b"".join(sorted(filter(None, map(names.digest, named))))


def of_input(job: records.Job, inline: bytes | None) -> tuple[Value, ...]:
    """What it reads."""
    return job.row, _encode(job.manifest), inline


def of_job(job: records.Job) -> tuple[Value, ...]:
    """All that may change."""
    counts = job.counts
    return (
        _encode(job.spec),
        job.phase.value,
        int(job.stage),
        int(job.stored),
        None if job.verdict is None else job.verdict.value,
        job.reason,
        job.message,
        job.run,
        job.base_run,
        job.started,
        job.finished,
        job.expires,
        counts.succeeded,
        counts.failed,
        counts.cancelled,
        counts.succeeded_records,
        counts.failed_records,
        counts.skipped_records,
        counts.bytes,
        None if job.output is None else _encode(job.output),
        None if job.errors is None else _encode(job.errors),
        job.failures,
        job.loss_count,
        int(job.deleting),
        job.version,
    )


def of_part(job: records.Job, part: int, commit: filejobs.Commit | None) -> tuple[Value, ...]:
    """A part that is over, or open (`commit` is None) in a run of its own."""
    if commit is None:
        return job.row, part, job.runs.get(part, job.run), int(records.State.OPEN), None
    state = records.BY_OUTCOME[commit.outcome]
    return job.row, part, commit.run, int(state), _encode(commit)


def job_of(
    row: JobRow, manifest: filejobs.Manifest, parts: list[tuple[int, int, int]]
) -> records.Job:
    """The job as memory has it. `parts`: number, run, state."""
    found = records.Job(
        model.JobId(row.uuid, row.id),
        row=row.row,
        namespace=row.namespace,
        spec=decode_spec(row.spec),
        manifest=manifest,
        created=row.created,
    )
    found.user, found.source = row.user, row.source
    found.stage, found.stored = records.Stage(row.stage), bool(row.stored)
    found.verdict = None if row.verdict is None else filejobs.Outcome(row.verdict)
    found.reason, found.message = row.reason, row.message
    found.run, found.base_run = row.run, row.base_run
    found.started, found.finished, found.expires = row.started, row.finished, row.expires
    _count(found.counts, row)
    found.output = _file(row.output)
    found.errors = _file(row.errors)
    found.failures, found.loss_count = row.failures, row.losses
    found.successes = row.succeeded
    found.deleting, found.version = bool(row.deleting), row.version
    for part, run, state in parts:
        found.states[part] = state
        found.runs[part] = run
    found.dirty = False
    return found


def _count(counts: records.Counts, row: JobRow) -> None:
    counts.succeeded, counts.failed, counts.cancelled = row.succeeded, row.failed, row.cancelled
    counts.succeeded_records = row.good
    counts.failed_records = row.bad
    counts.skipped_records = row.skipped
    counts.bytes = row.done_bytes


def _file(encoded: bytes | None) -> filejobs.StoredFile | None:
    return None if encoded is None else _stored_file(encoded)


def view_of(row: JobRow) -> model.JobView:
    """The view of a job that memory has let go of, or has not taken up yet."""
    reason, message = _why_stored(row)
    return model.JobView(
        id=row.id,
        uuid=row.uuid,
        namespace=row.namespace,
        user=row.user,
        spec=decode_spec(row.spec),
        phase=filejobs.Phase(row.phase),
        reason=reason,
        message=message,
        created=row.created,
        started=row.started,
        finished=row.finished,
        expires=row.expires,
        run=row.run,
        parts=model.PartCounts(
            total=row.parts,
            pending=row.parts - row.succeeded - row.failed - row.cancelled,
            succeeded=row.succeeded,
            failed=row.failed,
            cancelled=row.cancelled,
        ),
        records=filejobs.Records.of(row.good, row.bad, row.skipped),
        lines=row.lines,
        bytes=row.input_bytes,
        sha256=row.sha256,
        done_bytes=row.done_bytes,
        output=_file(row.output),
        errors=_file(row.errors),
        failures=row.failures,
        losses=row.losses,
        deleting=bool(row.deleting),
        version=row.version,
    )


_SUSPENDED = "resume it, and parts start again"
_QUEUED = "it waits for its turn"


def _why(job: records.Job) -> tuple[str, str]:
    """Why it ended so or waits: never empty while nothing of it runs."""
    if job.stage is records.Stage.OVER or job.reason:
        return job.reason, job.message
    if job.trouble:
        return model.Reason.STORE_UNAVAILABLE, job.trouble
    if job.stage is not records.Stage.MAPPING:
        return "", ""
    if job.spec.suspend:
        return model.Reason.SUSPENDED, _SUSPENDED
    if job.active:
        return "", ""
    if not job.seats:
        return model.Reason.QUEUED, _QUEUED
    part, first = next(iter(job.seats.items()))
    if first.failures or first.losses:
        return model.Reason.RETRYING, f"part {part} is tried again: {first.message}"
    what = "all slots of TaskCluster {} are taken" if job.slots else "TaskCluster {} has no worker"
    return model.Reason.WAITING_FOR_SLOT, what.format(job.spec.cluster_name)


def _why_stored(row: JobRow) -> tuple[str, str]:
    if row.phase == filejobs.Phase.PAUSED:
        return model.Reason.SUSPENDED, _SUSPENDED
    if row.finished is None and not row.reason:
        return model.Reason.QUEUED, _QUEUED
    return row.reason, row.message


def view(job: records.Job) -> model.JobView:
    """The view of a job in memory."""
    counts, manifest = job.counts, job.manifest
    reason, message = _why(job)
    return model.JobView(
        id=job.id.text,
        uuid=job.id.uuid,
        namespace=job.namespace,
        user=job.user,
        spec=job.spec,
        phase=job.phase,
        reason=reason,
        message=message,
        created=job.created,
        started=job.started,
        finished=job.finished,
        expires=job.expires,
        run=job.run,
        parts=model.PartCounts(
            total=job.size,
            pending=job.size - counts.closed - job.active,
            running=job.active,
            succeeded=counts.succeeded,
            failed=counts.failed,
            cancelled=counts.cancelled,
        ),
        records=counts.records,
        lines=manifest.lines,
        bytes=manifest.bytes,
        sha256=manifest.sha256,
        done_bytes=counts.bytes,
        output=job.output,
        errors=job.errors,
        failures=job.failures,
        losses=job.loss_count,
        deleting=job.deleting,
        version=job.version,
    )
