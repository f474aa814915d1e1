"""Admission of jobs: keeps their claims, start times and deadlines, and asks `job_start_queue`
which jobs may start.

Used by the engine for jobs that have a claim. The engine writes each decision in the same
transaction as its consequences, so that after a restart the rows of the journal say which jobs have
started. Jobs on files and steps of flows have no claim, and so do not wait for admission.
"""

import heapq
import logging
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kilnwork.jobs import job_start_queue, live_job_state, row_storage
from kilnwork.kit import clock as clocks

log = logging.getLogger(__name__)

PAGE = 1000
"""Number of rows read at once."""

POLL_S = 1.0
"""Maximum interval in seconds at which the wall clock is read while a job waits for its start time,
since the clock may be set."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(job_start_queue.Claim).decode


class Waiter(NamedTuple):
    """An unfinished job with a claim, as read from the journal."""

    row: int
    uuid: bytes
    namespace: str
    waits: bool
    stopping: bool
    admitted: float | None
    claim: job_start_queue.Claim


class Admission:
    """Start queue and deadlines of all unfinished jobs with a claim, whether or not they are in
    memory.
    """

    def __init__(self, kept: row_storage.Tables, clock: clocks.Clock) -> None:
        self._tables, self._clock = kept, clock
        self.turns = job_start_queue.StartQueue()
        self._uuids: dict[int, bytes] = {}
        self._rows: dict[bytes, int] = {}
        self._claims: dict[int, job_start_queue.Claim] = {}
        self._unwritten: dict[int, job_start_queue.Claim] = {}
        self._starts: list[tuple[float, int]] = []
        """(start time by the wall clock, row) of jobs with `start_after`; a heap."""
        self._ends: list[tuple[float, int]] = []
        """(deadline by the monotonic clock, row) of started jobs with `job_seconds`; a heap."""
        self._deadlines: dict[int, float] = {}
        """Current deadline by row. An entry of `_ends` that differs belongs to an earlier run and
        is ignored."""

    def load(self) -> None:
        """Load the claims of all unfinished jobs from the journal."""
        above = 0
        while page := self._tables.list_claims(above, PAGE):
            for row, uuid, namespace, turn, stage, admitted, claim in page:
                above = row
                try:
                    decoded = _decode(claim)
                except msgspec.MsgspecError as error:
                    extra = {"row": row, "error": str(error)}
                    log.warning("the claim of a job cannot be read; it does not start", extra=extra)
                    continue
                self._restore(
                    Waiter(
                        row=row,
                        uuid=uuid,
                        namespace=namespace,
                        waits=bool(turn),
                        stopping=stage == live_job_state.STOPPING,
                        admitted=admitted,
                        claim=decoded,
                    )
                )

    def _restore(self, found: Waiter) -> None:
        self._register(found.row, found.uuid, found.claim)
        if found.waits:
            self._enqueue(found.row, found.namespace, found.claim, fresh=False)
            return
        self.turns.restore(found.row, found.namespace, found.claim, stopping=found.stopping)
        if found.admitted is not None:
            self._set_deadline(found.row, found.claim, self._clock.wall() - found.admitted)

    def _register(self, row: int, uuid: bytes, claim: job_start_queue.Claim) -> None:
        self._uuids[row], self._rows[uuid], self._claims[row] = uuid, row, claim

    def add_waiting(self, job: live_job_state.Job, claim: job_start_queue.Claim) -> None:
        """Add a job that waits to start: a new job, or a job that is to run again."""
        self._register(job.row, job.id.uuid, claim)
        self._unwritten[job.row] = claim
        self._enqueue(job.row, job.namespace, claim, fresh=True)

    def _enqueue(
        self, row: int, namespace: str, claim: job_start_queue.Claim, *, fresh: bool
    ) -> None:
        start_after = claim.start_after
        due = start_after is None or start_after <= self._clock.wall()
        if start_after is not None and not due:
            heapq.heappush(self._starts, (start_after, row))
        self.turns.add(row, namespace, claim, due=due, fresh=fresh)

    def _set_deadline(self, row: int, claim: job_start_queue.Claim, ran_s: float) -> None:
        """Set the deadline of a job that has run for `ran_s` seconds.

        If the clock was set, the deadline is still no later than the job's whole time limit from
        now.
        """
        if claim.job_seconds is not None:
            left_s = min(max(claim.job_seconds - ran_s, 0.0), claim.job_seconds)
            self._deadlines[row] = self._clock.monotonic() + left_s
            heapq.heappush(self._ends, (self._deadlines[row], row))

    def start_time_limit(self, job: live_job_state.Job) -> None:
        """Start the time limit of a job that has been admitted."""
        claim = self._claims.get(job.row)
        if claim is not None:
            self._set_deadline(job.row, claim, 0.0)

    def find_claim(self, row: int) -> job_start_queue.Claim | None:
        """Return the claim of a job, or None if it has none."""
        found = self._claims.get(row)
        if found is None and (raw := self._tables.find_claim(row)) is not None:
            found = _decode(raw)
        return found

    def change_claim(self, row: int, claim: job_start_queue.Claim) -> None:
        """Replace the claim of an unfinished job."""
        if row in self._claims and self._claims[row] != claim:
            self._claims[row] = self._unwritten[row] = claim
            self.turns.change_claim(row, claim)

    def remove(self, row: int) -> None:
        """Remove a job that has finished or is deleted from the queue and the deadlines."""
        uuid = self._uuids.pop(row, None)
        if uuid is not None:
            del self._rows[uuid], self._claims[row]
            self._deadlines.pop(row, None)
            self.turns.remove(row)

    def discard(self, row: int) -> None:
        """Remove a job whose rows are deleted, including a claim that is not in the journal yet."""
        self.remove(row)
        self._unwritten.pop(row, None)

    def uuid_of(self, row: int) -> bytes | None:
        """Return the UUID of the job in a row, or None if the job has finished."""
        return self._uuids.get(row)

    def uuids_of(self, rows: Iterable[int]) -> list[bytes]:
        """Return the UUIDs of the jobs in these rows, without finished jobs."""
        return [self._uuids[row] for row in rows if row in self._uuids]

    def row_of(self, uuid: bytes) -> int | None:
        """Return the row of the unfinished job with a UUID, or None."""
        return self._rows.get(uuid)

    def check_deadlines(self) -> list[int]:
        """Mark the jobs whose start time has passed as due, and return the rows of jobs that have
        exceeded their time limit."""
        wall, mono = self._clock.wall(), self._clock.monotonic()
        while self._starts and self._starts[0][0] <= wall:
            self.turns.mark_due(heapq.heappop(self._starts)[1])
        late = []
        while self._ends and self._ends[0][0] <= mono:
            due, row = heapq.heappop(self._ends)
            if self._deadlines.get(row) == due:
                late.append(row)
        return late

    @property
    def next_deadline_s(self) -> float | None:
        """Seconds until the next start time or deadline, or None if there is none."""
        found = []
        if self._starts:
            found.append(min(max(self._starts[0][0] - self._clock.wall(), 0.0), POLL_S))
        if self._ends:
            found.append(max(self._ends[0][0] - self._clock.monotonic(), 0.0))
        return min(found, default=None)

    def collect_writes(self, writes: row_storage.JobWrites) -> None:
        """Add the claims that are not in the journal yet to `writes`."""
        for row, claim in self._unwritten.items():
            writes.add("put_job_claim", row, _encode(claim))
        self._unwritten.clear()
