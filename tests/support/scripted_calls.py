"""The dispatcher's machine with slots and drivers that a test plays, on clocks that it sets.

For unit tests of calls. Messages of the machine are carried out at once: requested slots open and
join (unless `opens` is False), and all sent messages are recorded. No I/O.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, instructions, machine, memory, records
from kilnwork.kit import ids

DRIVER = 100
ARGUMENTS = attempts.Payload(attempts.JSON, b"[[],{}]")
RESULT = attempts.Payload(attempts.JSON, b"1")
RAISED = attempts.ErrorInfo("builtins.ValueError", "no", "Traceback …")
ERROR = attempts.Payload(attempts.ERROR, msgspec.msgpack.encode(RAISED))
LEASE_S = 10.0


def task_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def spec(function: str = "m:f", **fields: Any) -> api_task.TaskSpec:
    """Return the template of a function; fields of Call and of TaskSpec by name."""
    call = {
        name: fields.pop(name) for name in list(fields) if name in api_task.Call.__struct_fields__
    }
    return api_task.TaskSpec(call=api_task.Call(function, **call), **fields)


class SlotPlayer:
    """A simulated slot; `has` are its unstarted calls in order of arrival."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.link = 0
        self.serial = 0
        self.has: list[attempts.AttemptRef] = []
        self.in_place: set[attempts.AttemptRef] = set()


