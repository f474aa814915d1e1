"""Connections to sources and peers."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from kilnwork.data import errors
from kilnwork.kit import egress
from kilnwork.pond import connections

KEPT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class _HttpServer:
    """Sends `response` for each request; `accepted`: connections so far. `once`: ends each
    connection after one response, without saying so."""

    def __init__(self, response: bytes, *, once: bool = False) -> None:
        self.accepted = 0
        self._response, self._once = response, once
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.server = connections.Server("127.0.0.1", self._listening.getsockname()[1], "")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            with accepted, contextlib.suppress(OSError):
                while accepted.recv(1 << 16):
                    accepted.sendall(self._response)
                    if self._once:
                        break

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@contextlib.contextmanager
def _serving(response: bytes, *, once: bool = False) -> Iterator[_HttpServer]:
    found = _HttpServer(response, once=once)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def made() -> Iterator[connections.Connections]:
    found = connections.Connections(None, ssl.create_default_context)
    yield found
    found.close()


def _get(made: connections.Connections, server: connections.Server) -> bytes:
    data = b""
    with made.send(connections.Request(server, "/", {"Host": "a"})) as exchange:
        while piece := exchange.connection.read():
            data += piece
    return data


@pytest.mark.parametrize(
    ("response", "once", "accepted"), [(KEPT, False, 1), (CLOSED, True, 2), (KEPT, True, 2)]
)
def test_connection_is_reused_while_the_server_keeps_it_open(
    response: bytes, *, once: bool, accepted: int
) -> None:
    with _serving(response, once=once) as http:
        made = connections.Connections(None, ssl.create_default_context)
        assert [_get(made, http.server) for _ in range(2)] == [b"ok", b"ok"]
        made.close()
        assert http.accepted == accepted


def test_a_connection_whose_body_was_not_read_is_not_used_again(
    made: connections.Connections,
) -> None:
    with _serving(KEPT) as http:
        with made.send(connections.Request(http.server, "/", {"Host": "a"})):
            pass
        assert _get(made, http.server) == b"ok"
        assert http.accepted == 2
        made.close()


def test_after_close_no_connection_is_made(made: connections.Connections) -> None:
    with _serving(KEPT) as http:
        made.close()
        with pytest.raises(errors.SourceUnreachable, match="the agent stops"):
            _get(made, http.server)


def test_response_that_is_no_http_is_unreachable(made: connections.Connections) -> None:
    with (
        _serving(b"hello\r\n\r\n", once=True) as http,
        pytest.raises(errors.SourceUnreachable, match=f"{http.server} cannot be read from"),
    ):
        _get(made, http.server)


def test_a_closed_port_is_unreachable(made: connections.Connections) -> None:
    with _serving(KEPT) as http:
        server = http.server
    with pytest.raises(errors.SourceUnreachable):
        _get(made, server)


def test_an_address_that_the_policy_refuses_is_not_connected_to() -> None:
    with _serving(KEPT) as http:
        made = connections.Connections(egress.Policy(), ssl.create_default_context)
        with pytest.raises(errors.SourceRefused, match=r"spec.sources\[\].allowAddresses"):
            _get(made, http.server)
        assert http.accepted == 0


def test_a_host_that_is_no_name_is_refused(made: connections.Connections) -> None:
    with pytest.raises(errors.SourceRefused, match="is no address"):
        _get(made, connections.Server("a" * 64 + ".b", 80, ""))
