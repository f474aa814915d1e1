"""What waits to be written: in order, never blocking, on a real pair of sockets."""

import socket
from collections.abc import Iterator

import pytest

from kilnwork.channel import socket_write_queue


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield near, far


def read(far: socket.socket, size: int) -> bytes:
    far.settimeout(30)
    data = b""
    while len(data) < size:
        data += far.recv(1 << 20)
    return data


def test_frames_put_while_connecting_follow_the_first_frames(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, far = pair
    box = socket_write_queue.Outbox()
    assert box.put(b"dropped") == 0
    box.hold()
    assert box.put(b"later") == 5
    box.open(near, [b"first", b"second"])
    assert box.waiting_bytes == 16
    box.write()
    assert read(far, 16) == b"firstsecondlater"
    assert box.waiting_bytes == 0


def test_unwritten_frames_wait_in_order(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, far = pair
    box = socket_write_queue.Outbox()
    box.open(near, [])
    said = [bytes([number]) * 100_000 for number in range(20)]
    for each in said:
        box.put(each)
        box.write()
    assert box.stuck
    assert 0 < box.waiting_bytes < 2_000_000
    got = b""
    while box.waiting_bytes:
        got += far.recv(1 << 20)
        box.write()
    got += read(far, 2_000_000 - len(got))
    assert got == b"".join(said)
    assert not box.stuck


def test_broken_socket_discards_frames_without_error(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, far = pair
    far.close()
    box = socket_write_queue.Outbox()
    box.open(near, [b"first"])
    box.write()
    assert box.waiting_bytes == 0
    assert not box.stuck


def test_frames_of_an_old_socket_are_not_written_to_the_next(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, far = pair
    box = socket_write_queue.Outbox()
    box.open(near, [])
    box.put(b"old")
    box.shut()
    box.put(b"between")
    box.open(near, [b"new"])
    box.write()
    assert far.recv(100) == b"new"
