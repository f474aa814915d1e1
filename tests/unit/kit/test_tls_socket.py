"""`kit.tls_socket`: what fails in the handshake leaves no socket open."""

import contextlib
import socket
import ssl
import struct
import threading
import warnings

import pytest

from kilnwork.kit import tls_socket

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def connected(*, reset: bool) -> socket.socket:
    """A connection that the server has closed at once, with a reset or in order."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = socket.create_connection(listener.getsockname())
        with contextlib.closing(listener.accept()[0]) as served:
            if reset:
                served.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    return made


@pytest.mark.parametrize("reset", [True, False])
def test_a_connection_that_is_closed_before_the_handshake(*, reset: bool) -> None:
    made = connected(reset=reset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OSError):  # noqa: PT011 - a reset has no class of its own
            tls_socket.wrap(ssl.create_default_context(), made, server_name="localhost")
    assert made.fileno() == -1


def test_failed_handshake_closes_the_socket() -> None:
    here, there = socket.socketpair()
    response = threading.Thread(target=there.sendall, args=(b"HTTP/1.1 400 Bad Request\r\n\r\n",))
    response.start()
    with pytest.raises(ssl.SSLError):
        tls_socket.wrap(ssl.create_default_context(), here, server_name="localhost")
    response.join()
    there.close()
    assert here.fileno() == -1
