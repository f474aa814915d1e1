"""The start queue never exceeds its limits, keeps a total order, and skips no job."""

import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilnwork.api import job as api_job
from kilnwork.jobs import job_start_queue

_Mode, _Policy = api_job.LockMode, api_job.ConcurrencyPolicy
SPACE = "ns"


def group(
    name: str, policy: str = "Enqueue", *, most: int = 1, queued: int = 10_000
) -> job_start_queue.ConcurrencyGroup:
    return job_start_queue.ConcurrencyGroup(
        config=name, name=name, policy=_Policy(policy), max_concurrency=most, max_queued=queued
    )


def lock(name: str, *, shared: bool = False) -> api_job.Lock:
    return api_job.Lock(name=name, mode=_Mode.SHARED if shared else _Mode.EXCLUSIVE)


def started(found: list[job_start_queue.Decision]) -> list[int]:
    return [one.row for one in found if isinstance(one, job_start_queue.Start)]


class Reference:
    """A literal implementation of the rules: scans all waiting jobs each time."""

    def __init__(self) -> None:
        self.waiting: dict[int, job_start_queue.Claim] = {}
        self.active: dict[int, job_start_queue.Claim] = {}

    def ready(self) -> list[int]:
        rows = (row for row, claim in self.waiting.items() if claim.hold is None)
        return sorted(rows, key=lambda row: (-self.waiting[row].priority, row))

    def may_start(self, row: int) -> bool:
        claim = self.waiting[row]
        before = self.ready()[: self.ready().index(row)]
        members = claim.group
        if members is not None and members.policy is _Policy.ENQUEUE:
            taken = sum(_in_group(one, members.config) for one in self.active.values())
            taken += sum(
                _in_group(self.waiting[one], members.config) and _limited(self.waiting[one])
                for one in before
            )
            if taken >= members.max_concurrency:
                return False
        others = [*self.active.values(), *(self.waiting[one] for one in before)]
        return not any(_conflict(claim, other) for other in others)

    def decide(self) -> set[int]:
        found = set()
        while chosen := next((row for row in self.ready() if self.may_start(row)), None):
            self.active[chosen] = self.waiting.pop(chosen)
            found.add(chosen)
        return found


def _in_group(claim: job_start_queue.Claim, config: str) -> bool:
    return claim.group is not None and claim.group.config == config


def _limited(claim: job_start_queue.Claim) -> bool:
    return claim.group is not None and claim.group.policy is not _Policy.ALLOW


def _conflict(one: job_start_queue.Claim, other: job_start_queue.Claim) -> bool:
    return any(
        mine.name == theirs.name and _Mode.EXCLUSIVE in (mine.mode, theirs.mode)
        for mine in one.locks
        for theirs in other.locks
    )


LIMITS = {"a": 1, "b": 2, "c": 3}
"""Of groups; one for all of its jobs."""

CLAIMS = st.builds(
    job_start_queue.Claim,
    priority=st.integers(-1, 1),
    group=st.one_of(
        st.none(),
        st.builds(
            lambda name, policy: group(name, policy, most=LIMITS[name]),
            st.sampled_from(sorted(LIMITS)),
            st.sampled_from(["Enqueue", "Enqueue", "Allow"]),
        ),
    ),
    locks=st.lists(st.builds(lock, st.sampled_from("xyz"), shared=st.booleans()), max_size=3).map(
        tuple
    ),
    hold=st.sampled_from([None, None, None, job_start_queue.Hold(reason="Wait")]),
)


@settings(max_examples=150)
@given(st.data())
def test_incremental_decisions_match_the_rules(data: st.DataObject) -> None:
    queue, wanted, row = job_start_queue.StartQueue(), Reference(), 0
    for _ in range(data.draw(st.integers(1, 25))):
        act = data.draw(st.sampled_from(["add", "add", "add", "end", "change", "leave"]))
        if act == "add":
            row += 1
            wanted.waiting[row] = data.draw(CLAIMS)
            queue.add(row, SPACE, wanted.waiting[row], due=True)
        elif act == "end" and wanted.active:
            ended = data.draw(st.sampled_from(sorted(wanted.active)))
            del wanted.active[ended]
            queue.remove(ended)
        elif act == "leave" and wanted.waiting:
            left = data.draw(st.sampled_from(sorted(wanted.waiting)))
            del wanted.waiting[left]
            queue.remove(left)
        elif act == "change" and wanted.waiting:
            changed = data.draw(st.sampled_from(sorted(wanted.waiting)))
            new = data.draw(CLAIMS)
            old = wanted.waiting[changed]
            claim = job_start_queue.Claim(
                priority=new.priority, group=old.group, locks=old.locks, hold=new.hold
            )
            wanted.waiting[changed] = claim
            queue.change_claim(changed, claim)
        found = queue.decide()
        assert set(started(found)) == wanted.decide()
        assert not queue.changed
    while wanted.active:  # whatever has started ends: all that are ready have their turn
        ended = min(wanted.active)
        del wanted.active[ended]
        queue.remove(ended)
        assert set(started(queue.decide())) == wanted.decide()
    assert wanted.ready() == []


