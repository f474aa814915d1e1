"""Responses of HTTP servers, in whatever pieces they come."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from kilnwork.kit import http1_client


@pytest.fixture
def ends() -> Iterator[tuple[http1_client.Connection, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield http1_client.Connection(ours), theirs
    ours.close()
    theirs.close()


Ends = tuple[http1_client.Connection, socket.socket]


def say(theirs: socket.socket, data: bytes, *, step: int) -> threading.Thread:
    """Send in pieces of `step` bytes, then end."""

    def run() -> None:
        with contextlib.suppress(OSError):  # who has read enough closes
            for at in range(0, len(data), step):
                theirs.sendall(data[at : at + step])
            theirs.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: t\r\n\r\n"
)
TO_THE_END = b"HTTP/1.0 200 OK\r\n\r\nhello"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize("response", [LENGTH, CHUNKED, TO_THE_END, CONTINUED])
def test_a_body_is_read_however_it_comes(ends: Ends, response: bytes, step: int) -> None:
    connection, theirs = ends
    thread = say(theirs, response, step=step)
    found = connection.read_head()
    assert (found.status, found.reason) == (200, "OK")
    assert connection.read() == b"hello"
    assert connection.reusable is (response is not TO_THE_END)
    thread.join()


def test_connection_reads_several_responses_in_turn(ends: Ends) -> None:
    connection, theirs = ends
    thread = say(theirs, LENGTH + CHUNKED + LENGTH, step=11)
    for _ in range(3):
        assert connection.read_head().status == 200
        assert connection.read() == b"hello"
    thread.join()


def test_headers_have_one_name(ends: Ends) -> None:
    connection, theirs = ends
    say(theirs, LENGTH, step=100).join()
    assert connection.read_head().headers["x-a"] == "1, 2"


def test_bytes_after_a_switch_belong_to_the_next_protocol(ends: Ends) -> None:
    connection, theirs = ends
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"
    say(theirs, head + b"frames", step=1000).join()
    assert connection.read_head().status == 101
    assert connection.early == b"frames"


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        LENGTH[:-1],
        CHUNKED[:-20],
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_an_incomplete_response_is_an_error(ends: Ends, response: bytes) -> None:
    connection, theirs = ends
    thread = say(theirs, response, step=10_000)
    with pytest.raises(http1_client.BadResponse):  # noqa: PT012  either may say so
        connection.read_head()
        connection.read()
    connection.close()
    thread.join()


def test_a_request_has_its_length_and_body(ends: Ends) -> None:
    connection, theirs = ends
    connection.send("PUT", "/x", {"Host": "h"}, body=(b"ab", b"c"), length=3)
    assert theirs.recv(1000) == b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"


@pytest.mark.parametrize(("path", "value"), [("/a b", "x"), ("/a", "x\r\nEvil: yes"), ("/a\n", "")])
def test_a_request_cannot_be_broken_out_of(path: str, value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        http1_client.request_head("GET", path, {"Host": value})
