"""Start queue: decides which waiting jobs start, by concurrency groups, locks, priority and age.

No I/O. Used by `start_admission`; the engine carries out the decisions. A job starts when it is
ready and when its group and each of its locks have room for it after the jobs ahead of it. It takes
all of them at once or none, so that there is no deadlock. Ahead of a job are the ready jobs with a
higher priority, and those with the same priority and a lower row. This is a total order: of jobs
that conflict, the first waits only for jobs that have started. A job that is not ready (held,
suspended, not yet due) delays no other job.
"""

import bisect
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kilnwork.api import job as api_job
from kilnwork.kit import clock

_Policy = api_job.ConcurrencyPolicy
_Key = tuple[int, int]
"""Sort key of waiting jobs: negative priority, row."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why a job must not start although the queue would allow it."""

    reason: str
    message: str = ""


class ConcurrencyGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The JobConfig of a job, with its limits and the policy for a job that exceeds them."""

    config: str
    """`metadata.uid` of the JobConfig."""
    name: str
    policy: api_job.ConcurrencyPolicy
    max_concurrency: int = 1
    """Maximum number of running jobs. The value of the newest job applies to the whole group."""
    max_queued: int = 20
    """Maximum number of waiting jobs, with policy Enqueue."""


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Conditions for the start of a job: its priority, group, locks and start time. Stored in the
    journal as JSON.
    """

    priority: int = 0
    group: ConcurrencyGroup | None = None
    locks: tuple[api_job.Lock, ...] = ()
    start_after: float | None = None
    """Earliest start of the job, in wall clock seconds; None: at once."""
    hold: Hold | None = None
    suspended: bool = False
    incomplete: bool = False
    """Whether the index set of the job is not known yet."""
    job_seconds: float | None = None
    """Time limit of the job from its start, in seconds; None: no limit."""


class Start(NamedTuple):
    """Decision: a job starts. It counts as running in its group, and holds its locks."""

    row: int


class Refuse(NamedTuple):
    """Decision: a job is refused."""

    row: int
    reason: str
    message: str


class Replace(NamedTuple):
    """Decision: a started job is to be ended, to make room for another job of its group."""

    row: int
    message: str


class Wait(NamedTuple):
    """Decision: a job continues to wait, but for another reason than before."""

    row: int


Decision = Start | Refuse | Replace | Wait


class _Entry:
    """A job in the start queue, waiting or started."""

    __slots__ = ("claim", "due", "fresh", "passed", "reason", "row", "space", "stopping")

    def __init__(self, row: int, space: str, claim: Claim, *, fresh: bool, due: bool) -> None:
        self.row, self.space, self.claim = row, space, claim
        self.fresh = fresh
        """Whether the job does not count as waiting yet, so that it is refused if the queue is
        full."""
        self.due = due
        """Whether the job's `start_after` has passed."""
        self.reason = ""
        """Why the job waited when it was last considered; "" before that."""
        self.passed = False
        """Whether the group had room for the job once, so that the job is not refused any more."""
        self.stopping = False

    @property
    def key(self) -> _Key:
        return -self.claim.priority, self.row

    @property
    def ready(self) -> bool:
        claim = self.claim
        held = claim.hold is not None or claim.suspended or claim.incomplete
        return self.due and not held

    @property
    def limiting_group(self) -> ConcurrencyGroup | None:
        """Group of the job, if the group's policy limits its number of jobs, else None."""
        group = self.claim.group
        return None if group is None or group.policy is _Policy.ALLOW else group

    def lock_modes(self) -> dict[tuple[str, str], bool]:
        """Return the locks of the job, with True for each lock that it takes exclusively."""
        found: dict[tuple[str, str], bool] = {}
        for lock in self.claim.locks:
            place = (self.space, lock.name)
            exclusive = lock.mode is api_job.LockMode.EXCLUSIVE
            found[place] = found.get(place, False) or exclusive
        return found


class _GroupMembers:
    """The started and the waiting jobs of one concurrency group."""

    def __init__(self) -> None:
        self.limit = self.most = 0
        self.active: dict[int, _Entry] = {}
        """Started jobs by row, in the order of their starts."""
        self.waiting: dict[int, _Entry] = {}
        """Waiting jobs by row, including jobs that are not ready, but without fresh jobs."""
        self.queue: list[_Key] = []
        """Ready jobs to which the limit applies, sorted."""
        self.replacing: set[int] = set()
        """Rows in `queue` of jobs that replace others."""

    def set_limits(self, group: ConcurrencyGroup) -> None:
        self.limit, self.most = group.max_concurrency, group.max_queued

    @property
    def free(self) -> int:
        return self.limit - len(self.active)


