"""Which jobs may start, with the clock and the journal: `start_queue` decides, the engine carries
out.

Used by the engine, for jobs that have a claim. What is decided is written in the transaction of
what follows from it, so that after a restart the rows of the journal say who has started. Not for
jobs on files, which start when they come.
"""

import heapq
import logging
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kilnwork.jobs import records, start_queue, tables
from kilnwork.kit import clock as clocks

log = logging.getLogger(__name__)

PAGE = 1000
"""Rows read at once."""

POLL_S = 1.0
"""Between looks at the wall clock while a job waits for it: the clock may be set."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(start_queue.Claim).decode


class Waiter(NamedTuple):
    """An unfinished job of the journal."""

    row: int
    uuid: bytes
    namespace: str
    waits: bool
    stopping: bool
    admitted: float | None
    claim: start_queue.Claim


class Admission:
    """Turns and deadlines of all unfinished jobs with a claim, whether or not memory has them."""

    def __init__(self, kept: tables.Tables, clock: clocks.Clock) -> None:
        self._tables, self._clock = kept, clock
        self.turns = start_queue.StartQueue()
        self._uuids: dict[int, bytes] = {}
        self._rows: dict[bytes, int] = {}
        self._claims: dict[int, start_queue.Claim] = {}
        self._unwritten: dict[int, start_queue.Claim] = {}
        self._starts: list[tuple[float, int]] = []
        """When jobs may start, by the wall clock."""
        self._ends: list[tuple[float, int]] = []
        """When jobs have run for too long, by the monotonic clock."""
        self._deadlines: dict[int, float] = {}
        """Which of `_ends` count; the others are of earlier runs."""

    def load(self) -> None:
        """Take in what the journal has of unfinished jobs."""
        above = 0
        while page := self._tables.claims(above, PAGE):
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
                        stopping=stage == records.STOPPING,
                        admitted=admitted,
                        claim=decoded,
                    )
                )

    def _restore(self, found: Waiter) -> None:
        self._know(found.row, found.uuid, found.claim)
        if found.waits:
            self._wait(found.row, found.namespace, found.claim, fresh=False)
            return
        self.turns.restore(found.row, found.namespace, found.claim, stopping=found.stopping)
        if found.admitted is not None:
            self._limit(found.row, found.claim, self._clock.wall() - found.admitted)

    def _know(self, row: int, uuid: bytes, claim: start_queue.Claim) -> None:
        self._uuids[row], self._rows[uuid], self._claims[row] = uuid, row, claim

    def add(self, job: records.Job, claim: start_queue.Claim) -> None:
        """A job waits that is new, or that is to run again."""
        self._know(job.row, job.id.uuid, claim)
        self._unwritten[job.row] = claim
        self._wait(job.row, job.namespace, claim, fresh=True)

    def _wait(self, row: int, namespace: str, claim: start_queue.Claim, *, fresh: bool) -> None:
        start_after = claim.start_after
        due = start_after is None or start_after <= self._clock.wall()
        if start_after is not None and not due:
            heapq.heappush(self._starts, (start_after, row))
        self.turns.add(row, namespace, claim, due=due, fresh=fresh)

    def _limit(self, row: int, claim: start_queue.Claim, ran_s: float) -> None:
        """Its time runs from now on; a clock that was set gives no more than all of it."""
        if claim.job_seconds is not None:
            left_s = min(max(claim.job_seconds - ran_s, 0.0), claim.job_seconds)
            self._deadlines[row] = self._clock.monotonic() + left_s
            heapq.heappush(self._ends, (self._deadlines[row], row))

    def started(self, job: records.Job) -> None:
        """The turn of a job has come."""
        claim = self._claims.get(job.row)
        if claim is not None:
            self._limit(job.row, claim, 0.0)

    def claim(self, row: int) -> start_queue.Claim | None:
        """Return what a job needs; None: the journal has none of it."""
        found = self._claims.get(row)
        if found is None and (raw := self._tables.claim(row)) is not None:
            found = _decode(raw)
        return found

    def change(self, row: int, claim: start_queue.Claim) -> None:
        """A job that is not over needs something else now."""
        if row in self._claims and self._claims[row] != claim:
            self._claims[row] = self._unwritten[row] = claim
            self.turns.change(row, claim)

    def over(self, row: int) -> None:
        """A job has ended, or is gone."""
        uuid = self._uuids.pop(row, None)
        if uuid is not None:
            del self._rows[uuid], self._claims[row]
            self._deadlines.pop(row, None)
            self.turns.remove(row)

    def gone(self, row: int) -> None:
        """Nothing of a job is in the journal any more."""
        self.over(row)
        self._unwritten.pop(row, None)

    def uuid(self, row: int) -> bytes | None:
        """Return which job that is; None of one that is over."""
        return self._uuids.get(row)

    def uuids(self, rows: Iterable[int]) -> list[bytes]:
        """Return which jobs those are, without those that are over."""
        return [self._uuids[row] for row in rows if row in self._uuids]

    def row(self, uuid: bytes) -> int | None:
        """Return the row of a job that is not over."""
        return self._rows.get(uuid)

    def due(self) -> list[int]:
        """Let those wait no more whose time has come; return the rows of those that have run for
        too long."""
        wall, mono = self._clock.wall(), self._clock.monotonic()
        while self._starts and self._starts[0][0] <= wall:
            self.turns.due(heapq.heappop(self._starts)[1])
        late = []
        while self._ends and self._ends[0][0] <= mono:
            due, row = heapq.heappop(self._ends)
            if self._deadlines.get(row) == due:
                late.append(row)
        return late

    @property
    def next_s(self) -> float | None:
        """Seconds until something is due, None: nothing will be."""
        found = []
        if self._starts:
            found.append(min(max(self._starts[0][0] - self._clock.wall(), 0.0), POLL_S))
        if self._ends:
            found.append(max(self._ends[0][0] - self._clock.monotonic(), 0.0))
        return min(found, default=None)

    def gather(self, writes: tables.Writes) -> None:
        """Add the claims that the journal has not got."""
        for row, claim in self._unwritten.items():
            writes.add("put_job_claim", row, _encode(claim))
        self._unwritten.clear()
