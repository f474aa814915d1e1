"""The thread of a tunnel, whose far end is a Unix socket here, when an end hangs up."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from kilnwork.api import manager_access
from kilnwork.channel import http_upgrade
from kilnwork.kit import asgi


class Ends:
    """Both ends of a tunnel, and the thread in between."""

    def __init__(self) -> None:
        connected, self.server = socket.socketpair()
        threads = set(threading.enumerate())
        self.server.sendall(asgi.switching(manager_access.CHANNEL_PROTOCOL) + b"early")
        self.client = http_upgrade.switch(
            connected, manager_access.CHANNEL_PATH, {"Host": "manager"}
        )
        assert self.server.recv(4096).startswith(b"GET ")
        (self.thread,) = set(threading.enumerate()) - threads

    def has_ended(self) -> bool:
        self.thread.join(timeout=10)
        return not self.thread.is_alive()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.thread.join(timeout=10)


def send_all_it_takes(end: socket.socket) -> int:
    """Send until nothing more is taken; return the number of bytes."""
    sent = 0
    end.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        while True:
            sent += end.send(bytes(4096))
    return sent


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr(http_upgrade, "_DRAIN_S", 0.2)
    made = Ends()
    yield made
    made.close()


def test_client_that_hangs_up_on_a_server_that_takes_nothing_ends_it(ends: Ends) -> None:
    assert ends.client.recv(16) == b"early"
    send_all_it_takes(ends.client)
    ends.client.close()
    assert ends.has_ended()


def test_server_that_hangs_up_on_a_client_that_takes_nothing_ends_it(ends: Ends) -> None:
    send_all_it_takes(ends.server)
    ends.server.close()
    assert ends.has_ended()


def test_last_bytes_of_a_client_that_hangs_up_reach_a_slow_server(ends: Ends) -> None:
    assert ends.client.recv(16) == b"early"
    sent = send_all_it_takes(ends.client)
    ends.client.close()
    found = 0
    ends.server.settimeout(10)
    while piece := ends.server.recv(4096):
        found += len(piece)
    assert found == sent > http_upgrade.READ_BYTES