def test_equal_jobs_start_in_order_of_rows() -> None:
    queue = job_start_queue.StartQueue()
    rows = random.Random(7).sample(range(1, 200), 100)
    for row in rows:
        queue.add(
            row,
            SPACE,
            job_start_queue.Claim(group=group("g"), hold=job_start_queue.Hold(reason="r")),
            due=True,
        )
    for row in rows:
        queue.change_claim(row, job_start_queue.Claim(group=group("g")))
    order: list[int] = []
    while len(order) < 100:
        [row] = started(queue.decide())
        order.append(row)
        queue.remove(row)
    assert order == sorted(rows)


def test_shared_waiters_do_not_overtake_exclusive_waiter() -> None:
    queue = job_start_queue.StartQueue()
    queue.add(1, SPACE, job_start_queue.Claim(locks=(lock("l", shared=True),)), due=True)
    assert started(queue.decide()) == [1]
    queue.add(2, SPACE, job_start_queue.Claim(locks=(lock("l"),)), due=True)
    for row in range(3, 20):
        queue.add(row, SPACE, job_start_queue.Claim(locks=(lock("l", shared=True),)), due=True)
    assert started(queue.decide()) == []
    why = queue.explain_wait(3)
    assert why is not None
    assert why.reason == "WaitingForLock"
    queue.remove(1)
    assert started(queue.decide()) == [2]
    queue.remove(2)
    assert started(queue.decide()) == list(range(3, 20))


def test_locks_are_separate_per_namespace() -> None:
    queue = job_start_queue.StartQueue()
    for row, space in ((1, "one"), (2, "two")):
        queue.add(row, space, job_start_queue.Claim(locks=(lock("l"),)), due=True)
    assert started(queue.decide()) == [1, 2]


def test_refused_job_has_reason() -> None:
    queue = job_start_queue.StartQueue()
    queue.add(1, SPACE, job_start_queue.Claim(group=group("g", "Forbid")), due=True)
    queue.add(2, SPACE, job_start_queue.Claim(group=group("g", "Forbid")), due=True)
    assert queue.decide() == [
        job_start_queue.Start(1),
        job_start_queue.Refuse(2, "Forbidden", "1 Jobs of JobConfig g run, maxConcurrency is 1"),
    ]
    queue.add(3, SPACE, job_start_queue.Claim(group=group("g", queued=1)), due=True)
    queue.add(4, SPACE, job_start_queue.Claim(group=group("g", queued=1)), due=True)
    assert queue.decide() == [
        job_start_queue.Refuse(4, "QueueFull", "1 Jobs of JobConfig g wait, maxQueued is 1")
    ]
    queue.remove(1)
    assert started(queue.decide()) == [3]


def test_job_not_yet_due_counts_as_waiting_and_blocks_no_other() -> None:
    queue = job_start_queue.StartQueue()
    queue.add(1, SPACE, job_start_queue.Claim(group=group("g", queued=1)), due=False)
    queue.add(2, SPACE, job_start_queue.Claim(group=group("g", queued=1)), due=True)
    queue.add(3, SPACE, job_start_queue.Claim(group=group("g", queued=1)), due=True)
    assert [type(one) for one in queue.decide()] == [job_start_queue.Start, job_start_queue.Refuse]
    queue.mark_due(1)
    assert queue.decide() == [job_start_queue.Wait(1)]
    queue.remove(2)
    assert started(queue.decide()) == [1]


