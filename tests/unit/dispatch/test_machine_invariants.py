"""Random stories: whatever happens in whatever order, the invariants of the design hold.

The model is a world of workers that run what they are given, respond, forget, restart and vanish,
and of people who submit and kill. Time jumps. After every step the machine is checked from outside:
by what it sends and what it would write.
"""

import random
import tempfile
from pathlib import Path

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import restore, rows_to_write
from kilnwork.dispatch.journal.sqlite import journal, queries
from kilnwork.dispatch.machine import inputs, instructions, machine, memory
from kilnwork.kit import ids

LEASE_S = 10.0
ENDINGS = st.sampled_from(list(attempts.Ending))
RETRIES = st.builds(
    api_task.Retry,
    max_attempts=st.integers(1, 3),
    max_losses=st.integers(0, 2),
    delay_seconds=st.sampled_from([0.0, 1.0]),
)
TIMEOUTS = st.builds(
    api_task.Timeouts,
    pending_seconds=st.sampled_from([None, None, 5.0]),
    running_seconds=st.sampled_from([None, None, 7.0]),
    total_seconds=st.sampled_from([None, None, 20.0]),
    kill_grace_seconds=st.sampled_from([0.0, 3.0]),
)
SPECS = st.builds(
    api_task.TaskSpec,
    command=st.just(("true",)),
    priority=st.integers(-1, 1),
    retry=RETRIES,
    timeouts=TIMEOUTS,
)


class Agent:
    """A worker as the world has it: what it was given and has not reported."""

    def __init__(self, session: bytes, pod_uid: str) -> None:
        self.session = session
        self.pod_uid = pod_uid
        self.link = 0
        self.serial = 0
        self.has: set[attempts.AttemptRef] = set()