class World:
    """One worker, drivers, and the machine between them."""

    def __init__(self, *, slots: int = 1, opens: bool = True, **options: Any) -> None:
        self.memory = memory.Memory(lease_s=LEASE_S, entropy=random.Random(0), **options)
        self.machine = machine.Machine(self.memory)
        self.now = inputs.Moment(1_000_000.0, 0.0)
        self.opens = opens
        self.links = iter(range(1000, 1_000_000))
        self.numbers = iter(range(1, 1_000_000))
        self.serial = 0
        self.slots: dict[bytes, SlotPlayer] = {}
        self.by_link: dict[int, SlotPlayer] = {}
        self.sent: list[instructions.Send] = []
        self.results: dict[int, list[calls.CallResult]] = {}
        self.accepted: dict[int, int] = {}
        self.awaited: set[int] = set()
        self.acknowledged: dict[int, int] = {}
        self.finals: list[records.Task] = []
        self.written: dict[ids.TaskId, records.Task] = {}
        self.forgets = True
        if slots:
            self.worker(slots=slots)

    def worker(self, link: int = 1, *, slots: int = 1, **fields: Any) -> records.Worker:
        """Connect a worker, or connect it again."""
        session = bytes(15) + bytes([link % 250])
        given: dict[str, Any] = {
            "link": link, "session": session, "namespace": "ns", "cluster": "default",
            "name": f"w{link}", "pod_uid": f"pod{link}", "node": "n", "slots": slots,
        }  # fmt: skip
        self.apply(inputs.Join(**(given | fields)))
        return self.memory.links[(given | fields)["link"]]

    def driver(self, link: int = DRIVER, *, session: bytes | None = None) -> int:
        self.apply(inputs.Attach(link, session or link.to_bytes(16, "big"), "ns"))
        return link

    def apply(self, item: inputs.Input) -> None:
        self.machine.handle(item, self.now)
        self.settle()

    def settle(self) -> None:
        batch = self.machine.take(self.now)
        self.written |= {task.id: task for task in batch.dirty}
        self.finals += batch.finals
        if self.forgets:
            self.machine.forget(batch.finals)
        for link, runs in batch.runs.items():
            player = self.by_link[link]
            for task, attempt in runs:
                assert (task.attempt, task.held) == (attempt, True)
                player.has.append(task.ref)
                if task.in_place:
                    player.in_place.add(task.ref)
        for link, results in batch.results.items():
            self.results.setdefault(link, []).extend(results)
        self.accepted |= batch.accepted
        self.awaited |= batch.awaited
        self.acknowledged |= batch.acknowledged
        self.sent += batch.sends
        for send in batch.sends:
            if isinstance(send, instructions.OpenSlot) and self.opens:
                self.open(send.slot, worker=send.link)
            if isinstance(send, instructions.CloseLink):
                self.by_link.pop(send.link, None)

    def open(self, name: bytes, *, worker: int = 1) -> SlotPlayer:
        player = self.slots[name] = SlotPlayer(name)
        self.apply(inputs.SlotOpening(worker, name))
        self.join(player)
        return player

    def join(self, player: SlotPlayer) -> None:
        player.link = next(self.links)
        self.by_link[player.link] = player
        self.apply(inputs.SlotJoined(player.link, player.name, tuple(player.has)))

    def after(self, seconds: float, *, renews: Iterable[int] = (1,)) -> None:
        self.now = inputs.Moment(self.now.wall + seconds, self.now.mono + seconds)
        for link in renews:
            self.machine.handle(inputs.Renew(link), self.now)
        self.apply(inputs.Tick())

    def define(self, template: api_task.TaskSpec, *, number: int = 1, link: int = DRIVER) -> None:
        self.apply(inputs.Define(link, number, template))

    def submit(
        self,
        count: int = 1,
        *,
        link: int = DRIVER,
        known: Mapping[int, inputs.StoredCall] | None = None,
        values: Mapping[ids.TaskId, calls.Value] | None = None,
        **item: Any,
    ) -> list[ids.TaskId]:
        """Submit calls of template 1, unless fields of CallItem say otherwise."""
        items = []
        for _ in range(count):
            number = next(self.numbers)
            fields: dict[str, Any] = {
                "number": number, "task": task_id(number), "template": 1, "arguments": ARGUMENTS,
            }  # fmt: skip
            items.append(calls.CallItem(**(fields | item)))
        self.apply(inputs.SubmitCalls(link, tuple(items), known or {}, values or {}))
        return [one.task for one in items]

    def declare(self, number: int, template: api_task.TaskSpec, **fields: Any) -> ids.TaskId:
        submission = model.Submission(
            task=task_id(number), namespace="ns", name="t", spec=template, **fields
        )
        self.apply(inputs.Submit(submission))
        return submission.task

    def task(self, task: ids.TaskId) -> records.Task:
        return self.written[task]

    def holder(self, task: ids.TaskId) -> SlotPlayer:
        found = [p for p in self.slots.values() if any(ref.task == task for ref in p.has)]
        assert len(found) == 1, f"{len(found)} slots have it"
        return found[0]

    def holds(self, task: ids.TaskId) -> bool:
        return any(ref.task == task for player in self.slots.values() for ref in player.has)

    def end(
        self,
        task: ids.TaskId,
        ending: attempts.Ending = attempts.Ending.SUCCEEDED,
        *,
        seconds: float = 0.001,
        values: Mapping[ids.TaskId, calls.Value] | None = None,
        **fields: Any,
    ) -> None:
        player = self.holder(task)
        ref = next(ref for ref in player.has if ref.task == task)
        good = ending is attempts.Ending.SUCCEEDED
        given: dict[str, Any] = {
            "ref": ref, "ending": ending, "reason": "Succeeded" if good else "Raised",
            "message": "" if good else "ValueError: no", "payload": RESULT if good else ERROR,
            "started": self.now.wall, "seconds": seconds,
        }  # fmt: skip
        player.has.remove(ref)
        player.serial += 1
        end = calls.CallEnd(**(given | fields))
        self.apply(inputs.CallsEnded(player.link, player.serial, (end,), values or {}))

    def started(self, task: ids.TaskId) -> None:
        """Let the slot report that the call has run for a while."""
        player = self.holder(task)
        player.serial += 1
        ref = self.task(task).ref
        self.apply(inputs.Started(player.link, player.serial, ref, self.now.wall))

    def wait(self, task: ids.TaskId, *tasks: ids.TaskId, in_place: bool = False) -> None:
        """Let the call wait for tasks; queued calls of its slot are returned first."""
        player, ref = self.holder(task), self.task(task).ref
        own = self.memory.slots[player.name]
        kept = {wait.task.ref for wait in own.stack} | {ref} | player.in_place
        self.give_back(player, [other for other in player.has if other not in kept])
        self.apply(inputs.Waiting(player.link, ref, tasks, in_place))

    def resume(self, task: ids.TaskId) -> None:
        player = self.holder(task)
        self.apply(inputs.Resumed(player.link, self.task(task).ref))

    def give_back(self, player: SlotPlayer, refs: Iterable[attempts.AttemptRef]) -> None:
        given = tuple(refs)
        player.has = [ref for ref in player.has if ref not in given]
        self.apply(inputs.CallsReturned(player.link, given))

    def die(
        self,
        player: SlotPlayer,
        *,
        running: ids.TaskId | None = None,
        code: int | None = 1,
        asked: bool = False,
        proof: bool = True,
        worker: int = 1,
    ) -> None:
        """End a slot: its link is read to the end, and its agent reports the end."""
        self.by_link.pop(player.link, None)
        if player.link:
            self.apply(inputs.LinkClosed(player.link))
        self.gone(player, running=running, code=code, asked=asked, proof=proof, worker=worker)

    def gone(
        self,
        player: SlotPlayer,
        *,
        running: ids.TaskId | None = None,
        code: int | None = 1,
        asked: bool = False,
        proof: bool = True,
        worker: int = 1,
        reason: str = "",
    ) -> None:
        self.serial += 1
        ref = None if running is None else self.task(running).ref
        player.has.clear()
        self.apply(
            inputs.SlotGone(
                worker, self.serial, player.name, ref, code, asked, "exit code 1", proof, reason
            )
        )

    def sent_of(self, kind: type[Any]) -> list[Any]:
        return [send for send in self.sent if isinstance(send, kind)]

    def result(self, number: int, *, link: int = DRIVER) -> calls.CallResult | None:
        for result in self.results.get(link, []):
            if result.number == number:
                return result
        return None


