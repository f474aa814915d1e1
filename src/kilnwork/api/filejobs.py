"""File jobs: the values that cross rooms when a file is uploaded, split, mapped and reduced.

Used by `data` (records, stores), `jobs` (tables, work in slots), `server` (REST), `files` and the
CLI. Facts about one job, no I/O. The terms are those of the first prototype (`parts`,
`completions`), of AWS Step Functions' Distributed Map (tolerated failures, redrive, result
manifest) and of RFC 9110.
"""

import re
from enum import StrEnum
from typing import Annotated, Self

import msgspec

from kilnwork.api import task as api_task

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Parallelism = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Priority = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=api_task.MAX_S)]

Title = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Shown in terminals, so that there are no control characters in it."""

DEFAULT_ITEMS_PER_PART = 100_000
"""Lines of a part; the default of the seed's ITEMSPERJOB."""

DEFAULT_LINE_BYTES = 16 << 20
"""Longest record; Go's scanner in the seed stopped at 64 KiB (its defect D26)."""

MAX_PARTS = 10_000
"""Most parts of a job, as AWS Batch's array size; parts grow when a file would have more."""

MAX_LOSSES = 10
"""Losses after which a part fails, some four minutes of waiting in between: enough for workers that
come and go, few enough for a part that crashes its worker each time."""


OUTPUTS = "out/"
"""The key of a result that is the outputs of all parts, one behind the other, as their commits name
them: nothing was copied."""


_SHORT_DIGITS = 8
_SHORT = re.compile(r"f-([0-9]{8,19})")


def short_id(job: str) -> str:
    """Return the short form of an id `YYYY-MM-NUMBER`: `f-` and the first digits of the number,
    which is random. No task is called so."""
    return f"f-{job.rpartition('-')[2][:_SHORT_DIGITS]}"


def short_digits(ref: str) -> str | None:
    """Return the digits in a short id, eight or more; None for anything else."""
    found = _SHORT.fullmatch(ref)
    return None if found is None else found[1]


class FileJobPhase(StrEnum):
    """The phase of a file job. The last three never change, except that a redrive starts a Failed
    or Cancelled one again."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    REDUCING = "Reducing"
    CANCELLING = "Cancelling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def final(self) -> bool:
        """True when nothing of it runs any more."""
        return self in _FINAL


_FINAL = (FileJobPhase.SUCCEEDED, FileJobPhase.FAILED, FileJobPhase.CANCELLED)


class Format(StrEnum):
    """The format of records. `jsonl`: a line holding a JSON value; `text`: a line; `csv`: a row
    under the header of the first row (RFC 4180); `json`: an element of one JSON array."""

    JSONL = "jsonl"
    TEXT = "text"
    CSV = "csv"
    JSON = "json"


class Blank(StrEnum):
    """How a blank line counts: `skip`: counted as skipped; `record`: a record like any other."""

    SKIP = "skip"
    RECORD = "record"


class BadRecords(StrEnum):
    """The effect of a bad record. `report` (default): it goes to the errors file, the job goes on.
    `fail`: its part fails, and with it the job."""

    REPORT = "report"
    FAIL = "fail"


class InputSpec(api_task.Wire, frozen=True):
    """How the file is read. `maxLineBytes`: a longer record is refused (default 16 MiB).

    `gzip`: None (default) looks at the first bytes; it is stored unpacked, so that parts can be
    read from the middle. `delimiter`: of CSV.
    """

    format: Format = Format.JSONL
    blank: Blank = Blank.SKIP
    max_line_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = DEFAULT_LINE_BYTES
    gzip: bool | None = None
    delimiter: Annotated[str, msgspec.Meta(min_length=1, max_length=1)] = ","


class Mapper(api_task.Wire, frozen=True):
    """The function or program for records: exactly one of `builtin`, `function`, `command`.

    `builtin`: `calculator` (the seed's), `identity`. `function`: `package.module:name`, imported by
    the worker, or found in the blob `code` (`sha256:…`, with `environment`, as in a Task's call);
    called with one record, or with a list of up to `batchRecords` of them. `command`: records on
    stdin, one a line; results on stdout, line by line.
    """

    builtin: str | None = None
    function: Annotated[str, msgspec.Meta(min_length=1, max_length=512)] | None = None
    code: str | None = None
    environment: str | None = None
    command: tuple[str, ...] = ()
    batch_records: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None


class PartRetry(api_task.Retry, frozen=True):
    """A Task's `retry` with defaults for parts: three attempts and ten losses."""

    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    max_losses: Annotated[int, msgspec.Meta(ge=0, le=1000)] = MAX_LOSSES

    @property
    def of_task(self) -> api_task.Retry:
        """Return it as a Task's `retry`, which has other defaults."""
        return api_task.Retry(**{name: getattr(self, name) for name in self.__struct_fields__})


class FileJobSpec(api_task.Wire, frozen=True):
    """The specification of a file job.

    `itemsPerPart`, `bytesPerPart`: a part ends at whichever comes first. `maxParts`: parts are made
    larger rather than more. `parallelism`: parts that run at once; None: as there are slots.
    `maxFailedRecords` / `maxFailedPercent`: more bad records than this fail the job (None: any
    number may be bad). `retry`: of a part; losses of workers are not counted as failures.
    `maxCrashes`: the circuit breaker: so many different parts failed in a row before any succeeded
    fail the job (0: never). `reducer`: a mapper that gets the merged results, instead of keeping
    them as they are. `ttlSecondsAfterFinished`: then the job and its data are deleted; None: the
    server's default. `timeouts`: of a part.
    """

    name: Title = ""
    cluster_name: api_task.Name = "default"
    input: InputSpec = InputSpec()
    mapper: Mapper = Mapper(builtin="calculator")
    reducer: Mapper | None = None
    items_per_part: Positive = DEFAULT_ITEMS_PER_PART
    bytes_per_part: Positive | None = None
    max_parts: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTS)] = MAX_PARTS
    parallelism: Parallelism | None = None
    bad_records: BadRecords = BadRecords.REPORT
    max_failed_records: Count | None = None
    max_failed_percent: Percent | None = None
    retry: PartRetry = PartRetry()
    timeouts: api_task.Timeouts = api_task.Timeouts()
    max_crashes: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 5
    priority: Priority = 0
    suspend: bool = False
    ttl_seconds_after_finished: Seconds | None = None
    placement: str | None = None


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes `start` to `end` (exclusive) of the stored input: whole records.

    `number`: from 1. `first_line`: from 1; `lines`: how many line ends (the last line may lack
    its); `crc32`: of the bytes (zlib).
    """

    number: int
    start: int
    end: int
    first_line: int
    lines: int
    crc32: int


class Manifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The manifest of an input, written once, when its last byte has arrived.

    `bytes`, `lines`, `sha256` (hex): of the stored input (unpacked, without BOM, an array taken
    apart to one element a line). `header`: the first row of CSV, which is in no part.
    """

    format: Format
    bytes: int
    lines: int
    sha256: str
    parts: tuple[Part, ...]
    header: tuple[str, ...] | None = None
    version: int = 1


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of records: `total` = succeeded + failed + skipped, in every document."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, succeeded: int, failed: int, skipped: int) -> Self:
        """Return counts that add up."""
        total = succeeded + failed + skipped
        return cls(total=total, succeeded=succeeded, failed=failed, skipped=skipped)

    def __add__(self, other: Self) -> Self:
        return type(self)(
            total=self.total + other.total,
            succeeded=self.succeeded + other.succeeded,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
        )


