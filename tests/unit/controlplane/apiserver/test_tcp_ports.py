"""Ports come in pairs and say who holds them."""

import os
import socket

import pytest

from kilnwork.controlplane.apiserver import tcp_ports as pairs
from kilnwork.kit import errors


def test_free_pair_is_adjacent_and_local() -> None:
    ports = pairs.bind(0)
    try:
        assert ports.plain.getsockname() == ("127.0.0.1", ports.number + 1)
        assert ports.tls.getsockname()[0] == "127.0.0.1"
    finally:
        ports.close()


def test_preferred_pair_is_taken_while_free() -> None:
    first = pairs.bind(0)
    number = first.number
    other = pairs.bind(0, preferred=number)
    assert other.number != number
    other.close()
    first.close()
    again = pairs.bind(0, preferred=number)
    assert again.number == number
    again.close()


def test_free_pair_is_below_ephemeral_ports() -> None:
    first, last = map(int, pairs._EPHEMERAL.read_text().split())
    ports = pairs.bind(0)
    pair = {ports.number, ports.number + 1}
    ports.close()
    assert not pair & set(range(first, last + 1))


def test_small_responses_are_not_delayed() -> None:
    ports = pairs.bind(0)
    client = socket.create_connection(ports.plain.getsockname())
    ports.plain.setblocking(True)
    accepted, _ = ports.plain.accept()
    try:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        accepted.close()
        client.close()
        ports.close()


def _after_a_free_port() -> socket.socket:
    """A listening socket, with no process on the port before it."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken


def test_error_for_port_in_use_names_its_holder() -> None:
    with _after_a_free_port() as taken:
        port = taken.getsockname()[1]
        holder = f"process {os.getpid()} "
        with pytest.raises(errors.ConfigurationError, match=holder):
            pairs.bind(port)
        with pytest.raises(errors.ConfigurationError, match=f"the port after {port - 1}"):
            pairs.bind(port - 1)


@pytest.mark.parametrize("port", [-1, 65535, 99999])
def test_impossible_ports_are_rejected(port: int) -> None:
    with pytest.raises(errors.ConfigurationError, match="choose one"):
        pairs.bind(port)


def test_free_port_has_no_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert pairs.port_holder(port) == ""