def state_and_reason(task: records.Task) -> tuple[str, str]:
    """Return state and reason as strings."""
    return task.state.value, str(task.reason)


def error_of(payload: attempts.Payload | None) -> attempts.ErrorInfo:
    """Return the error that a failed call has instead of a result."""
    assert payload is not None
    assert payload.media_type == attempts.ERROR
    return msgspec.msgpack.decode(payload.data, type=attempts.ErrorInfo)


def world_with_driver(template: api_task.TaskSpec | None = None, **options: Any) -> World:
    """Return a world with a driver whose template 1 is `template`."""
    world = World(**options)
    world.driver()
    world.define(template or spec())
    return world


def world_with_call(
    template: api_task.TaskSpec | None = None, **options: Any
) -> tuple[World, ids.TaskId]:
    """Return a world with a driver, and a call in it."""
    world = world_with_driver(template, **options)
    (task,) = world.submit()
    return world, task


def world_of_short_calls(template: api_task.TaskSpec | None = None, **options: Any) -> World:
    """Return a world that knows that calls of template 1 are short, with all its slots open."""
    world = world_with_driver(template, **options)
    for task in world.submit(options.get("slots", 1)):
        world.end(task, seconds=0.001)
    return world


def spawn(
    world: World,
    parent: ids.TaskId,
    *,
    template: api_task.TaskSpec | None = None,
    ordinal: int = 1,
    **item: Any,
) -> ids.TaskId:
    """Submit a child of `parent`, of `m:child` unless `template` says otherwise."""
    link = world.holder(parent).link
    world.define(template or spec("m:child"), link=link)
    ref = world.task(parent).ref
    (child,) = world.submit(link=link, parent=ref, ordinal=ordinal, **item)
    return child
