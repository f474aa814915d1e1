"""Rows of the tables of jobs: converts jobs to SQL values and back. No I/O.

Used by `row_storage`, which writes and reads the rows, and by the services and the engine. The
order of the values is that of the journal's `sql/jobs.sql`.
"""

from typing import Any, NamedTuple, Protocol

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import job as api_job
from kilnwork.jobs import file_job_types, item_source, live_job_state

WAITS, REFUSED = 1, 2
"""Values of the column `turn`."""

Value = str | int | float | bytes | None
_encode = msgspec.json.Encoder().encode


class JobRow(NamedTuple):
    """A row of the table `job`."""

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
    source: str
    items: int
    blobs: bytes | None
    spec: bytes
    phase: str
    stage: int
    prepared: int
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
    progress: bytes
    failures: int
    losses: int
    deleting: int
    version: int
    turn: int
    admitted: float | None
    successes: int


class SourceKind(Protocol):
    """Factory of the item sources of one kind (`ItemSource.kind`), from rows of the journal.

    `nouns`: see `ItemSource`.
    """

    nouns: str
    ttl_s: float | None
    """How many seconds a finished job is kept if its spec has no time to live; None: forever."""

    def spec(self, encoded: bytes) -> item_source.Policy:
        """Decode the spec of a job."""
        ...

    def progress(self, encoded: bytes) -> Any:
        """Decode `ItemSource.progress`."""
        ...

    def detail(self, row: JobRow) -> Any:
        """Return the view detail (`ItemSource.detail`) of a job that is not in memory."""
        ...

    def load(
        self, spec: item_source.Policy, *, definition: bytes, progress: bytes
    ) -> item_source.ItemSource:
        """Return the item source of a job. `definition`, `progress`: encoded columns of its
        rows.
        """
        ...


def new_job_row(
    job: live_job_state.Job, key: file_job_types.IdempotencyKey | None
) -> tuple[Value, ...]:
    """Return the row of a new job in the table `job`."""
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
        job.source.kind,
        job.size,
        job.source.blobs or None,
        *job_columns(job),
    )


def input_row(job: live_job_state.Job, inline: bytes | None) -> tuple[Value, ...]:
    """Return the row of a job in the table `job_input`: its definition, and its small input or
    None."""
    return job.row, _encode(job.source.definition), inline


def job_columns(job: live_job_state.Job) -> tuple[Value, ...]:
    """Return the values of all columns of `job` that may change."""
    counts = job.counts
    return (
        _encode(job.spec),
        job.phase.value,
        int(job.stage),
        int(job.prepared),
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
        _encode(job.source.progress),
        job.failures,
        job.loss_count,
        int(job.deleting),
        job.version,
        REFUSED if job.refused else int(job.waits),
        job.admitted,
        job.successes,
    )


def to_job(row: JobRow, kind: SourceKind, definition: bytes) -> live_job_state.Job:
    """Convert a row to a job in memory, without the states of the job's items."""
    spec = kind.spec(row.spec)
    found = live_job_state.Job(
        file_job_types.JobId(row.uuid, row.id),
        row=row.row,
        namespace=row.namespace,
        spec=spec,
        source=kind.load(spec, definition=definition, progress=row.progress),
        created=row.created,
    )
    found.user = row.user
    found.stage, found.prepared = live_job_state.Stage(row.stage), bool(row.prepared)
    found.verdict = None if row.verdict is None else filejobs.PartOutcome(row.verdict)
    found.reason, found.message = row.reason, row.message
    found.run, found.base_run = row.run, row.base_run
    found.started, found.finished, found.expires = row.started, row.finished, row.expires
    counts = found.counts
    counts.succeeded, counts.failed, counts.cancelled = row.succeeded, row.failed, row.cancelled
    found.failures, found.loss_count = row.failures, row.losses
    found.successes = row.successes
    found.deleting, found.version = bool(row.deleting), row.version
    found.waits, found.refused = row.turn == WAITS, row.turn == REFUSED
    found.admitted = row.admitted
    idle = found.waits or found.stage is live_job_state.FINISHED
    found.recovered = found.source.ends_with_task and idle
    found.followed = _followed(found)
    found.dirty = False
    return found


