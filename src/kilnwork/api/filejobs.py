"""File jobs: the values that packages exchange to upload, split, map and reduce a file.

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
"""A name for people. Control characters are not allowed, since names are shown in terminals."""

DEFAULT_ITEMS_PER_PART = 100_000
"""Default number of records in a part: the default of ITEMSPERJOB in the first prototype."""

DEFAULT_LINE_BYTES = 16 << 20
"""Default maximum length of a record. Go's scanner in the first prototype stopped at 64 KiB (its
defect D26)."""

MAX_PARTS = 10_000
"""Maximum number of parts of a job, the array size of AWS Batch. Parts of larger files are
larger."""

MAX_LOSSES = 10
"""Number of losses after which a part fails, with about four minutes of delays in total: enough for
workers that are replaced often, few enough for a part that crashes its worker each time."""


OUTPUTS = "out/"
"""Key of a result that is not an object of its own, but the concatenation of the outputs of all
parts, which the parts' commits name."""


_SHORT_DIGITS = 8
_SHORT = re.compile(r"f-([0-9]{8,19})")


def short_id(job: str) -> str:
    """Return the short form of an id `YYYY-MM-NUMBER`: `f-` and the first digits of the random
    number. No task has such a name."""
    return f"f-{job.rpartition('-')[2][:_SHORT_DIGITS]}"


def short_digits(ref: str) -> str | None:
    """Return the digits of a short id of a file job, at least eight; None for other texts."""
    found = _SHORT.fullmatch(ref)
    return None if found is None else found[1]


class FileJobPhase(StrEnum):
    """The phase of a file job. The last three are final, except that a redrive starts a Failed
    or Cancelled job again."""

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
        """Return whether no part of a job in this phase runs any more."""
        return self in _FINAL


_FINAL = (FileJobPhase.SUCCEEDED, FileJobPhase.FAILED, FileJobPhase.CANCELLED)


class Format(StrEnum):
    """The format of records. `jsonl`: each line is a JSON value; `text`: each line is text;
    `csv`: each row is a record, and the first row is the header (RFC 4180); `json`: each element
    of one JSON array is a record."""

    JSONL = "jsonl"
    TEXT = "text"
    CSV = "csv"
    JSON = "json"


class Blank(StrEnum):
    """How a blank line counts. `skip`: it is counted as skipped; `record`: it is a record like
    any other."""

    SKIP = "skip"
    RECORD = "record"


class BadRecords(StrEnum):
    """The effect of a bad record. `report` (default): it is written to the errors file, and the
    job continues. `fail`: its part fails, and with it the job."""

    REPORT = "report"
    FAIL = "fail"


class InputSpec(api_task.Wire, frozen=True):
    """How the input file is read."""

    format: Format = Format.JSONL
    """Format of the records."""
    blank: Blank = Blank.SKIP
    """How blank lines count."""
    max_line_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = DEFAULT_LINE_BYTES
    """Maximum length of a record in bytes; longer records are bad records."""
    gzip: bool | None = None
    """Whether the file is compressed. Unset: detected from its first bytes. The file is stored
    decompressed, so that parts can be read from the middle."""
    delimiter: Annotated[str, msgspec.Meta(min_length=1, max_length=1)] = ","
    """Separator of the fields of CSV."""


class Mapper(api_task.Wire, frozen=True):
    """The function or program that processes records. Exactly one of `builtin`, `function` and
    `command` must be set.

    `builtin` is `calculator` or `identity`. `function` is `package.module:name`, imported by the
    worker unless `code` is set; it is called with one record, or with a list of up to
    `batchRecords` records. `command` reads one record per line from stdin and writes one result
    per line to stdout.
    """

    builtin: str | None = None
    """Name of a built-in mapper."""
    function: Annotated[str, msgspec.Meta(min_length=1, max_length=512)] | None = None
    """Function as `package.module:name`."""
    code: str | None = None
    """Digest (`sha256:…`) of the blob that contains the function, as in the call of a Task."""
    environment: str | None = None
    """Digest of the files shipped with the function, as in the call of a Task."""
    command: tuple[str, ...] = ()
    """Program and its arguments."""
    batch_records: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    """Maximum number of records passed to the function as one list. Unset: single records."""


class PartRetry(api_task.Retry, frozen=True):
    """Retry rules of a part: those of a Task with other defaults, three attempts and ten losses."""

    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    max_losses: Annotated[int, msgspec.Meta(ge=0, le=1000)] = MAX_LOSSES

    @property
    def of_task(self) -> api_task.Retry:
        """The same rules as the `retry` of a Task, which has other defaults."""
        return api_task.Retry(**{name: getattr(self, name) for name in self.__struct_fields__})


