"""Simulation of agents, slots, a driver and the machine between them, for random stories about
calls.

The simulated processes keep to the channel's rules (`channel.messages`), but die, lose links and
respond late at any time. Their state is independent of what the machine believes; stories compare
both (`call_invariants`).
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal import port, restore
from kilnwork.dispatch.machine import inputs, instructions, machine, memory, records
from kilnwork.kit import ids

LEASE_S = 10.0
PAYLOAD = attempts.Payload(attempts.JSON, b"[[],{}]")
TEMPLATES = [
    api_task.TaskSpec(
        call=api_task.Call(f"m:f{number}", accept_failures=number == 2),
        priority=number % 2,
        retry=api_task.Retry(max_attempts=1 + number, max_losses=2, delay_seconds=number % 2),
        timeouts=api_task.Timeouts(kill_grace_seconds=2.0, running_seconds=None if number else 7.0),
    )
    for number in range(3)
]
_FIRST = (instructions.AttachPeer, instructions.CloseLink)


class WaitSpec(NamedTuple):
    """What an attempt waits for: all of these tasks, or any of them if `first`."""

    tasks: tuple[ids.TaskId, ...]
    in_place: bool
    first: bool


class SlotPlayer:
    """A simulated slot process. `stack` has the attempts that have begun, bottom first; those in
    `waits` wait for others.
    """

    def __init__(self, name: bytes, agent: "AgentPlayer") -> None:
        self.name = name
        self.agent = agent
        self.link = 0
        self.serial = 0
        self.queue: list[attempts.AttemptRef] = []
        self.stack: list[attempts.AttemptRef] = []
        self.waits: dict[attempts.AttemptRef, WaitSpec] = {}
        self.children: dict[attempts.AttemptRef, list[ids.TaskId]] = {}

    @property
    def top(self) -> attempts.AttemptRef | None:
        """Return the attempt on top of the stack, waiting or not."""
        return self.stack[-1] if self.stack else None

    @property
    def running(self) -> attempts.AttemptRef | None:
        top = self.top
        return None if top is None or top in self.waits else top

    @property
    def waiting(self) -> bool:
        return self.top is not None and self.top in self.waits

    def begin(self) -> None:
        """Start the next queued attempt if none has begun."""
        if not self.stack and self.queue:
            self.stack.append(self.queue.pop(0))


class AgentPlayer:
    """A simulated agent process and its slots. `wanted` are requested slots that it has not forked
    yet.
    """

    def __init__(self, session: bytes, pod_uid: str) -> None:
        self.session = session
        self.pod_uid = pod_uid
        self.link = 0
        self.serial = 0
        self.wanted: list[bytes] = []
        self.kills: set[bytes] = set()
        self.slots: dict[bytes, SlotPlayer] = {}


class Simulation:
    """Everything outside the machine; `open_store` returns the store for each life of the
    dispatcher.
    """

    def __init__(self, open_store: Callable[[], port.Store]) -> None:
        self.wall, self.mono = 1_000_000.0, 0.0
        self.numbers = iter(range(2, 1_000_000_000))
        self.open_store = open_store
        self.agents: list[AgentPlayer] = []
        self.accepted: set[ids.TaskId] = set()
        self.finals: dict[ids.TaskId, api_task.State] = {}
        self.order: list[ids.TaskId] = []
        self.newest: dict[ids.TaskId, int] = {}
        self.runs: dict[ids.TaskId, int] = {}
        self.found: dict[int, ids.TaskId] = {}
        self.driver = 0
        self.asked: dict[int, ids.TaskId] = {}
        self.results: dict[ids.TaskId, api_task.State] = {}
        self.late: list[inputs.CallsEnded] = []
        self._settling = False
        self._replies: list[Callable[[], None]] = []
        self.start()

    # the dispatcher

    def start(self) -> None:
        """Start a dispatcher on what its store has; the driver connects."""
        self.store = self.open_store()
        opened = self.store.open()
        self.memory = memory.Memory(
            lease_s=LEASE_S,
            entropy=random.Random(next(self.numbers)),
            task_row=opened.next_task_row,
            worker_row=opened.next_worker_row,
            template_row=opened.next_template_row,
        )
        if opened.saved is not None:
            restore.restore(self.memory, opened.saved, self.store.reader.values, self.now())
            restore.expect_workers(self.memory, self.now())
        self.machine = machine.Machine(self.memory)
        self.attach()

    def die(self, lost: inputs.Input | None) -> None:
        """Kill the dispatcher: decisions that were not written are lost, and all links break."""
        if lost is not None:
            self.machine.handle(lost, self.now())
        self.machine.take(self.now())
        self.store.close()
        for agent in self.agents:
            agent.link = 0
            agent.wanted.clear()
            agent.kills.clear()
        for slot in self.slots():
            slot.link = 0
        self.late.clear()
        self.start()

    def commit(self, batch: instructions.Batch) -> None:
        self.store.write(batch, lambda _: None)

    def now(self) -> inputs.Moment:
        return inputs.Moment(self.wall, self.mono)

    def apply(self, item: inputs.Input) -> None:
        """Apply an input to the machine, then the responses of the simulated processes, in
        order.
        """
        self.machine.handle(item, self.now())
        if self._settling:
            return
        self._settling = True
        try:
            self._settle()
            while self._replies:
                self._replies.pop(0)()
                self._settle()
        finally:
            self._settling = False
            self._replies.clear()

    def look_up_and_apply(self, item: Any, *, again: bool = False) -> None:
        """Apply an input after a look-up in the store, as the hub does."""
        asked = self.machine.lookups(item, again=again)
        if asked is not None:
            reader = self.store.reader
            fields = {name: getattr(item, name) for name in item.__struct_fields__}
            fields["values"] = reader.values(asked.namespace, asked.values)
            if isinstance(item, inputs.SubmitCalls):
                fields["known"] = reader.stored_calls(asked)
            item = type(item)(**fields)
        self.apply(item)

    def _settle(self) -> None:
        batch = self.machine.take(self.now())
        self.commit(batch)
        for task in batch.dirty:
            if task.run > self.runs.get(task.id, 1):
                self.begin_again(task)
        self.found |= {
            send.number: send.task
            for send in batch.sends
            if isinstance(send, instructions.FoundCall)
        }
        for task in batch.finals:
            assert task.id not in self.finals, "a run ends once"
            self.finals[task.id] = task.state
            assert task.reason, "an end has a reason"
            assert task.finished is not None
        self.machine.forget(batch.finals)
        for send in batch.sends:
            if isinstance(send, _FIRST):
                self._carry_out(send)
        for link, runs in batch.runs.items():
            self._give(link, runs)
        for send in batch.sends:
            if not isinstance(send, _FIRST):
                self._carry_out(send)
        for link, results in batch.results.items():
            for result in results:
                self._deliver(link, result)

    def begin_again(self, task: records.Task) -> None:
        """Store a new run of a task."""
        assert self.finals.pop(task.id) is not api_task.State.SUCCESS, "a success is reused"
        self.runs[task.id] = task.run
        self.newest.pop(task.id, None)

    def _deliver(self, link: int, result: calls.CallResult) -> None:
        task = self.asked.get(result.number)
        if task is not None and result.state is not api_task.State.PENDING:
            assert self.finals[task] is result.state, "results are those of the disk"
            if link == self.driver:
                self.results[task] = result.state

    def _give(self, link: int, runs: list[tuple[records.Task, int]]) -> None:
        slot = self.slot_at(link)
        for task, attempt in runs:
            if task.attempt != attempt or not task.held:
                continue  # it was lost before this could be sent
            assert task.id not in self.finals, "nothing starts after the end"
            assert attempt >= self.newest.get(task.id, 1), "numbers rise"
            self.newest[task.id] = attempt
            if slot is None:
                continue
            ref = attempts.AttemptRef(task.id, task.run, attempt)
            assert ref not in [*slot.queue, *slot.stack]
            if task.in_place and slot.waiting and not slot.queue:
                slot.stack.append(ref)
            else:
                slot.queue.append(ref)
                slot.begin()

    def _carry_out(self, send: instructions.Send) -> None:
        agent = next((a for a in self.agents if a.link == send.link and a.link), None)
        slot = self.slot_at(send.link)
        if isinstance(send, instructions.CloseLink):
            for peer in (agent, slot):
                if peer is not None:
                    peer.link = 0
        elif agent is not None and isinstance(send, instructions.OpenSlot):
            agent.wanted.append(send.slot)
        elif agent is not None and isinstance(send, instructions.KillSlot):
            agent.kills.add(send.slot)
        elif slot is not None:
            self._tell_slot(slot, send)

    def _tell_slot(self, slot: SlotPlayer, send: instructions.Send) -> None:
        if isinstance(send, instructions.AttachPeer):
            slot.queue = [ref for ref in slot.queue if ref not in send.unknown]
            if any(ref in send.unknown for ref in slot.stack):
                self._replies.append(lambda: self.exits(slot, code=1))
        elif isinstance(send, instructions.TakeBack):
            newest = slot.queue[max(0, len(slot.queue) - send.count) :]
            self._replies.append(lambda: self.give_back(slot, newest))
        elif isinstance(send, instructions.StopCall) and send.ref in slot.queue:
            self._replies.append(lambda: self.give_back(slot, [send.ref]))

    # the driver

    def attach(self) -> None:
        """Connect the driver: it names its templates and watches every task without a result."""
        self.driver = next(self.numbers)
        self.apply(inputs.Attach(self.driver, bytes(16), "ns"))
        self.define(self.driver)
        items = []
        for task in self.order:
            if task not in self.results:
                number = next(self.numbers)
                self.asked[number] = task
                items.append(calls.Watched(number, task))
        if items:
            self.look_up_and_apply(inputs.WatchTasks(self.driver, tuple(items)))

    def define(self, link: int) -> None:
        for number, template in enumerate(TEMPLATES):
            self.apply(inputs.Define(link, number, template))

    def new_id(self) -> tuple[int, ids.TaskId]:
        number = next(self.numbers)
        return number, ids.TaskId(number.to_bytes(16, "big"))

    # agents and slots

    def slots(self) -> list[SlotPlayer]:
        return [slot for agent in self.agents for slot in agent.slots.values()]

    def slot_at(self, link: int) -> SlotPlayer | None:
        return next((slot for slot in self.slots() if slot.link == link and link), None)

    def linked(self) -> list[SlotPlayer]:
        return [slot for slot in self.slots() if slot.link]

    def connected(self) -> list[AgentPlayer]:
        return [agent for agent in self.agents if agent.link]

    def connect_agent(self, pod_uid: str = "") -> None:
        number = next(self.numbers)
        agent = AgentPlayer(number.to_bytes(16, "big"), pod_uid or f"pod-{number}")
        self.agents.append(agent)
        self.join(agent)

    def join(self, agent: AgentPlayer) -> None:
        agent.link = next(self.numbers)
        agent.wanted.clear()
        item = inputs.Join(
            link=agent.link, session=agent.session, namespace="ns", cluster="default", name="w",
            pod_uid=agent.pod_uid, node="n", slots=2, processes=tuple(agent.slots),
        )  # fmt: skip
        self.apply(item)

    def fork_slot(self, agent: AgentPlayer, *, fails: bool = False) -> None:
        """Let the agent fork a requested slot, or fail to."""
        name = agent.wanted.pop(0)
        if fails:
            self.report_slot_gone(agent, name, None, code=None)
            return
        self.apply(inputs.SlotOpening(agent.link, name))
        slot = agent.slots[name] = SlotPlayer(name, agent)
        self.connect_slot(slot)

    def report_slot_gone(
        self,
        agent: AgentPlayer,
        name: bytes,
        top: attempts.AttemptRef | None,
        *,
        code: int | None,
        asked: bool = False,
    ) -> None:
        agent.serial += 1
        self.apply(
            inputs.SlotGone(agent.link, agent.serial, name, top, code, asked, "gone", proof=True)
        )

    def connect_slot(self, slot: SlotPlayer) -> None:
        slot.link = next(self.numbers)
        self.apply(inputs.SlotJoined(slot.link, slot.name, (*slot.stack, *slot.queue)))
        if slot.link:
            self.define(slot.link)
        for ref, waited in list(slot.waits.items()):
            if slot.link:
                self.apply(inputs.Waiting(slot.link, ref, *waited))

    def exits(
        self, slot: SlotPlayer, *, code: int, asked: bool = False, late: bool = False
    ) -> None:
        """End a slot's process; its link may be read to the end only after the report."""
        agent, link = slot.agent, slot.link
        agent.slots.pop(slot.name, None)
        slot.link = 0
        if link and not late:
            self.apply(inputs.LinkClosed(link))
        if agent.link:
            self.report_slot_gone(agent, slot.name, slot.top, code=code, asked=asked)
        if link and late:
            self.apply(inputs.LinkClosed(link))

    def give_back(self, slot: SlotPlayer, refs: list[attempts.AttemptRef]) -> None:
        given = tuple(ref for ref in refs if ref in slot.queue)
        slot.queue = [ref for ref in slot.queue if ref not in given]
        if slot.link:
            self.apply(inputs.CallsReturned(slot.link, given))

    def end(
        self,
        slot: SlotPlayer,
        ending: attempts.Ending,
        *,
        seconds: float = 0.001,
        delegate: ids.TaskId | None = None,
    ) -> None:
        ref = slot.stack.pop()
        slot.begin()
        slot.serial += 1
        end = calls.CallEnd(
            ref, ending, "Said", "", PAYLOAD, self.wall, seconds, delegate=delegate,
            usage=attempts.Usage(seconds, 1 << 20),
        )  # fmt: skip
        item = inputs.CallsEnded(slot.link, slot.serial, (end,))
        self.late.append(item)
        self.look_up_and_apply(item)

    def wait(self, slot: SlotPlayer, waited: WaitSpec) -> None:
        """Make the running attempt wait; queued attempts are returned first."""
        ref = slot.running
        self.give_back(slot, list(slot.queue))
        if ref is not None and slot.running == ref and slot.link and not slot.queue:
            slot.waits[ref] = waited
            self.apply(inputs.Waiting(slot.link, ref, *waited))

    def resume_wait(self, slot: SlotPlayer) -> bool:
        """Resume the waiting attempt on top if its tasks have finished; return whether it did."""
        ref = slot.top
        if ref is None or ref not in slot.waits:
            return False
        waited = slot.waits[ref]
        enough = any if waited.first else all
        if not enough(task in self.finals for task in waited.tasks):
            return False
        del slot.waits[ref]
        self.apply(inputs.Resumed(slot.link, ref))
        return True

    def pass_time(self, seconds: float, *, renews: bool) -> None:
        """Let time pass; agents that cannot renew end their slots before their lease expires."""
        self.wall += seconds
        self.mono += seconds
        if renews:
            for agent in self.connected():
                self.apply(inputs.Renew(agent.link))
        self.apply(inputs.Tick())
        known = {w.session for c in self.memory.clusters.values() for w in c.workers.values()}
        for agent in self.agents:
            if agent.session not in known:
                agent.slots.clear()
                agent.wanted.clear()
