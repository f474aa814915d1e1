"""Messages between agent and zygote, with descriptors."""

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from kilnwork.worker import zygote_link

SLOT = bytes(range(16))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    agent, zygote = zygote_link.make_pair()
    with contextlib.closing(agent), contextlib.closing(zygote):
        yield agent, zygote


def test_fork_order_carries_its_descriptors(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    agent, zygote = ends
    reading, writing = os.pipe()
    zygote_link.send(agent, zygote_link.ForkSlot(SLOT, "secret"), (reading, writing))
    os.close(writing)
    order, received = zygote_link.receive_order(zygote)
    assert order == zygote_link.ForkSlot(SLOT, "secret")
    assert not any(os.get_inheritable(each) for each in received)
    os.write(received[1], b"through it")
    assert os.read(reading, 64) == b"through it"
    for each in (reading, *received):
        os.close(each)


def test_orders_are_received_one_by_one(ends: tuple[socket.socket, socket.socket]) -> None:
    agent, zygote = ends
    orders = [zygote_link.KillSlot(SLOT), zygote_link.KillSlot(bytes(16))]
    for order in orders:
        zygote_link.send(agent, order)
    assert [zygote_link.receive_order(zygote) for _ in orders] == [(each, []) for each in orders]


@pytest.mark.parametrize(
    "report",
    [
        zygote_link.Ready(),
        zygote_link.SlotForked(SLOT, 42),
        zygote_link.SlotEnded(SLOT, -9, "", proof=True),
        zygote_link.SlotEnded(SLOT, None, "the worker cannot fork", proof=True),
    ],
)
def test_report_arrives_unchanged(
    ends: tuple[socket.socket, socket.socket], report: zygote_link.Report
) -> None:
    agent, zygote = ends
    zygote_link.send(zygote, report)
    assert zygote_link.receive_report(agent) == report


def test_closed_end_is_noticed(ends: tuple[socket.socket, socket.socket]) -> None:
    agent, zygote = ends
    zygote.close()
    assert zygote_link.receive_report(agent) is None
    other, gone = zygote_link.make_pair()
    gone.close()
    assert zygote_link.receive_order(other) == (None, [])
    other.close()


def test_errors_file_is_private() -> None:
    descriptor = zygote_link.open_errors_file()
    try:
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, b"why")
        assert os.pread(descriptor, 64, 0) == b"why"
    finally:
        os.close(descriptor)