class Stories(RuleBasedStateMachine):
    """Rules are what can happen; invariants are what must never."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = memory.Memory(lease_s=LEASE_S, entropy=random.Random(0))
        self.machine = machine.Machine(self.memory)
        self.wall, self.mono = 1_000_000.0, 0.0
        self.numbers = iter(range(1, 1_000_000))
        self.agents: dict[int, Agent] = {}
        self.lost_agents: list[Agent] = []
        self.submitted: list[model.Submission] = []
        self.finals: dict[tuple[ids.TaskId, int], api_task.State] = {}
        self.newest: dict[tuple[ids.TaskId, int], int] = {}
        self.old: list[inputs.Started | inputs.Finished] = []
        self.failures: dict[tuple[ids.TaskId, int], int] = {}

    def now(self) -> inputs.Moment:
        return inputs.Moment(self.wall, self.mono)

    def apply(self, item: inputs.Input) -> None:
        self.machine.handle(item, self.now())
        self.settle()

    def settle(self) -> None:
        batch = self.machine.take(self.now())
        self.commit(batch)
        for send in batch.sends:
            self.deliver(send)
        for task in batch.finals:
            key = (task.id, task.run)
            assert key not in self.finals, "a run ends once"
            self.finals[key] = task.state
            assert task.finished is not None
            assert task.reason, "an end has a reason"
        self.machine.forget(batch.finals)

    def commit(self, batch: instructions.Batch) -> None:
        """Where the journal would write."""

    def deliver(self, send: instructions.Send) -> None:
        agent = self.agents.get(send.link)
        if isinstance(send, instructions.RunAttempt):
            key = (send.ref.task, send.ref.run)
            assert key not in self.finals, "nothing starts after the end"
            assert send.ref.attempt >= self.newest.get(key, 1), "numbers rise"
            self.newest[key] = send.ref.attempt
            assert send.task.spec.retry.max_attempts >= 1
            if agent is not None:
                agent.has.add(send.ref)
        elif isinstance(send, instructions.CloseLink):
            if agent is not None:
                self.agents.pop(send.link)
                agent.link = 0
                self.lost_agents.append(agent)
        elif isinstance(send, instructions.Welcome) and agent is not None:
            agent.has -= set(send.unknown)

    @rule(spec=SPECS)
    def submit(self, spec: api_task.TaskSpec) -> None:
        task = ids.TaskId(next(self.numbers).to_bytes(16, "big"))
        submission = model.Submission(task=task, namespace="ns", name="t", spec=spec)
        self.submitted.append(submission)
        self.apply(inputs.Submit(submission))

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        submission = data.draw(st.sampled_from(self.submitted))
        state = self.finals.get((submission.task, submission.spec.run))
        past = None if state is None else inputs.Past(submission.spec.run, state)
        rows = len(self.memory.tasks)
        self.apply(inputs.Submit(submission, past))
        assert len(self.memory.tasks) == rows

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def raise_run(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.submitted) - 1))
        old = self.submitted[at]
        state = self.finals.get((old.task, old.spec.run))
        if state is None:
            return
        spec = msgspec.structs.replace(old.spec, run=old.spec.run + 1)
        self.submitted[at] = msgspec.structs.replace(old, spec=spec)
        past = inputs.Past(old.spec.run, state)
        self.apply(inputs.Submit(self.submitted[at], past, force=True))

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        submission = data.draw(st.sampled_from(self.submitted))
        self.apply(inputs.Kill(submission.task, reasons.Reason.KILLED))

    @rule(dice=st.integers(0, 9))
    def close_cluster(self, dice: int) -> None:
        if dice == 0:
            self.apply(inputs.CloseCluster("ns", "default"))

    def join(self, agent: Agent) -> None:
        agent.link = next(self.numbers)
        self.agents[agent.link] = agent
        item = inputs.Join(
            link=agent.link, session=agent.session, namespace="ns", cluster="default", name="w",
            pod_uid=agent.pod_uid, node="n", slots=2, running=tuple(agent.has),
        )  # fmt: skip
        self.apply(item)

    @rule()
    def worker_comes(self) -> None:
        number = next(self.numbers)
        self.join(Agent(number.to_bytes(16, "big"), f"pod-{number}"))

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def link_breaks(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        agent = self.agents.pop(link)
        self.lost_agents.append(agent)
        self.apply(inputs.LinkClosed(link))

    @precondition(lambda self: self.lost_agents)
    @rule(forgets=st.booleans())
    def worker_returns(self, *, forgets: bool) -> None:
        agent = self.lost_agents.pop()
        if forgets:
            agent.has = set(sorted(agent.has, key=str)[1:])
        self.join(agent)

    @precondition(lambda self: self.lost_agents)
    @rule()
    def container_restarts(self) -> None:
        agent = self.lost_agents.pop()
        self.join(Agent(next(self.numbers).to_bytes(16, "big"), agent.pod_uid))

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def pod_vanishes(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.apply(inputs.WorkerGone(self.agents[link].pod_uid))
        assert link not in self.memory.links

    @precondition(lambda self: any(a.has for a in self.agents.values()))
    @rule(data=st.data(), ending=ENDINGS, proof=st.booleans(), silent=st.booleans())
    def attempt_runs(
        self, *, data: st.DataObject, ending: attempts.Ending, proof: bool, silent: bool
    ) -> None:
        busy = sorted(link for link, agent in self.agents.items() if agent.has)
        agent = self.agents[data.draw(st.sampled_from(busy))]
        ref = data.draw(st.sampled_from(sorted(agent.has, key=str)))
        proof = proof or ending in {attempts.Ending.SUCCEEDED, attempts.Ending.FAILED}
        before = self.memory.tasks.get(ref.task)
        counted = before.failures if before else 0
        agent.serial += 2
        started = inputs.Started(agent.link, agent.serial - 1, ref, self.wall)
        reason = "Succeeded" if ending is attempts.Ending.SUCCEEDED else "NonZeroExit"
        outcome = attempts.Outcome(ending, reason, exit_code=1, proof=proof)
        finished = inputs.Finished(agent.link, agent.serial, ref, outcome)
        agent.has.discard(ref)
        self.old += [started, finished]
        if not silent:
            self.apply(started)
        self.apply(finished)
        if before is not None and before.ref == ref:
            assert before.failures <= counted + 1

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def late_report(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.old))
        self.apply(item)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), key=st.sampled_from(["=a", "=b", "#1"]), digest=st.binary(max_size=1))
    def spawn(self, data: st.DataObject, key: str, digest: bytes) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        held = sorted(self.agents[link].has, key=str)
        if not held:
            return
        parent = data.draw(st.sampled_from(held))
        task = ids.TaskId(next(self.numbers).to_bytes(16, "big"))
        item = inputs.Spawn(
            link=link, serial=1, parent=parent, child_key=key, task=task, name="child",
            spec=api_task.TaskSpec(command=("true",)), inputs=None, digest=digest,
        )  # fmt: skip
        self.apply(item)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data(), suspended=st.booleans())
    def suspend_or_resume(self, data: st.DataObject, *, suspended: bool) -> None:
        task = data.draw(st.sampled_from(self.submitted)).task
        self.apply(inputs.Suspend(task, suspended))

    @precondition(lambda self: self.finals)
    @rule(data=st.data())
    def object_goes(self, data: st.DataObject) -> None:
        task, _ = data.draw(st.sampled_from(sorted(self.finals)))
        self.apply(inputs.Release((task,)))

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 11.0]), renews=st.booleans())
    def time_passes(self, *, seconds: float, renews: bool) -> None:
        self.wall += seconds
        self.mono += seconds
        if renews:
            for link in list(self.agents):
                self.apply(inputs.Renew(link))
        self.apply(inputs.Tick())

    @rule()
    def dispatcher_stalls(self) -> None:
        self.apply(inputs.Stalled())

    @invariant()
    def budgets_hold(self) -> None:
        for task in self.memory.tasks.values():
            assert task.failures <= task.spec.retry.max_attempts
            assert task.losses <= task.spec.retry.max_losses + 1

    @invariant()
    def slots_hold(self) -> None:
        for worker in self.memory.workers.values():
            for task in worker.held.values():
                assert task.worker is worker
                assert task.held
            assert len(worker.held) <= max(worker.slots, 2)

    @invariant()
    def every_task_is_somewhere(self) -> None:
        for task in self.memory.tasks.values():
            assert not task.state.final, "finals are forgotten after their commit"
            assert task.reason, "what waits says why"
            holders = [w for w in self.memory.workers.values() if task.id in w.held]
            assert len(holders) <= 1
            if task.state is api_task.State.PENDING:
                assert not holders
                assert task.ticket is not None or task.due > 0 or task.suspended
                assert not (task.suspended and task.ticket is not None)
            else:
                assert len(holders) == 1
                assert task.ticket is None

    @invariant()
    def nothing_waits_beside_a_free_slot(self) -> None:
        for cluster in self.memory.clusters.values():
            free = [w for w in cluster.workers.values() if w.ready and w.busy < w.slots]
            assert not (free and len(cluster.queue))

    def teardown(self) -> None:
        """In the end everything ends: good workers, enough time."""
        for task in list(self.memory.tasks):
            self.apply(inputs.Suspend(task, False))
        for _ in range(200):
            if not self.memory.tasks:
                return
            if not self.agents:
                self.worker_comes()
            for agent in list(self.agents.values()):
                for ref in sorted(agent.has, key=str):
                    agent.serial += 1
                    outcome = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded")
                    agent.has.discard(ref)
                    self.apply(inputs.Finished(agent.link, agent.serial, ref, outcome))
                for ref in list(self.memory.links[agent.link].unproven):
                    gone = attempts.Outcome(attempts.Ending.STOPPED, "Killed", proof=True)
                    self.apply(inputs.Finished(agent.link, agent.serial, ref, gone))
            self.time_passes(seconds=4.0, renews=True)
        raise AssertionError(f"tasks that never end: {self.memory.tasks}")


class CrashStories(Stories):
    """The same with a real journal, from which the dispatcher starts again after a SIGKILL."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.acknowledged: set[tuple[ids.TaskId, int]] = set()
        self.start()

    def start(self) -> None:
        self.store = journal.Journal(Path(self.directory.name) / "journal.db")
        opened = self.store.open()
        self.memory = memory.Memory(
            lease_s=LEASE_S,
            entropy=random.Random(0),
            task_row=opened.next_task_row,
            worker_row=opened.next_worker_row,
            template_row=opened.next_template_row,
        )
        self.reader = queries.Queries(self.store.path)
        assert opened.saved is not None
        restore.restore(self.memory, opened.saved, self.reader.values, self.now())
        restore.expect_workers(self.memory, self.now())
        self.machine = machine.Machine(self.memory)

    def commit(self, batch: instructions.Batch) -> None:
        self.store._commit(rows_to_write.of_batch(batch))
        self.acknowledged |= {(one.task, one.spec.run) for one in self.submitted}

    @rule(lost=st.sampled_from(["nothing", "submit", "kill", "tick"]))
    def sigkill(self, lost: str) -> None:
        """Whatever the machine had decided and the journal had not is gone; links are too."""
        if lost == "submit":
            task = ids.TaskId(next(self.numbers).to_bytes(16, "big"))
            spec = api_task.TaskSpec(command=("true",))
            one = model.Submission(task=task, namespace="ns", name="lost", spec=spec)
            self.machine.handle(inputs.Submit(one), self.now())
        elif lost == "kill" and self.submitted:
            self.machine.handle(inputs.Kill(self.submitted[-1].task, "Killed"), self.now())
        elif lost == "tick":
            self.wall += 3.0
            self.mono += 3.0
            self.machine.handle(inputs.Tick(), self.now())
        self.machine.take(self.now())
        self.reader.close()
        self.store.close()
        self.lost_agents += self.agents.values()
        self.agents.clear()
        self.old.clear()
        self.start()
        self.settle()

    @invariant()
    def no_accepted_task_is_lost(self) -> None:
        for task, run in self.acknowledged:
            assert self.reader.task_row(task, run=run) is not None

    @invariant()
    def what_ended_stays_ended(self) -> None:
        for (task, run), state in self.finals.items():
            row = self.reader.task_row(task, run=run)
            assert row is not None
            assert row.state == state.value

    @invariant()
    def disk_and_memory_agree(self) -> None:
        unfinished = {row.task: row for row in self.reader.unfinished()}
        assert unfinished.keys() == self.memory.tasks.keys()
        for task in self.memory.tasks.values():
            row = unfinished[task.id]
            assert (row.state, row.attempt, row.run) == (task.state.value, task.attempt, task.run)
            assert (row.failures, row.losses) == (task.failures, task.losses)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.reader.close()
            self.store.close()
            self.directory.cleanup()


TestStories = Stories.TestCase
TestStories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCrashStories = CrashStories.TestCase
TestCrashStories.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
