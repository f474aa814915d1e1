"""Options of TCP sockets that notice a lost peer."""

import socket

import pytest

from kilnwork.kit import tcp_keepalive


def option(connection: socket.socket, name: int) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, name)


@pytest.fixture
def connection() -> "socket.socket":
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def test_an_idle_connection_is_probed(connection: socket.socket) -> None:
    with connection:
        tcp_keepalive.enable(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert option(connection, socket.TCP_KEEPIDLE) == 10
        assert option(connection, socket.TCP_KEEPINTVL) == 4
        assert option(connection, socket.TCP_KEEPCNT) == 3
        assert option(connection, socket.TCP_USER_TIMEOUT) == 0


def test_unacknowledged_data_ends_the_connection(connection: socket.socket) -> None:
    with connection:
        tcp_keepalive.bound_silence(connection)
        assert option(connection, socket.TCP_USER_TIMEOUT) == 20_000
        assert option(connection, socket.TCP_KEEPIDLE) == 10