def _followed(job: live_job_state.Job) -> set[api_job.HookEvent]:
    """Return the events whose hooks are in the journal, derived from the job's phase."""
    found = set() if job.started is None else {api_job.HookEvent.RUNNING}
    if job.stage is live_job_state.FINISHED and job.verdict is not None:
        found.add(live_job_state.EVENTS[job.verdict])
    return found


def row_view(row: JobRow, kind: SourceKind) -> file_job_types.GenericJobView[Any, Any]:
    """Return the view of a job that is not in memory."""
    reason, message = _explain_row(row, kind.nouns)
    return file_job_types.GenericJobView(
        id=row.id,
        uuid=row.uuid,
        namespace=row.namespace,
        user=row.user,
        spec=kind.spec(row.spec),
        phase=filejobs.FileJobPhase(row.phase),
        reason=reason,
        message=message,
        created=row.created,
        started=row.started,
        finished=row.finished,
        expires=row.expires,
        run=row.run,
        parts=file_job_types.PartCounts(
            total=row.items,
            pending=row.items - row.succeeded - row.failed - row.cancelled,
            succeeded=row.succeeded,
            failed=row.failed,
            cancelled=row.cancelled,
        ),
        progress=kind.progress(row.progress),
        failures=row.failures,
        losses=row.losses,
        deleting=bool(row.deleting),
        version=row.version,
        detail=kind.detail(row),
    )


_SUSPENDED_REASON = file_job_types.Reason.SUSPENDED
_SUSPENDED = "resume it, and {} start again"
_QUEUED = "it waits for its turn"


def _explain(job: live_job_state.Job) -> tuple[str, str]:
    """Return reason and message of why the job ended this way, or why it waits.

    In stage RUNNING they are never empty unless a worker has one of the job's tasks.
    """
    if job.stage is live_job_state.FINISHED or job.reason:
        return job.reason, job.message
    if job.trouble:
        return file_job_types.Reason.STORE_UNAVAILABLE, job.trouble
    if job.stage is not live_job_state.RUNNING:
        return "", ""
    if job.spec.suspend:
        return _SUSPENDED_REASON, _SUSPENDED.format(job.source.nouns)
    if job.active:
        return "", ""
    if not job.tasks:
        return file_job_types.Reason.QUEUED, _QUEUED
    item, first = next(iter(job.tasks.items()))
    if first.failures or first.losses:
        what = f"{job.source.noun} {item - 1 + job.source.first}" if item else "the finalizer"
        message = f"{what} is tried again: {first.message}"
        return file_job_types.Reason.RETRYING, message
    what = "all slots of TaskCluster {} are taken" if job.slots else "TaskCluster {} has no worker"
    return file_job_types.Reason.WAITING_FOR_SLOT, what.format(job.spec.cluster_name)


def _explain_row(row: JobRow, nouns: str) -> tuple[str, str]:
    if row.phase == filejobs.FileJobPhase.PAUSED:
        return _SUSPENDED_REASON, _SUSPENDED.format(nouns)
    if row.finished is None and not row.reason:
        return file_job_types.Reason.QUEUED, _QUEUED
    return row.reason, row.message


def view(job: live_job_state.Job) -> file_job_types.GenericJobView[Any, Any]:
    """Return the view of a job in memory."""
    counts = job.counts
    reason, message = _explain(job)
    return file_job_types.GenericJobView(
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
        parts=file_job_types.PartCounts(
            total=job.size,
            pending=job.size - counts.closed - job.active,
            running=job.active,
            succeeded=counts.succeeded,
            failed=counts.failed,
            cancelled=counts.cancelled,
        ),
        progress=job.source.progress,
        failures=job.failures,
        losses=job.loss_count,
        deleting=job.deleting,
        version=job.version,
        detail=job.source.detail(job),
    )
