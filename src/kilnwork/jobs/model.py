"""The values that enter and leave the service of file jobs: new jobs, and views of what it knows.

Used by server, sdk and CLI. All frozen; a view shows what is on disk, apart from which
parts run at this moment.
"""

from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kilnwork.api import filejobs
from kilnwork.kit import ids

DIRECTORY_INPUT = "input"
"""Key of a job's own input in its directory."""


class JobId(NamedTuple):
    """The two ids of a job. `uuid`: 16 bytes, a UUIDv7; `text`: what people see,
    `YYYY-MM-<decimal>` as in the seed."""

    uuid: bytes
    text: str

    @property
    def dashed(self) -> str:
        """The UUID as text: the name of its directory in the store."""
        return ids.task_text(ids.TaskId(self.uuid))


class Key(NamedTuple):
    """An idempotency key: `text` as `user` gave it. `fingerprint`: of the request that came with
    it, to distinguish a repetition from another request."""

    user: str
    text: str
    fingerprint: bytes


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be made.

    `inline`: the stored bytes of a small input (64 KiB at most), kept in the journal and written to
    the store before the first part starts; None: the input is in the store already, at `input` of
    the job's directory or, if `source` is given, at that key of the whole store (an upload of its
    own, which is not the job's to delete). `user`: who made it.
    """

    id: JobId
    namespace: str
    spec: filejobs.FileJobSpec
    manifest: filejobs.Manifest
    inline: bytes | None = None
    source: str | None = None
    key: Key | None = None
    user: str = ""


class Reason(StrEnum):
    """Why a job ended early, waits, or succeeded oddly; listed in docs/explanation/file-jobs.md."""

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
    """Where a part is. The last three do not change but by a redrive."""

    WAITING = "Waiting"
    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class PartCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many parts are where: `total` is the sum of the others. `pending`: waiting or queued."""

    total: int = 0
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class FileProgress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a job on a file has beyond the counts of its parts; in the journal it is JSON."""

    lines: int = 0
    """Records to do, those of all parts."""
    bytes: int = 0
    """Of the stored input, as `sha256`."""
    sha256: str = ""
    source: str | None = None
    """Key of the input in the whole store; None: the job's own."""
    succeeded: int = 0
    """Records of parts that succeeded, as `failed` and `skipped`."""
    failed: int = 0
    skipped: int = 0
    done_bytes: int = 0
    """Of the input, in parts that succeeded."""
    output: filejobs.StoredFile | None = None
    """What was published, as `errors`; keys in the job's directory."""
    errors: filejobs.StoredFile | None = None

    @property
    def records(self) -> filejobs.Records:
        """Return the records of parts that succeeded; `total` is `lines` at the end of a job that
        succeeded."""
        return filejobs.Records.of(self.succeeded, self.failed, self.skipped)


_Spec = TypeVar("_Spec")
_Progress = TypeVar("_Progress")


class GenericJobView(msgspec.Struct, Generic[_Spec, _Progress], frozen=True, kw_only=True):
    """A job, with the spec and the progress of its kind of items."""

    id: str
    uuid: bytes
    namespace: str
    user: str
    spec: _Spec
    """With the newest parallelism, tolerance and suspend."""
    phase: filejobs.FileJobPhase
    reason: str
    message: str
    created: float
    started: float | None
    finished: float | None
    expires: float | None
    run: int
    """From 1; rises when items are run again."""
    parts: PartCounts
    """Of items."""
    progress: _Progress
    failures: int
    """Of attempts of items, as `losses`."""
    losses: int
    deleting: bool
    """It is on its way out."""
    version: int
    """Rises with each change, also over restarts."""
    detail: Any = None
    """`ItemSource.detail`."""

    @property
    def dashed(self) -> str:
        """Its UUID as text."""
        return ids.task_text(ids.TaskId(self.uuid))

    @property
    def directory(self) -> str:
        """Prefix of its objects in the store, without a slash at the end."""
        return f"{self.namespace}/{self.dashed}"


JobView = GenericJobView[filejobs.FileJobSpec, FileProgress]
"""A job on a file."""


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """A part. `attempt`, `worker`, `started`: of the newest attempt, 0, "" and None before there is
    one. `commit`: how it ended, None before. `task`: its task in the journal, as text."""

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
    """Which jobs of a namespace; None: any."""

    phase: filejobs.FileJobPhase | None = None
    name: str | None = None


ANY = JobQuery()


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """What may change while a job is there; UNSET leaves it as it is, None as in `JobSpec`."""

    parallelism: int | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_records: int | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_percent: float | msgspec.UnsetType | None = msgspec.UNSET
    ttl_seconds_after_finished: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    suspend: bool | msgspec.UnsetType = msgspec.UNSET