class PartOutcome(StrEnum):
    """The final outcome of a part."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """An object written to the store. `key`: relative to the job's directory; `OUTPUTS`: several
    objects, of which `bytes`, `lines` and `sha256` are those of all together."""

    key: str
    bytes: int
    lines: int
    sha256: str


class Commit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The one record of how a part's run ended; created once, never replaced. It *is* the result.

    `part`: from 1; 0 for the reducer. `run`: from 1, rises with each redrive. `attempt`: the one
    that wrote it, 0 for the server itself (failed for good, cancelled). `message`: why, unless it
    succeeded.
    """

    part: int
    run: int
    attempt: int
    outcome: PartOutcome
    records: Records = Records()
    output: StoredFile | None = None
    errors: StoredFile | None = None
    message: str = ""
    started: float = 0.0
    finished: float = 0.0
    worker: str = ""


class PartWork(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The order for a part: the one argument (JSON) of its call.

    `store`: URL of the job's directory in the store, `file:///…` or `kiln:NAMESPACE/JOB` (through
    the manager). `input`: key of the input in it, or in `inputStore` if it is elsewhere. Results go
    to `out/PART-RUN-ATTEMPT.*`, the commit to `commits/PART-RUN`.
    """

    store: str
    job: str
    input: str
    format: InputSpec
    part: Part
    run: int
    mapper: Mapper
    bad_records: BadRecords = BadRecords.REPORT
    header: tuple[str, ...] | None = None
    input_store: str | None = None


class ReduceWork(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The order for the reduce call. The worker reads the commits of `parts` (number, run), checks
    that they succeeded and that what they name is there and unchanged, and publishes once.

    `format`: of the input; results of `text` are given to a function as they are, others as JSON
    values.
    """

    store: str
    job: str
    parts: tuple[tuple[int, int], ...]
    run: int
    reducer: Mapper | None = None
    format: Format = Format.JSONL


class Damaged(msgspec.Struct, frozen=True, kw_only=True):
    """A part whose output cannot be used: it must be mapped again, in a run of its own."""

    part: int
    run: int
    message: str


class Reduced(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the reduce call. `damaged`: if there are any, nothing was published."""

    damaged: tuple[Damaged, ...] = ()
