"""Drivers and slots that send frames exactly as a test builds them, over a real socket.

The worker that opens the slots is `raw_worker.RawWorker`.
"""

import asyncio
import hashlib
import os
from pathlib import Path

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import frames, messages
from kilnwork.kit import ids
from support import raw_link, raw_worker

ADD = api_task.TaskSpec(call=api_task.Call(function="sums:add"))


class RawDriver(raw_link.RawLink[messages.ToDriver]):
    """One session of a driver; calling `connect` again reconnects."""

    def __init__(self, socket: Path, *, namespace: str = "ns", credential: str = "secret") -> None:
        super().__init__(socket, frames.decode_to_driver)
        self.namespace = namespace
        self.credential = credential
        self.session = os.urandom(16)
        self.epoch = 0
        self.number = 0

    def hello(self) -> messages.DriverHello:
        return messages.DriverHello(
            messages.VERSION, self.session, self.credential, self.namespace, self.epoch
        )

    def template(self, number: int = 1, spec: api_task.TaskSpec = ADD) -> None:
        self.say(messages.Template(number, spec))

    def item(self, data: bytes = b"[[1],{}]", **facts: object) -> calls.CallItem:
        """Return the next call, of template 1 unless overridden."""
        self.number += 1
        given = {"template": 1, "arguments": attempts.Payload(attempts.JSON, data), **facts}
        return calls.CallItem(number=self.number, task=ids.new_task_id(), **given)  # type: ignore[arg-type]

    def submit(self, *items: calls.CallItem, again: bool = False) -> None:
        self.say(messages.Submit(items, again))

    async def results(self, count: int, *, timeout_s: float = 30.0) -> dict[int, calls.CallResult]:
        found: dict[int, calls.CallResult] = {}
        while len(found) < count:
            message = await self.expect(messages.Results, timeout_s=timeout_s)
            found |= {result.number: result for result in message.items}
        return found

    async def wait_until_accepted(self, number: int) -> None:
        """Wait until all calls up to that number are accepted."""
        while (await self.expect(messages.Accepted)).number < number:
            continue


class RawSlot(raw_link.RawLink[messages.ToSlot]):
    """One slot process; calling `connect` again reconnects."""

    def __init__(self, socket: Path, slot: bytes) -> None:
        super().__init__(socket, frames.decode_to_slot)
        self.slot = slot
        self.secret = os.urandom(32).hex()
        self.running: list[attempts.AttemptRef] = []
        self.epoch = 0
        self.serial = 0
        self.waiting_runs: list[calls.CallRun] = []

    @property
    def opening(self) -> messages.SlotOpening:
        return messages.SlotOpening(self.slot, hashlib.sha256(self.secret.encode()).digest())

    def hello(self) -> messages.SlotHello:
        return messages.SlotHello(
            messages.VERSION, self.slot, self.secret, self.epoch, tuple(self.running)
        )

    async def run(self, *, timeout_s: float = 30.0) -> calls.CallRun:
        while not self.waiting_runs:
            self.waiting_runs += (await self.expect(messages.Calls, timeout_s=timeout_s)).runs
        return self.waiting_runs.pop(0)

    def done(self, *ends: calls.CallEnd) -> int:
        """Report ends; return the serial of the report."""
        self.serial += 1
        self.say(messages.CallsEnded(self.serial, ends))
        return self.serial

    def succeed(self, run: calls.CallRun, data: bytes = b"null", *, seconds: float = 0.001) -> int:
        """Report that a call ended well."""
        return self.done(ended_well(run.ref, data, seconds=seconds))


def ended_well(
    ref: attempts.AttemptRef, data: bytes = b"null", *, seconds: float = 0.001
) -> calls.CallEnd:
    """Return the end of a call that ended well."""
    payload = attempts.Payload(attempts.JSON, data)
    return calls.CallEnd(
        ref, attempts.Ending.SUCCEEDED, "Succeeded", "", payload, 1_700_000_000.0, seconds
    )


async def open_slot(worker: raw_worker.RawWorker) -> RawSlot:
    """Follow the next OpenSlot: announce a slot and connect it."""
    asked = await worker.expect(messages.OpenSlot)
    slot = RawSlot(worker.socket, asked.slot)
    worker.say(slot.opening)
    await connect(slot)
    return slot


async def connect(slot: RawSlot) -> None:
    """Connect the slot, repeated while its announcement has not been read yet."""
    for _ in range(200):
        await slot.connect()
        while not slot.inbox:
            await slot.read()
        response = slot.inbox.pop(0)
        if isinstance(response, messages.Attached):
            return
        assert isinstance(response, messages.Refused)
        assert response.retry, response
        await asyncio.sleep(0.01)
    raise AssertionError("the slot was not let in")
