"""Random stories in which what failed is retried: only that runs again, whatever happens meanwhile.

As `test_calls_stories` with a journal and crashes at every commit. The world checks that no run
follows a success (`call_simulation.Simulation.begin_again`).
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from kilnwork.api import attempts, calls
from kilnwork.dispatch.journal import retry_selection, task_rows
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids
from support import call_simulation
from unit.dispatch import test_calls_stories


class RetryStories(test_calls_stories.CallCrashStories):
    """Rules are what can happen; invariants are what must never."""

    def failed(self) -> list[ids.TaskId]:
        rows = map(self.world.store.reader.task_row, self.world.finals)
        return [row.task for row in rows if row is not None and retry_selection.has_failed(row)]

    @rule(seed=test_calls_stories.SEEDS, steps=st.integers(10, 60))
    def much_fails(self, *, seed: int, steps: int) -> None:
        """Parents with children, most of which fail and are retried."""
        dice = random.Random(seed)
        while len(self.world.agents) < 3:
            self.world.connect_agent()
        acts: list[Callable[[random.Random], None]] = [
            self.submit, self.open_slot, self.open_slot, self.fail, self.fail, self.end,
            self.have_child, self.have_child, self.have_child, self.go_on, self.go_on,
            self.fail_a_parent, self.fail_a_parent, self.retry_failed, self.retry_failed,
        ]  # fmt: skip
        for _ in range(steps):
            dice.choice(acts)(dice)
            self.it_holds()
            self.families_are_those_of_the_journal()
            self.no_child_has_two_rows_of_one_key()

    def child_template(self, dice: random.Random, ordinal: int) -> int:
        """The same each time that a parent runs, so that it finds its children."""
        return ordinal % 2

    def fail(self, dice: random.Random) -> None:
        slot = self.a_running_slot(dice)
        if slot is not None and slot.running is not None:
            self.world.end(slot, attempts.Ending.FAILED)

    def fail_a_parent(self, dice: random.Random) -> None:
        slots = [s for s in self.world.linked() if s.running and s.children.get(s.running)]
        if slots:
            self.world.end(dice.choice(slots), attempts.Ending.FAILED)

    def retry_failed(self, dice: random.Random) -> None:
        world, reader, failed = self.world, self.world.store.reader, self.failed()
        if not failed:
            return
        start = reader.task_row(dice.choice(failed))
        assert start is not None
        needs = retry_selection.dependents_of(reader.failed_dependents("ns"))
        plan = retry_selection.plan(start, reader.task_row, needs)
        world.apply(inputs.RetryFailed(retry_selection.reruns(plan, reader)))
        for row in plan.rows:
            assert world.runs[row.task] == row.run + 1, "each has its next run"
        below = any(row.task == start.task for row in plan.rows)
        assert below, "what is named runs again at once"

    @precondition(lambda self: self.world.order)
    @rule(seed=test_calls_stories.SEEDS)
    def submit_with_its_key_again(self, seed: int) -> None:
        """Another session of the driver submits a call with a key, which may have failed."""
        world = self.world
        keyed = [n for n, task in world.asked.items() if task in world.accepted]
        if not keyed:
            return
        of = random.Random(seed).choice(keyed)
        number, task = world.new_id()
        world.apply(inputs.Attach(number, number.to_bytes(16, "big"), "ns"))
        world.define(number)
        item = calls.CallItem(
            number, task, 0, call_simulation.PAYLOAD, key=f"k{of}", retry_failed=True
        )
        world.look_up_and_apply(inputs.SubmitCalls(number, (item,)))
        if task in world.memory.tasks:
            world.order.append(task)
            world.accepted.add(task)
        world.apply(inputs.LinkClosed(number))

    @invariant()
    def families_are_those_of_the_journal(self) -> None:
        reader = self.world.store.reader
        for task in self.world.memory.tasks.values():
            if task.family is not None:
                stored = task_rows.counts(reader.child_states(task.id, task.run))
                assert stored == task.family.counts(), str(task.ref)

    @invariant()
    def no_child_has_two_rows_of_one_key(self) -> None:
        reader = self.kept.journal.reader
        for task in self.world.memory.tasks.values():
            if task.siblings is not None and task.parent is not None and task.child_key:
                row = reader.child_row(task.parent.task, task.parent.run, task.child_key)
                assert row is not None
                assert (row.task, row.run) == (task.id, task.run)


@pytest.mark.parametrize("seed", range(24))
def test_only_failed_tasks_run_again(seed: int) -> None:
    """The same without shrinking, and denser."""
    dice, stories = random.Random(seed), RetryStories()
    try:
        for _ in range(12):
            stories.much_fails(seed=dice.randrange(1 << 16), steps=dice.randint(5, 30))
            if dice.random() < 0.4:
                stories.sigkill(lost=dice.choice(["nothing", "submit", "kill", "tick"]))
            if dice.random() < 0.3:
                stories.submit_with_its_key_again(dice.randrange(1 << 16))
            stories.disk_and_memory_agree()
            stories.what_ended_stays_ended()
    finally:
        stories.teardown()
