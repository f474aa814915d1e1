"""Tables of jobs in the journal: reads rows, and collects rows to be written.

Used by the services, the engine and their helpers. Statements have names; their text is in
`dispatch/journal/sqlite/sql/jobs.sql`. The journal commits the collected rows in the transaction of
the tasks that changed. Reads return the state on disk. Most of them are lookups and short ranges.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import file_job_types, item_states, live_job_state, rows


class Select(Protocol):
    """Function that reads rows by the name of a statement (`Participation.select`)."""

    def __call__(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]: ...


_ORDER = (
    "insert_job",
    "insert_job_input",
    "update_job",
    "put_job_items",
    "put_job_definition",
    "put_job_claim",
    "put_job_schedule",
    "delete_job_schedule",
    "put_job_page",
    "forget_job_inline",
    "forget_job_key",
    "delete_job_pages",
    "delete_job_input",
    "delete_job_claim",
    "delete_job",
)
"""Order of the statements in a batch: a row is inserted before rows that refer to it."""


class JobWrites:
    """Rows of jobs to be written in one batch, by statement."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[instructions.Row]] = defaultdict(list)

    def add(self, name: str, *values: instructions.Value) -> None:
        """Add a row to be written by the statement `name`."""
        self._rows[name].append(values)

    def delete(self, row: int) -> None:
        """Add statements that delete all rows of a job."""
        for name in ("delete_job_pages", "delete_job_input", "delete_job_claim", "delete_job"):
            self.add(name, row)

    def statements(self) -> Iterator[tuple[str, Iterable[instructions.Row]]]:
        """Return the statements with their rows, in the order in which they are to be written."""
        return ((name, self._rows[name]) for name in _ORDER if name in self._rows)


class PendingWrites:
    """Collector of changes of jobs in memory that are not in the tables yet."""

    def __init__(self) -> None:
        self._new: dict[
            live_job_state.Job, tuple[file_job_types.IdempotencyKey | None, bytes | None]
        ] = {}
        self.inlined: set[int] = set()
        """Rows of jobs whose input may be only in the tables, not in the store."""
        self.redefined: set[live_job_state.Job] = set()
        """Jobs whose items have become known since they were written."""

    def add(
        self,
        job: live_job_state.Job,
        key: file_job_types.IdempotencyKey | None,
        inline: bytes | None,
    ) -> None:
        """Add the rows of a new job."""
        self._new[job] = (key, inline)
        if inline is not None:
            self.inlined.add(job.row)

    def gather(self, writes: JobWrites, job: live_job_state.Job) -> None:
        """Add the rows of a job's changes to `writes`, and mark the changes as written."""
        new = self._new.pop(job, None)
        if new is not None:
            key, inline = new
            writes.add("insert_job", *rows.new_job_row(job, key))
            writes.add("insert_job_input", *rows.input_row(job, inline))
        elif job.dirty:
            writes.add("update_job", *rows.job_columns(job), job.row)
        if job in self.redefined:
            self.redefined.discard(job)
            row, definition, _ = rows.input_row(job, None)
            writes.add("put_job_items", row, job.size)
            writes.add("put_job_definition", row, definition)
        for page in job.items.changed_pages:
            writes.add("put_job_page", job.row, page, job.items.page(page))
        if job.prepared and job.row in self.inlined:
            self.inlined.discard(job.row)
            writes.add("forget_job_inline", job.row)
        if job.deleting:
            writes.add("forget_job_key", job.row)
        job.items.changed_pages.clear()
        job.dirty = False


class Expired(NamedTuple):
    """A job whose time to live has passed by the wall clock. Its times are wall clock times."""

    row: int
    uuid: bytes
    finished: float
    expires: float


