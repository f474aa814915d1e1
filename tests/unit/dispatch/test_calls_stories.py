"""Random stories about calls: whatever slots, agents, drivers and people do, nothing is lost.

As `test_machine_invariants`, for calls: the world is made of players (`support.call_simulation`)
who keep to the channel's rules and may fail at any moment. `work` does what happens all the time,
many things in one step; the other rules are what goes wrong.
"""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kilnwork.api import attempts, calls, reasons
from kilnwork.dispatch.journal import memory_store, port, rows_to_write
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids
from support import call_invariants, call_simulation

SEEDS = st.integers(0, 2**16)


class CallStories(RuleBasedStateMachine):
    """Rules are what can happen; invariants are what must never."""

    def __init__(self) -> None:
        super().__init__()
        self.world = self.make_world()
        self.world.connect_agent()

    def make_world(self) -> call_simulation.Simulation:
        return call_simulation.Simulation(memory_store.MemoryStore)

    @rule(seed=SEEDS, steps=st.integers(1, 12))
    def work(self, *, seed: int, steps: int) -> None:
        dice = random.Random(seed)
        acts: list[Callable[[random.Random], None]] = [
            self.submit, self.open_slot, self.open_slot, self.end, self.end, self.end,
            self.have_child, self.have_child, self.go_on, self.go_on, self.bounce, self.report,
        ]  # fmt: skip
        for _ in range(steps):
            dice.choice(acts)(dice)

    def submit(self, dice: random.Random) -> None:
        world, items = self.world, []
        for _ in range(dice.randint(1, 5)):
            number, task = world.new_id()
            needs = (dice.choice(world.order[-6:]),) if world.order and dice.random() < 0.3 else ()
            key = f"k{number}" if dice.random() < 0.2 else None
            template = dice.randrange(3)
            items.append(
                calls.CallItem(number, task, template, call_simulation.PAYLOAD, needs, key=key)
            )
            world.order.append(task)
            world.asked[number] = task
        world.look_up_and_apply(inputs.SubmitCalls(world.driver, tuple(items)))
        world.accepted |= {item.task for item in items}

    def open_slot(self, dice: random.Random) -> None:
        agents = [agent for agent in self.world.connected() if agent.wanted]
        if agents:
            self.world.fork_slot(dice.choice(agents), fails=dice.random() < 0.05)

    def a_running_slot(self, dice: random.Random) -> call_simulation.SlotPlayer | None:
        slots = [slot for slot in self.world.linked() if slot.running is not None]
        return dice.choice(slots) if slots else None

    def end(self, dice: random.Random) -> None:
        slot = self.a_running_slot(dice)
        if slot is None or slot.running is None:
            return
        failed = dice.random() < 0.2
        children = slot.children.get(slot.running, [])
        delegate = dice.choice(children) if children and dice.random() < 0.4 else None
        ending = attempts.Ending.FAILED if failed else attempts.Ending.SUCCEEDED
        seconds = dice.choice([0.001, 0.001, 1.0])
        self.world.end(slot, ending, seconds=seconds, delegate=None if failed else delegate)

    def have_child(self, dice: random.Random) -> None:
        world, slot = self.world, self.a_running_slot(dice)
        if slot is None or slot.running is None:
            return
        number, task = world.new_id()
        ref, keyed = slot.running, dice.random() < 0.3
        children = slot.children.setdefault(ref, [])
        item = calls.CallItem(
            number, task, self.child_template(dice, len(children)),
            call_simulation.PAYLOAD, parent=ref,
            needs=(children[-1],) if children and dice.random() < 0.3 else (),
            key="child" if keyed else None, ordinal=0 if keyed else len(children) + 1,
        )  # fmt: skip
        world.look_up_and_apply(inputs.SubmitCalls(slot.link, (item,)))
        if task in world.memory.tasks:
            world.order.append(task)
            children.append(task)
            world.accepted.add(task)
        elif number in world.found and world.found[number] not in children:
            children.append(world.found[number])
        if slot.running == ref and slot.link and children and dice.random() < 0.7:
            in_place, first = dice.random() < 0.7, dice.random() < 0.3
            world.wait(slot, call_simulation.WaitSpec(tuple(children[-2:]), in_place, first))

    def child_template(self, dice: random.Random, ordinal: int) -> int:
        return dice.randrange(3)

    def go_on(self, dice: random.Random) -> None:
        slots = [slot for slot in self.world.linked() if slot.waiting]
        if slots:
            self.world.resume_wait(dice.choice(slots))

    def bounce(self, dice: random.Random) -> None:
        """Calls that came while the slot waits go back."""
        for slot in self.world.linked():
            if slot.waiting and slot.queue:
                self.world.give_back(slot, list(slot.queue))

    def report(self, dice: random.Random) -> None:
        slot = self.a_running_slot(dice)
        if slot is not None and slot.running is not None:
            slot.serial += 1
            self.world.apply(inputs.Started(slot.link, slot.serial, slot.running, self.world.wall))

    @precondition(lambda self: self.world.order)
    @rule(seed=SEEDS)
    def submit_again(self, seed: int) -> None:
        world, task = self.world, random.Random(seed).choice(self.world.order)
        before = len(world.memory.tasks)
        number, _ = world.new_id()
        world.asked[number] = task
        item = calls.CallItem(number, task, 0, call_simulation.PAYLOAD)
        world.look_up_and_apply(inputs.SubmitCalls(world.driver, (item,)), again=True)
        assert len(world.memory.tasks) <= before

    @precondition(lambda self: self.world.order)
    @rule(seed=SEEDS, recursive=st.booleans())
    def cancel(self, *, seed: int, recursive: bool) -> None:
        task = random.Random(seed).choice(self.world.order)
        self.world.apply(inputs.CancelTasks(self.world.driver, (task,), recursive))

    @precondition(lambda self: self.world.order)
    @rule(seed=SEEDS, suspended=st.booleans())
    def suspend_or_resume(self, *, seed: int, suspended: bool) -> None:
        task = random.Random(seed).choice(self.world.order)
        self.world.apply(inputs.Suspend(task, suspended))

    @rule()
    def driver_comes_back(self) -> None:
        self.world.apply(inputs.LinkClosed(self.world.driver))
        self.world.attach()

    @precondition(lambda self: len(self.world.agents) < 3)
    @rule()
    def agent_comes(self) -> None:
        self.world.connect_agent()

    @precondition(lambda self: self.world.connected())
    @rule(seed=SEEDS, returns=st.booleans())
    def agent_is_cut_off(self, *, seed: int, returns: bool) -> None:
        agent = random.Random(seed).choice(self.world.connected())
        link, agent.link = agent.link, 0
        self.world.apply(inputs.LinkClosed(link))
        if returns:
            self.world.join(agent)

    @precondition(lambda self: len(self.world.connected()) < len(self.world.agents))
    @rule()
    def agents_return(self) -> None:
        for agent in self.world.agents:
            if not agent.link:
                self.world.join(agent)

    @precondition(lambda self: self.world.agents)
    @rule(seed=SEEDS, vanishes=st.booleans())
    def agent_dies(self, *, seed: int, vanishes: bool) -> None:
        world = self.world
        agent = world.agents.pop(random.Random(seed).randrange(len(world.agents)))
        links = [agent.link, *(slot.link for slot in agent.slots.values())]
        if vanishes:
            world.apply(inputs.WorkerGone(agent.pod_uid))
        for link in links:
            if link:
                world.apply(inputs.LinkClosed(link))
        if not vanishes:
            world.connect_agent(agent.pod_uid)

    @precondition(lambda self: self.world.linked())
    @rule(seed=SEEDS, returns=st.booleans())
    def slot_is_cut_off(self, *, seed: int, returns: bool) -> None:
        slot = random.Random(seed).choice(self.world.linked())
        link, slot.link = slot.link, 0
        self.world.apply(inputs.LinkClosed(link))
        if returns and slot.agent.link:
            self.world.connect_slot(slot)

    @precondition(lambda self: any(not slot.link for slot in self.world.slots()))
    @rule()
    def slots_return(self) -> None:
        for slot in self.world.slots():
            if not slot.link and slot.agent.link:
                self.world.connect_slot(slot)

    @precondition(lambda self: any(slot.agent.link for slot in self.world.slots()))
    @rule(seed=SEEDS, code=st.sampled_from([0, 1, 137]), late=st.booleans())
    def slot_dies(self, *, seed: int, code: int, late: bool) -> None:
        slots = [slot for slot in self.world.slots() if slot.agent.link]
        self.world.exits(random.Random(seed).choice(slots), code=code, late=late)

    @precondition(lambda self: any(agent.kills for agent in self.world.connected()))
    @rule()
    def slots_are_killed(self) -> None:
        for agent in self.world.connected():
            for name in sorted(agent.kills):
                agent.kills.discard(name)
                if name in agent.slots:
                    self.world.exits(agent.slots[name], code=137, asked=True)

    @precondition(lambda self: self.world.late)
    @rule(seed=SEEDS)
    def a_report_comes_twice(self, seed: int) -> None:
        before = dict(self.world.finals)
        self.world.apply(random.Random(seed).choice(self.world.late))
        assert before == self.world.finals

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 11.0]), renews=st.booleans())
    def time_passes(self, *, seconds: float, renews: bool) -> None:
        self.world.pass_time(seconds, renews=renews)

    @invariant()
    def it_holds(self) -> None:
        mem = self.world.memory
        call_invariants.check_each_task_has_one_place(mem)
        call_invariants.check_reservation_counts(mem)
        call_invariants.check_no_call_waits_beside_idle_slot(mem)
        call_invariants.check_slots_open_for_waiting_calls(mem)
        call_invariants.check_wanted_tasks_index(mem)
        call_invariants.check_no_task_runs_twice_at_once(self.world)
        call_invariants.check_no_accepted_task_is_lost(self.world)

    def teardown(self) -> None:
        """In the end everything ends: good agents, enough time, and every result arrives."""
        world = self.world
        for task in list(world.memory.tasks):
            world.apply(inputs.Suspend(task, False))
        for _ in range(400):
            if not world.memory.tasks:
                break
            self.step_to_the_end()
        assert not world.memory.tasks, [str(task.ref) for task in world.memory.tasks.values()]
        assert not world.memory.waits_by_task
        assert not world.memory.keys
        assert {task for task in world.asked.values() if task in world.accepted} <= set(
            world.results
        )

    def step_to_the_end(self) -> None:
        world = self.world
        if not world.agents:
            world.connect_agent()
        for agent in world.agents:
            if not agent.link:
                world.join(agent)
        self.slots_return()
        self.slots_are_killed()
        self.bounce(random.Random(0))
        for agent in world.connected():
            while agent.wanted and agent.link:
                world.fork_slot(agent)
        for slot in world.linked():
            world.resume_wait(slot)
            if slot.link and slot.running is not None:
                world.end(slot, attempts.Ending.SUCCEEDED)
        world.pass_time(1.0, renews=True)


