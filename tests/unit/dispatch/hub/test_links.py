"""One connection: the first frame decides, what cannot be read closes it, reading can pause."""

import asyncio
from typing import Any, cast

import pytest

from kilnwork.channel import frames, messages
from kilnwork.dispatch.hub import links
from kilnwork.kit import ids

HELLO = messages.DriverHello(messages.VERSION, b"d" * 16, "secret", "ns", 0)
CANCEL = messages.Cancel((ids.TaskId(bytes(16)),), True)


class Transport:
    """What a link does with its connection."""

    def __init__(self) -> None:
        self.written = b""
        self.did: list[str] = []
        self.buffered = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, *, high: int) -> None:
        assert high == links.UNREAD_BYTES

    def __getattr__(self, name: str) -> Any:
        return lambda: self.did.append(name)


class Owner:
    """Follows links."""

    def __init__(self) -> None:
        self.hellos: list[messages.AnyHello] = []
        self.gone = 0

    def hello(self, link: links.Link, message: messages.AnyHello) -> None:
        self.hellos.append(message)

    def batch_ended(self, link: links.Link) -> None:
        pass

    def closed(self, link: links.Link) -> None:
        self.gone += 1


@pytest.fixture
def transport() -> Transport:
    return Transport()


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
async def link(transport: Transport, owner: Owner) -> links.Link:
    made = links.Link(owner, 1)
    made.connection_made(cast("asyncio.BaseTransport", transport))
    return made


def refused(transport: Transport) -> messages.Refused:
    (body,) = frames.Cutter().feed(transport.written)
    message = frames.decode_to_driver(body)
    assert isinstance(message, messages.Refused)
    return message


async def test_messages_received_before_the_peer_joined_are_delivered_then(
    link: links.Link, transport: Transport, owner: Owner
) -> None:
    heard: list[object] = []
    link.data_received(frames.encode(HELLO) + frames.encode(CANCEL))
    assert (owner.hellos, transport.did) == ([HELLO], ["pause_reading"])
    link.receive = lambda _, message: heard.append(message)
    link.open()
    assert (heard, transport.did[-1]) == ([CANCEL], "resume_reading")
    link.data_received(frames.encode(CANCEL))
    assert heard == [CANCEL, CANCEL]


async def test_frame_that_cannot_be_decoded_closes_the_link(
    link: links.Link, transport: Transport
) -> None:
    link.data_received(frames.encode(CANCEL))
    assert (refused(transport).reason, refused(transport).retry) == ("Malformed", False)
    assert transport.did == ["close"]


async def test_reading_resumes_when_no_reason_to_pause_is_left(
    link: links.Link, transport: Transport
) -> None:
    link.pause_reading("one")
    link.pause_writing()
    link.resume_reading("one")
    link.resume_reading("never paused")
    assert transport.did == ["pause_reading"]
    link.resume_writing()
    assert transport.did == ["pause_reading", "resume_reading"]


async def test_a_peer_that_does_not_read_loses_its_link(
    link: links.Link, transport: Transport
) -> None:
    link.write(b"x")
    assert transport.did == []
    transport.buffered = links.MAX_UNREAD_BYTES + 1
    link.write(b"x")
    assert transport.did == ["abort"]


async def test_a_closed_link_sends_nothing(
    link: links.Link, transport: Transport, owner: Owner
) -> None:
    link.close()
    link.write(b"x")
    link.refuse("Late", "", retry=False)
    assert transport.written == b""
    link.connection_lost(None)
    assert owner.gone == 1
