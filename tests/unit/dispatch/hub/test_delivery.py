"""What is written to links, and when: a peer that waits for a result is woken for nothing else."""

import asyncio
from pathlib import Path

import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.channel import frames, messages
from kilnwork.dispatch.hub import attempt_logs, delivery, links
from kilnwork.dispatch.machine import instructions

PEER = 7


class Silent:
    """An owner of links that hears nothing."""

    def hello(self, link: links.Link, message: messages.AnyHello) -> None: ...
    def received(self, link: links.Link, message: messages.FromPeer) -> None: ...
    def batch_ended(self, link: links.Link) -> None: ...
    def closed(self, link: links.Link) -> None: ...


class Wire(asyncio.Transport):
    """A connection whose peer keeps each write apart."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.written = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self.written.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def said(self) -> list[list[messages.ToDriver | messages.ToSlot]]:
        cutters = [frames.Cutter().feed(data) for data in self.writes]
        return [[_decoded(body) for body in bodies] for bodies in cutters]


def _decoded(body: bytes) -> messages.ToDriver | messages.ToSlot:
    if body[1:].startswith(b"\xacacknowledged"):
        return frames.decode_to_slot(body)
    return frames.decode_to_driver(body)


RESULT = calls.CallResult(
    1, api_task.State.SUCCESS, "Succeeded", "", attempts.Payload(attempts.JSON, b"3")
)


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.fixture
async def sending(wire: Wire) -> delivery.Delivery:
    link = links.Link(Silent(), PEER)
    link.connection_made(wire)
    terms = delivery.Terms(lease_s=10, renew_s=3, blobs=Path("/nowhere"))
    return delivery.Delivery({PEER: link}, attempt_logs.AttemptLogs(None), terms)


def send(sending: delivery.Delivery, batch: instructions.Batch) -> None:
    sending.release(sending.prepare(batch))


async def test_acknowledgement_is_sent_with_the_result(
    sending: delivery.Delivery, wire: Wire
) -> None:
    send(sending, instructions.Batch(accepted={PEER: 1}))
    assert wire.writes == []
    send(sending, instructions.Batch(results={PEER: [RESULT]}))
    assert wire.said() == [[messages.Results((RESULT,)), messages.Accepted(1)]]


async def test_only_the_newest_acknowledgement_of_each_kind_is_sent(
    sending: delivery.Delivery, wire: Wire
) -> None:
    for number in (1, 2, 3):
        send(sending, instructions.Batch(accepted={PEER: number}, acknowledged={PEER: 10 + number}))
    await wire.written.wait()
    assert wire.said() == [[messages.Accepted(3), messages.Acknowledged(13)]]


async def test_acknowledgement_that_a_client_waits_for_is_sent_at_once(
    sending: delivery.Delivery, wire: Wire
) -> None:
    send(sending, instructions.Batch(accepted={PEER: 1}, awaited={PEER}))
    assert wire.said() == [[messages.Accepted(1)]]


async def test_acknowledgements_are_sent_before_the_link_is_closed(
    sending: delivery.Delivery, wire: Wire
) -> None:
    send(sending, instructions.Batch(acknowledged={PEER: 5}))
    sending.confirm()
    assert wire.said() == [[messages.Acknowledged(5)]]
    sending.confirm()
    await asyncio.sleep(0)
    assert len(wire.writes) == 1


async def test_closed_link_is_skipped(wire: Wire) -> None:
    terms = delivery.Terms(lease_s=10, renew_s=3, blobs=None)
    by_number: dict[int, links.Link] = {}
    sending = delivery.Delivery(by_number, attempt_logs.AttemptLogs(None), terms)
    send(sending, instructions.Batch(accepted={PEER: 1}))
    link = links.Link(Silent(), PEER + 1)
    link.connection_made(wire)
    by_number[PEER + 1] = link
    send(sending, instructions.Batch(accepted={PEER + 1: 1}))
    await wire.written.wait()
    assert wire.said() == [[messages.Accepted(1)]]