class JournalWorld(call_simulation.Simulation):
    """A world whose dispatcher keeps a journal."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal.db"
        super().__init__(self.open_journal)

    def open_journal(self) -> port.Store:
        self.journal = journal.Journal(self.path)
        return self.journal

    def commit(self, batch: instructions.Batch) -> None:
        self.journal._commit(rows_to_write.of_batch(batch))


class CallCrashStories(CallStories):
    """The same with a real journal, from which the dispatcher starts again after a SIGKILL."""

    def make_world(self) -> call_simulation.Simulation:
        self.directory = tempfile.TemporaryDirectory()
        self.kept = JournalWorld(Path(self.directory.name))
        return self.kept

    @rule(lost=st.sampled_from(["nothing", "submit", "kill", "tick"]))
    def sigkill(self, lost: str) -> None:
        """Whatever the machine had decided and the journal had not is gone; links are too."""
        world = self.world
        item: inputs.Input | None = None
        if lost == "submit":
            number, task = world.new_id()
            call = calls.CallItem(number, task, 0, call_simulation.PAYLOAD)
            item = inputs.SubmitCalls(world.driver, (call,))
        elif lost == "kill" and world.order:
            item = inputs.Kill(world.order[-1], reasons.Reason.KILLED)
        elif lost == "tick":
            world.wall += 3.0
            world.mono += 3.0
            item = inputs.Tick()
        world.die(item)

    @invariant()
    def disk_and_memory_agree(self) -> None:
        unfinished = {row.task: row for row in self.kept.journal.reader.unfinished()}
        assert unfinished.keys() == self.world.memory.tasks.keys()
        for task in self.world.memory.tasks.values():
            row = unfinished[task.id]
            assert (row.state, row.attempt) == (task.state.value, task.attempt)
            assert (row.failures, row.losses) == (task.failures, task.losses)
            assert (row.needed, row.delegate) == (task.needs, task.delegate)
            worker = None if task.worker is None else task.worker.row
            assert (row.worker, row.usage) == (worker, task.usage)

    @invariant()
    def what_ended_stays_ended(self) -> None:
        for task, state in self.world.finals.items():
            row = self.kept.journal.reader.task_row(task)
            assert row is not None
            assert row.state == state.value

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.kept.journal.close()
            self.directory.cleanup()


def test_restart_keeps_the_worker_of_a_task_that_delegated(tmp_path: Path) -> None:
    world = JournalWorld(tmp_path)
    world.attach()
    world.connect_agent()
    parent = submitted(world, parent=None)
    world.fork_slot(world.agents[0])
    slot = next(slot for slot in world.linked() if slot.running is not None)
    child = submitted(world, parent=slot.running)
    world.end(slot, attempts.Ending.SUCCEEDED, seconds=1.0, delegate=child)
    task = world.memory.tasks[parent]
    assert (task.delegate, task.usage) == (child, attempts.Usage(1.0, 1 << 20))
    assert task.worker is not None
    ran_by = task.worker.name
    world.die(None)
    again = world.memory.tasks[parent]
    assert (again.delegate, again.usage) == (child, task.usage)
    assert again.worker is not None
    assert (again.worker.name, again.worker.row) == (ran_by, task.worker.row)
    world.journal.close()


def submitted(
    world: call_simulation.Simulation, *, parent: attempts.AttemptRef | None
) -> ids.TaskId:
    number, task = world.new_id()
    link = world.driver if parent is None else world.linked()[0].link
    item = calls.CallItem(
        number, task, 0, call_simulation.PAYLOAD, parent=parent, ordinal=0 if parent is None else 1
    )
    world.look_up_and_apply(inputs.SubmitCalls(link, (item,)))
    world.order.append(task)
    return task


TestCallStories = CallStories.TestCase
TestCallStories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCallCrashStories = CallCrashStories.TestCase
TestCallCrashStories.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