def test_changed_wait_reason_is_reported_once() -> None:
    queue = job_start_queue.StartQueue()
    queue.add(1, SPACE, job_start_queue.Claim(locks=(lock("l"),)), due=True)
    queue.add(2, SPACE, job_start_queue.Claim(group=group("g")), due=True)
    late = job_start_queue.Claim(group=group("g"), locks=(lock("l"),), start_after=7.0)
    queue.add(3, SPACE, late, due=False)
    assert started(queue.decide()) == [1, 2]
    reasons = [queue.explain_wait(3)]
    queue.mark_due(3)
    assert queue.decide() == [job_start_queue.Wait(3)]
    reasons.append(queue.explain_wait(3))
    queue.remove(2)
    assert queue.decide() == [job_start_queue.Wait(3)]
    reasons.append(queue.explain_wait(3))
    found = [one.reason for one in reasons if one is not None]
    assert found == ["NotYetDue", "Queued", "WaitingForLock"]
    assert reasons[0] is not None
    assert reasons[0].message == "startAfter is 1970-01-01T00:00:07Z"
    queue.remove(1)
    assert queue.decide() == [job_start_queue.Start(3)]


def test_job_with_policy_forbid_is_refused_when_due() -> None:
    queue = job_start_queue.StartQueue()
    queue.add(1, SPACE, job_start_queue.Claim(group=group("g", "Forbid")), due=False)
    queue.add(2, SPACE, job_start_queue.Claim(group=group("g", "Forbid")), due=True)
    assert started(queue.decide()) == [2]
    queue.mark_due(1)
    [refused] = queue.decide()
    assert isinstance(refused, job_start_queue.Refuse)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_replace_ends_only_as_many_oldest_jobs_as_needed(most: int) -> None:
    queue = job_start_queue.StartQueue()
    for row in range(1, most + 1):
        queue.add(
            row, SPACE, job_start_queue.Claim(group=group("g", "Replace", most=most)), due=True
        )
    assert started(queue.decide()) == list(range(1, most + 1))
    queue.add(9, SPACE, job_start_queue.Claim(group=group("g", "Replace", most=most)), due=True)
    [kill] = queue.decide()
    assert isinstance(kill, job_start_queue.Replace)
    assert kill.row == 1
    assert queue.decide() == []
    queue.remove(1)
    assert started(queue.decide()) == [9]


def test_each_replacing_job_replaces_the_previous_one() -> None:
    queue = job_start_queue.StartQueue()
    claim = job_start_queue.Claim(group=group("g", "Replace"))
    for row in (1, 2, 3):
        queue.add(row, SPACE, claim, due=True)
    assert queue.decide() == [
        job_start_queue.Start(1),
        job_start_queue.Replace(1, "a newer Job of JobConfig g takes its place"),
    ]
    queue.remove(1)
    found = queue.decide()
    assert [(type(one), one.row) for one in found] == [
        (job_start_queue.Start, 2),
        (job_start_queue.Replace, 2),
    ]
    queue.remove(2)
    assert started(queue.decide()) == [3]


def test_restored_job_is_counted_and_holds_locks() -> None:
    queue = job_start_queue.StartQueue()
    claim = job_start_queue.Claim(group=group("g"), locks=(lock("l"),))
    queue.restore(1, SPACE, claim, stopping=True)
    queue.add(2, SPACE, job_start_queue.Claim(group=group("g")), due=True, fresh=False)
    queue.add(3, SPACE, job_start_queue.Claim(locks=(lock("l"),)), due=True, fresh=False)
    assert queue.decide() == []
    assert (queue.active_rows("g"), queue.queued_rows("g")) == ([1], [2])
    queue.remove(1)
    assert started(queue.decide()) == [2, 3]


def test_raised_limits_start_more_jobs() -> None:
    queue = job_start_queue.StartQueue()
    for row in range(1, 5):
        queue.add(row, SPACE, job_start_queue.Claim(group=group("g")), due=True)
    assert started(queue.decide()) == [1]
    queue.set_limits(group("g", most=3))
    assert started(queue.decide()) == [2, 3]


def test_decision_is_fast_with_ten_thousand_waiting_jobs() -> None:
    """The work for one job does not grow with the number of waiting jobs."""
    costs: list[Any] = []
    for count in (1_000, 10_000):
        queue = job_start_queue.StartQueue()
        began = time.process_time()
        for row in range(1, count + 1):
            claim = job_start_queue.Claim(group=group("g", most=3), locks=(lock("l", shared=True),))
            queue.add(row, SPACE, claim, due=True)
        done = 0
        running = started(queue.decide())
        while running:
            queue.remove(running.pop(0))
            done += 1
            running += started(queue.decide())
        assert done == count
        costs.append((time.process_time() - began) / count)
    assert costs[1] < costs[0] * 10