class _Lock:
    """Queue of one lock: the started jobs that hold the lock, and the jobs that wait for it."""

    def __init__(self) -> None:
        self.holders: dict[int, bool] = {}
        """Rows of the jobs that hold the lock, with True if a job holds it exclusively."""
        self.exclusive: list[_Key] = []
        self.shared: list[_Key] = []

    def admits(self, key: _Key, *, exclusive: bool) -> bool:
        if exclusive:
            first = not self.shared or self.shared[0] > key
            return not self.holders and first and self.exclusive[0] == key
        if any(self.holders.values()):
            return False
        return not self.exclusive or self.exclusive[0] > key

    def unblocked_rows(self, *, whole: bool) -> Iterator[int]:
        """Yield the rows of waiting jobs that have no other waiting job ahead of them at this lock.

        With `whole`, this includes the jobs that would share the lock and were blocked only by a
        job that takes it exclusively.
        """
        first = self.exclusive[0] if self.exclusive else None
        if first is not None:
            yield first[1]
        for key in self.shared if whole else ():
            if first is not None and key > first:
                return
            yield key[1]

    @property
    def unused(self) -> bool:
        return not (self.holders or self.exclusive or self.shared)


class StartQueue:
    """Queue of all jobs that are waiting or have started, by row."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Entry] = {}
        self._active: dict[int, _Entry] = {}
        self._groups: dict[str, _GroupMembers] = {}
        self._locks: dict[tuple[str, str], _Lock] = {}
        self._to_consider: set[int] = set()
        self._changed_groups: set[str] = set()
        self._changed_locks: dict[tuple[str, str], bool] = {}
        """Locks that were released, with True if an exclusive release may have unblocked all jobs
        that share it."""

    @property
    def changed(self) -> bool:
        """Whether jobs have changed, so that `decide` may return decisions."""
        return bool(self._to_consider or self._changed_groups or self._changed_locks)

    def add(self, row: int, space: str, claim: Claim, *, due: bool, fresh: bool = True) -> None:
        """Add a waiting job. `space`: the job's namespace; `fresh`: whether the job has not waited
        before.
        """
        entry = _Entry(row, space, claim, fresh=fresh, due=due)
        self._waiting[row] = entry
        if claim.group is not None:
            members = self._group_of(claim.group)
            members.set_limits(claim.group)
            if not fresh:
                members.waiting[row] = entry
        self._enqueue(entry)

    def restore(self, row: int, space: str, claim: Claim, *, stopping: bool) -> None:
        """Add a job that was started by an earlier dispatcher process."""
        entry = _Entry(row, space, claim, fresh=False, due=True)
        entry.stopping = stopping
        if claim.group is not None:
            self._group_of(claim.group).set_limits(claim.group)
        self._activate(entry)

    def change_claim(self, row: int, claim: Claim) -> None:
        """Replace the claim of a job. The new priority of a job that has started has no effect."""
        entry = self._waiting.get(row)
        if entry is not None:
            self._dequeue(entry)
            entry.claim = claim
            self._enqueue(entry)
        elif (entry := self._active.get(row)) is not None:
            entry.claim = claim

    def mark_due(self, row: int) -> None:
        """Mark a job whose start time has passed as due."""
        entry = self._waiting.get(row)
        if entry is not None and not entry.due:
            entry.due = True
            self._enqueue(entry)

    def set_limits(self, group: ConcurrencyGroup) -> None:
        """Change the limits of a group."""
        if group.config in self._groups:
            self._groups[group.config].set_limits(group)
            self._changed_groups.add(group.config)

    def mark_stopping(self, row: int) -> None:
        """Mark a started job as being stopped."""
        entry = self._active.get(row)
        if entry is not None and not entry.stopping:
            entry.stopping = True
            if entry.claim.group is not None:
                self._changed_groups.add(entry.claim.group.config)

    def remove(self, row: int) -> None:
        """Remove a job that has ended or is deleted."""
        entry = self._waiting.pop(row, None)
        if entry is not None:
            self._dequeue(entry)
            self._leave_group(entry)
            return
        entry = self._active.pop(row, None)
        if entry is None:
            return
        for place, alone in entry.lock_modes().items():
            self._locks[place].holders.pop(row, None)
            self._mark_lock_changed(place, alone=alone)
        if entry.claim.group is not None:
            self._group_of(entry.claim.group).active.pop(row, None)
            self._changed_groups.add(entry.claim.group.config)

    def decide(self) -> list[Decision]:
        """Apply and return the decisions that follow from all changes since the last call."""
        found: list[Decision] = []
        while self.changed:
            for entry in self._candidates():
                self._consider(entry, found)
        return found

    def explain_wait(self, row: int) -> Hold | None:
        """Return the reason why a job is waiting, or None if it is not waiting."""
        entry = self._waiting.get(row)
        if entry is None:
            return None
        if entry.claim.hold is not None:
            return entry.claim.hold
        if entry.claim.incomplete:
            return Hold(reason="WaitingForResult", message="its list of indexes is not known yet")
        if not entry.due:
            after = clock.rfc3339(entry.claim.start_after or 0.0)
            return Hold(reason="NotYetDue", message=f"startAfter is {after}")
        if entry.claim.suspended:
            return Hold(reason="Suspended", message="set spec.suspend to false, and it starts")
        group = entry.limiting_group
        if group is not None and not self._fits(entry, group):
            members, name = self._group_of(group), group.name
            message = (
                f"{len(members.active)} Jobs of JobConfig {name} run, maxConcurrency is "
                f"{members.limit}"
            )
            return Hold(reason="Queued", message=message)
        for (_, name), exclusive in entry.lock_modes().items():
            if not self._locks[entry.space, name].admits(entry.key, exclusive=exclusive):
                message = f"lock {name} is held by another Job, or another waits for it before"
                return Hold(reason="WaitingForLock", message=message)
        return Hold(reason="Queued", message="its turn is next")

    def active_rows(self, config: str) -> list[int]:
        """Return the rows of the started jobs of a group, in the order of their starts."""
        members = self._groups.get(config)
        return [] if members is None else list(members.active)

    def queued_rows(self, config: str) -> list[int]:
        """Return the rows of the waiting jobs of a group, in the order of their turns."""
        members = self._groups.get(config)
        if members is None:
            return []
        return [entry.row for entry in sorted(members.waiting.values(), key=lambda one: one.key)]

    def _candidates(self) -> list[_Entry]:
        rows, self._to_consider = self._to_consider, set()
        for config in self._changed_groups:
            members = self._groups.get(config)
            if members is not None:
                rows.update(row for _, row in members.queue[: max(members.free, 0)])
                rows |= members.replacing
        for place, whole in self._changed_locks.items():
            lock = self._locks.get(place)
            if lock is not None and lock.unused:
                del self._locks[place]
            elif lock is not None:
                rows.update(lock.unblocked_rows(whole=whole))
        for config in self._changed_groups:
            members = self._groups.get(config)
            if members is not None and not (members.active or members.waiting):
                del self._groups[config]
        self._changed_groups.clear()
        self._changed_locks.clear()
        found = (self._waiting.get(row) for row in rows)
        return sorted((one for one in found if one is not None), key=lambda one: one.key)

    def _consider(self, entry: _Entry, found: list[Decision]) -> None:
        """Decide whether one waiting job starts."""
        if entry.row not in self._waiting:
            return
        if entry.ready:
            group = entry.limiting_group
            if group is None or self._fits(entry, group):
                entry.passed = True
                if self._has_locks(entry):
                    self._start(entry)
                    found.append(Start(entry.row))
                    return
            elif not self._make_room(entry, group, found):
                return
        if entry.fresh:
            entry.fresh = False
            self._count_as_waiting(entry, found)
        self._note_reason(entry, found)

    def _note_reason(self, entry: _Entry, found: list[Decision]) -> None:
        """Report a job whose reason for waiting has changed. Changes of the numbers in the message
        are not reported, since each start changes those of all waiting jobs."""
        held = self.explain_wait(entry.row)
        if held is None:
            return
        if entry.reason not in ("", held.reason):
            found.append(Wait(entry.row))
        entry.reason = held.reason

    def _fits(self, entry: _Entry, group: ConcurrencyGroup) -> bool:
        members = self._group_of(group)
        return bisect.bisect_left(members.queue, entry.key) < members.free

    def _has_locks(self, entry: _Entry) -> bool:
        key = entry.key
        lock_modes = entry.lock_modes().items()
        return all(self._locks[place].admits(key, exclusive=alone) for place, alone in lock_modes)

    def _make_room(self, entry: _Entry, group: ConcurrencyGroup, found: list[Decision]) -> bool:
        """Apply the policy of a group that has no room for a job. Return False if the job was
        refused.
        """
        members = self._group_of(group)
        if group.policy is _Policy.FORBID and not entry.passed:
            message = (
                f"{len(members.active)} Jobs of JobConfig {group.name} run, maxConcurrency is "
                f"{members.limit}"
            )
            self._refuse(entry, "Forbidden", message, found)
            return False
        if group.policy is _Policy.REPLACE:
            staying = [one for one in members.active.values() if not one.stopping]
            rank = bisect.bisect_left(members.queue, entry.key)
            surplus = max(len(staying) + rank + 1 - members.limit, 0)
            for one in staying[:surplus]:
                one.stopping = True
                message = f"a newer Job of JobConfig {group.name} takes its place"
                found.append(Replace(one.row, message))
        return True

    def _count_as_waiting(self, entry: _Entry, found: list[Decision]) -> None:
        """Count a job that has not waited before as waiting, or refuse it if the queue of its group
        is full.
        """
        group = entry.claim.group
        if group is None:
            return
        members = self._group_of(group)
        count = len(members.waiting)
        if group.policy is _Policy.ENQUEUE and count >= members.most:
            message = f"{count} Jobs of JobConfig {group.name} wait, maxQueued is {members.most}"
            self._refuse(entry, "QueueFull", message, found)
        else:
            members.waiting[entry.row] = entry

    def _refuse(self, entry: _Entry, reason: str, message: str, found: list[Decision]) -> None:
        self.remove(entry.row)
        found.append(Refuse(entry.row, reason, message))

    def _start(self, entry: _Entry) -> None:
        del self._waiting[entry.row]
        self._dequeue(entry)
        self._leave_group(entry)
        self._activate(entry)

    def _activate(self, entry: _Entry) -> None:
        self._active[entry.row] = entry
        for place, alone in entry.lock_modes().items():
            self._locks.setdefault(place, _Lock()).holders[entry.row] = alone
        if entry.claim.group is not None:
            self._group_of(entry.claim.group).active[entry.row] = entry

    def _mark_lock_changed(self, place: tuple[str, str], *, alone: bool) -> None:
        self._changed_locks[place] = alone or self._changed_locks.get(place, False)

    def _leave_group(self, entry: _Entry) -> None:
        """Remove a job from the waiting jobs of its group."""
        if entry.claim.group is not None:
            self._group_of(entry.claim.group).waiting.pop(entry.row, None)

    def _enqueue(self, entry: _Entry) -> None:
        """Insert a job that is ready into the queues of its group and locks."""
        self._to_consider.add(entry.row)
        if not entry.ready:
            return
        for place, alone in entry.lock_modes().items():
            lock = self._locks.setdefault(place, _Lock())
            bisect.insort(lock.exclusive if alone else lock.shared, entry.key)
        group = entry.limiting_group
        if group is not None:
            members = self._group_of(group)
            bisect.insort(members.queue, entry.key)
            if group.policy is _Policy.REPLACE:
                members.replacing.add(entry.row)

    def _dequeue(self, entry: _Entry) -> None:
        """Remove a job from the queues of its group and locks, and mark the group and locks as
        changed.
        """
        for place, alone in entry.lock_modes().items():
            lock = self._locks.get(place)
            if lock is not None and _discard(lock.exclusive if alone else lock.shared, entry.key):
                self._mark_lock_changed(place, alone=alone)
        if entry.claim.group is not None:
            members = self._group_of(entry.claim.group)
            members.replacing.discard(entry.row)
            if _discard(members.queue, entry.key):
                self._changed_groups.add(entry.claim.group.config)

    def _group_of(self, group: ConcurrencyGroup) -> _GroupMembers:
        found = self._groups.get(group.config)
        if found is None:
            found = self._groups[group.config] = _GroupMembers()
            found.set_limits(group)
        return found


def _discard(keys: list[_Key], key: _Key) -> bool:
    place = bisect.bisect_left(keys, key)
    if place == len(keys) or keys[place] != key:
        return False
    del keys[place]
    return True