class FileJobSpec(api_task.Wire, frozen=True):
    """The specification of a file job."""

    name: Title = ""
    """Name of the job, for people."""
    cluster_name: api_task.Name = "default"
    """Name of the TaskCluster that runs the parts."""
    input: InputSpec = InputSpec()
    """How the input file is read."""
    mapper: Mapper = Mapper(builtin="calculator")
    """Function or program that processes the records."""
    reducer: Mapper | None = None
    """Mapper that gets the merged results. Unset: the results are kept unchanged."""
    items_per_part: Positive = DEFAULT_ITEMS_PER_PART
    """Number of records after which a part ends, unless `bytesPerPart` is reached first."""
    bytes_per_part: Positive | None = None
    """Number of bytes after which a part ends. Unset: no limit."""
    max_parts: Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTS)] = MAX_PARTS
    """Maximum number of parts. Parts become larger instead of more."""
    parallelism: Parallelism | None = None
    """Maximum number of parts that run at the same time. Unset: as many as there are slots."""
    bad_records: BadRecords = BadRecords.REPORT
    """The effect of a bad record."""
    max_failed_records: Count | None = None
    """Maximum number of bad records; with more, the job fails. Unset: unlimited."""
    max_failed_percent: Percent | None = None
    """Maximum percentage of bad records; above it, the job fails. Unset: unlimited."""
    retry: PartRetry = PartRetry()
    """Rules for retrying a part. Losses of workers do not count as failures."""
    timeouts: api_task.Timeouts = api_task.Timeouts()
    """Deadlines of each part."""
    max_crashes: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 5
    """Circuit breaker: the job fails if this number of different parts fail in a row before any
    part has succeeded. 0: disabled."""
    priority: Priority = 0
    """Priority of the parts. Tasks with a higher priority start first."""
    suspend: bool = False
    """Whether the start of parts is suspended."""
    ttl_seconds_after_finished: Seconds | None = None
    """Number of seconds after which the finished job and its data are deleted. Unset: the
    server's default."""
    placement: str | None = None


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A contiguous range of whole records of the stored input, from byte `start` to `end`
    (exclusive)."""

    number: int
    """Number of the part, from 1."""
    start: int
    end: int
    first_line: int
    """Number of the part's first line, from 1."""
    lines: int
    """Number of line ends; the last line may lack one."""
    crc32: int
    """CRC-32 of the bytes (zlib)."""


class Manifest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The manifest of an input, written once, after the last byte has been received.

    Sizes and digest are those of the stored input: decompressed, without BOM, a JSON array split
    into one element per line.
    """

    format: Format
    bytes: int
    lines: int
    sha256: str
    """SHA-256 in hexadecimal."""
    parts: tuple[Part, ...]
    header: tuple[str, ...] | None = None
    """The first row of CSV, which belongs to no part."""
    version: int = 1


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of records; `total` is the sum of the others in every document."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @classmethod
    def of(cls, succeeded: int, failed: int, skipped: int) -> Self:
        """Return the numbers of records with their total."""
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
    """A file that was written to the store."""

    key: str
    """Key relative to the job's directory. `OUTPUTS` stands for several objects, and the other
    fields are those of their concatenation."""
    bytes: int
    lines: int
    sha256: str


class Commit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The only record of how a part's run ended; it is created once, never replaced, and *is*
    the result."""

    part: int
    """Number of the part, from 1; 0 for the reducer."""
    run: int
    """Number of the run, from 1; each redrive increments it."""
    attempt: int
    """The attempt that wrote the record; 0 for the server itself (failed for good, cancelled)."""
    outcome: PartOutcome
    records: Records = Records()
    output: StoredFile | None = None
    errors: StoredFile | None = None
    message: str = ""
    """Why the part did not succeed."""
    started: float = 0.0
    finished: float = 0.0
    worker: str = ""


class PartWork(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The work of a part: the only argument of its call, as JSON.

    Results are written to `out/PART-RUN-ATTEMPT.*`, the commit to `commits/PART-RUN`.
    """

    store: str
    """URL of the job's directory in the store: `file:///…`, or `kiln:NAMESPACE/JOB` (through the
    manager)."""
    job: str
    input: str
    """Key of the input in `store`, or in `input_store` if that is set."""
    format: InputSpec
    part: Part
    run: int
    mapper: Mapper
    bad_records: BadRecords = BadRecords.REPORT
    header: tuple[str, ...] | None = None
    input_store: str | None = None


class ReduceWork(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The work of the reduce call.

    The worker reads the commits of `parts`, checks that all of them succeeded and that the objects
    that they refer to exist unchanged, and publishes the result once.
    """

    store: str
    job: str
    parts: tuple[tuple[int, int], ...]
    """Number and run of each part."""
    run: int
    reducer: Mapper | None = None
    format: Format = Format.JSONL
    """Format of the input. A function gets results of `text` unchanged, others as JSON values."""


class Damaged(msgspec.Struct, frozen=True, kw_only=True):
    """A part whose output is unusable: it must be mapped again, in a new run."""

    part: int
    run: int
    message: str


class Reduced(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the reduce call."""

    damaged: tuple[Damaged, ...] = ()
    """Parts with unusable output. If there are any, nothing was published."""