class Tables:
    """Reader of the tables of jobs as stored on disk."""

    def __init__(self, select: Select) -> None:
        self._select = select

    @property
    def empty(self) -> bool:
        """Whether the tables have no job."""
        return self.next_row() == 1

    def next_row(self) -> int:
        """Return the row number for a new job."""
        return int(self._select("next_job_row")[0][0])

    def find_job(self, how: str, *values: instructions.Value) -> rows.JobRow | None:
        """Return the row of one job, or None. `how`: `uuid`; for file jobs also `id`, `name`
        (namespace, name; the newest job) or `key` (namespace, user, key).
        """
        for found in self._select(f"job_by_{how}", *values):
            return rows.JobRow._make(found)
        return None

    def list_between(
        self, namespace: str, first: str, last: str, *, limit: int
    ) -> list[rows.JobRow]:
        """Return file jobs with ids from `first` (inclusive) to `last` (exclusive)."""
        found = self._select("jobs_between", namespace, first, last, limit)
        return [rows.JobRow._make(one) for one in found]

    def oldest_creation(self) -> float | None:
        """Return when the oldest job was created (wall clock), or None if there is no job."""
        for (created,) in self._select("oldest_job"):
            return float(created)
        return None

    def list_keys(self) -> list[tuple[str, str, str]]:
        """Return namespace, user and text of the idempotency keys of all jobs that exist."""
        return self._select("job_keys")

    def list_jobs(self, how: str, *values: instructions.Value) -> list[rows.JobRow]:
        """Return the rows of the jobs that a statement selects.

        `how`: `jobs`, `jobs_in_phase` or `jobs_of_name` for file jobs, each with the suffix
        `_everywhere` for all namespaces; or `unfinished_jobs` for all jobs that are unfinished and
        do not wait for their turn, or are being deleted.
        """
        return [rows.JobRow._make(found) for found in self._select(how, *values)]

    def count_phases(self) -> list[tuple[str, str, int]]:
        """Return the number of file jobs by namespace and phase, as triples."""
        return self._select("job_phases")

    def list_ends(self, above: int, limit: int) -> list[tuple[int, bytes, float | None]]:
        """Return row, UUID and end (wall clock; None if unfinished) of jobs with rows above
        `above`, oldest first."""
        return self._select("job_ends", above, limit)

    def list_expired(self, at: float, after: Expired | None, limit: int) -> list[Expired]:
        """Return file jobs whose time to live has passed at `at` (wall clock), in the order in
        which it passed.

        `after`: the last job of the page before.
        """
        place = (0.0, 0) if after is None else (after.expires, after.row)
        return [Expired(*found) for found in self._select("expired_jobs", at, *place, limit)]

    def list_blobs(self) -> list[tuple[str, bytes]]:
        """Return namespace and blob digests of file jobs that may still run, without duplicates."""
        return self._select("job_blobs")

    def list_claims(self, above: int, limit: int) -> list[tuple[Any, ...]]:
        """Return rows of unfinished jobs that have a claim, with row numbers above `above`.

        Columns: row, UUID, namespace, turn, stage, time of admission, and claim.
        """
        return self._select("job_claims", above, limit)

    def find_claim(self, row: int) -> bytes | None:
        """Return the encoded claim of a job, or None."""
        for (found,) in self._select("job_claim", row):
            return bytes(found)
        return None

    def list_index_jobs(self, above: int, limit: int) -> list[rows.JobRow]:
        """Return Jobs (jobs on index sets) with rows above `above`, oldest first."""
        return [rows.JobRow._make(found) for found in self._select("index_jobs", above, limit)]

    def find_schedule(self, config: bytes) -> tuple[Any, ...] | None:
        """Return namespace, name, latest tick and state of a JobConfig's schedule, or None."""
        return next(iter(self._select("job_schedule", config)), None)

    def find_inline_input(self, row: int) -> bytes | None:
        """Return the small input of a job, which may not be in the store yet, or None."""
        for (found,) in self._select("job_inline", row):
            return None if found is None else bytes(found)
        return None

    def load_definition(self, row: int) -> bytes:
        """Return the encoded definition of a job (`ItemSource.definition`)."""
        return bytes(self._select("job_definition", row)[0][0])

    def load_items(self, row: int, into: item_states.Items, first: int = 0) -> None:
        """Read the states of a job's items into `into`, from the page of item `first` on."""
        for page, packed in self._select("job_pages", row, first >> item_states.PAGE_BITS):
            into.load_page(page, packed)
