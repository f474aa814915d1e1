"""The values that enter and leave the service of file jobs: new jobs, and views of what it knows.

Used by server, sdk and CLI. All frozen; a view shows what is on disk, apart from which
parts run at this moment.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from kilnwork.api import filejobs
from kilnwork.kit import ids

FOLDER_INPUT = "input"
"""Key of a job's own input in its folder."""


class JobId(NamedTuple):
    """`uuid`: 16 bytes, a UUIDv7; `text`: what people see, `YYYY-MM-<decimal>` as in the seed."""

    uuid: bytes
    text: str

    @property
    def dashed(self) -> str:
        """The UUID as text: the name of its folder in the store."""
        return ids.task_text(ids.TaskId(self.uuid))


class Key(NamedTuple):
    """An idempotency key: `text` as `user` gave it. `fingerprint`: of the request that came with
    it, to tell a repetition from another request."""

    user: str
    text: str
    fingerprint: bytes


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be made.

    `inline`: the stored bytes of a small input (64 KiB at most), kept in the journal and written to
    the store before the first part starts; None: the input is in the store already, at `input` of
    the job's folder or, if `source` is given, at that key of the whole store (an upload of its own,
    which is not the job's to delete). `user`: who made it.
    """

    id: JobId
    namespace: str
    spec: filejobs.JobSpec
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


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job.

    `version` rises with each change (also over restarts). `run`: from 1, rises when parts are run
    anew. `spec` has the newest parallelism, tolerance and suspend. `lines`: records to do;
    `records`: those of parts that are done, `records.total` being their sum: `lines` at the end of
    a job that succeeded. `done_bytes`: of the input, in parts that succeeded. `output`, `errors`:
    what was published, once it has succeeded; keys in the job's folder. `losses` and `retries`: of
    attempts of parts. `stored`: its input is in the store. `deleting`: on its way out.
    """

    id: str
    uuid: bytes
    namespace: str
    user: str
    spec: filejobs.JobSpec
    phase: filejobs.Phase
    reason: str
    message: str
    created: float
    started: float | None
    finished: float | None
    expires: float | None
    run: int
    parts: PartCounts
    records: filejobs.Records
    lines: int
    bytes: int
    sha256: str
    done_bytes: int
    output: filejobs.StoredFile | None
    errors: filejobs.StoredFile | None
    failures: int
    losses: int
    deleting: bool
    version: int

    @property
    def dashed(self) -> str:
        """Its UUID as text."""
        return ids.task_text(ids.TaskId(self.uuid))

    @property
    def folder(self) -> str:
        """Prefix of its objects in the store, without a slash at the end."""
        return f"{self.namespace}/{self.dashed}"


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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs of a namespace; None: any."""

    phase: filejobs.Phase | None = None
    name: str | None = None


ANY = Wanted()


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """What may change while a job is there; UNSET leaves it as it is, None as in `JobSpec`."""

    parallelism: int | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_records: int | msgspec.UnsetType | None = msgspec.UNSET
    max_failed_percent: float | msgspec.UnsetType | None = msgspec.UNSET
    ttl_seconds_after_finished: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    suspend: bool | msgspec.UnsetType = msgspec.UNSET
