"""Values of the API of file jobs: new jobs, and views of jobs and parts.

Used by the server. All are frozen. A view shows what is on disk, except for which parts are
running, which is current.
"""

from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kilnwork.api import filejobs
from kilnwork.kit import ids

DIRECTORY_INPUT = "input"
"""Key of a job's own input in its directory."""


class JobId(NamedTuple):
    """The two ids of a job. `uuid`: 16 bytes, a UUIDv7 for file jobs. `text`: the id that users
    see; for file jobs `YYYY-MM-<decimal>`, else the UUID as text."""

    uuid: bytes
    text: str

    @property
    def dashed(self) -> str:
        """The job's UUID as text, which is also the name of the job's directory in the store."""
        return ids.task_text(ids.TaskId(self.uuid))


class IdempotencyKey(NamedTuple):
    """An idempotency key: `text` as sent by `user`.

    `fingerprint` identifies the content of the request, to distinguish a repetition from a
    different request with the same key.
    """

    user: str
    text: str
    fingerprint: bytes


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """Definition of a job to be created.

    `inline`: the stored bytes of a small input (at most 64 KiB), which is kept in the journal and
    written to the store before the first part starts. If it is None, the input is in the store
    already: as `input` in the job's directory or, if `source` is given, under that key of the whole
    store (a separate upload, which is not deleted with the job). `user`: the user who created the
    job.
    """

    id: JobId
    namespace: str
    spec: filejobs.FileJobSpec
    manifest: filejobs.Manifest
    inline: bytes | None = None
    source: str | None = None
    key: IdempotencyKey | None = None
    user: str = ""


class Reason(StrEnum):
    """Reason why a job ended early, waits, or succeeded with a warning; listed in
    docs/explanation/file-jobs.md.
    """

    CANCELLED = "Cancelled"
    PARTS_FAILED = "PartsFailed"
    PART_FAILED = "PartFailed"
    TOO_MANY_BAD_RECORDS = "TooManyBadRecords"
    MAPPER_CRASHES = "MapperCrashes"
    REDUCER_FAILED = "ReducerFailed"
    RESULT_DAMAGED = "ResultDamaged"
    ENDED = "Ended"
    ALL_RECORDS_BAD = "AllRecordsBad"
    STORE_UNAVAILABLE = "StoreUnavailable"
    SUSPENDED = "Suspended"
    QUEUED = "Queued"
    WAITING_FOR_SLOT = "WaitingForSlot"
    RETRYING = "Retrying"


class PartState(StrEnum):
    """State of a part. The last three states are final: only a redrive runs failed and cancelled
    parts again, and only damage to its output a part that has succeeded."""

    WAITING = "Waiting"
    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class PartCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of parts by state: `total` is the sum of the others. `pending`: number of waiting or
    queued parts.
    """

    total: int = 0
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class FileProgress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Progress of a file job in addition to the counts of its parts; stored in the journal as
    JSON.
    """

    lines: int = 0
    """Total number of records in all parts."""
    bytes: int = 0
    """Size of the stored input; `sha256` is its digest."""
    sha256: str = ""
    source: str | None = None
    """Key of the input in the whole store; None if the input is in the job's directory."""
    succeeded: int = 0
    """Number of successful records in succeeded parts; `failed`, `skipped`: of bad and of skipped
    records in these parts."""
    failed: int = 0
    skipped: int = 0
    done_bytes: int = 0
    """Number of bytes of input in succeeded parts."""
    output: filejobs.StoredFile | None = None
    """Published result, with its key in the job's directory; `errors`: published file of bad
    records."""
    errors: filejobs.StoredFile | None = None

    @property
    def records(self) -> filejobs.Records:
        """Record counts of succeeded parts; `total` equals `lines` once the job has succeeded."""
        return filejobs.Records.of(self.succeeded, self.failed, self.skipped)


_Spec = TypeVar("_Spec")
_Progress = TypeVar("_Progress")


class GenericJobView(msgspec.Struct, Generic[_Spec, _Progress], frozen=True, kw_only=True):
    """View of a job; generic in the types of its spec and progress, which depend on the kind of
    items.
    """

    id: str
    uuid: bytes
    namespace: str
    user: str
    spec: _Spec
    """Spec of the job with the current parallelism, tolerances and suspend."""
    phase: filejobs.FileJobPhase
    reason: str
    message: str
    created: float
    started: float | None
    finished: float | None
    expires: float | None
    run: int
    """Number of the run, from 1, which increases when items are run again."""
    parts: PartCounts
    """Counts of items."""
    progress: _Progress
    failures: int
    """Number of failed attempts of items; `losses`: of lost attempts."""
    losses: int
    deleting: bool
    """Whether the job is being deleted."""
    version: int
    """Version of the view, which increases with each change, also across restarts."""
    detail: Any = None
    """Details returned by `ItemSource.detail`."""

    @property
    def dashed(self) -> str:
        """The job's UUID as text."""
        return ids.task_text(ids.TaskId(self.uuid))

    @property
    def directory(self) -> str:
        """Prefix of the job's objects in the store, without a slash at the end."""
        return f"{self.namespace}/{self.dashed}"


JobView = GenericJobView[filejobs.FileJobSpec, FileProgress]
"""View of a job on a file."""


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """View of a part.

    `attempt`, `worker` and `started` describe the newest attempt, and are 0, "" and None before the
    first one. `commit`: the part's commit record, None until it ends. `task`: id of its task in the
    journal.
    """

    part: filejobs.Part
    state: PartState
    run: int
    attempt: int
    worker: str
    message: str
    started: float | None
    finished: float | None
    task: str
    commit: filejobs.Commit | None


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for jobs of a namespace. A field that is None matches any job."""

    phase: filejobs.FileJobPhase | None = None
    name: str | None = None


ANY = JobQuery()


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to an existing job. UNSET leaves a field unchanged, None means the same as in the
    job's spec.
    """

    parallelism: int | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_records: int | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_percent: float | msgspec.UnsetType | None = msgspec.UNSET
    ttl_seconds_after_finished: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    suspend: bool | msgspec.UnsetType = msgspec.UNSET
