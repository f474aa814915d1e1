"""The test client's connections to a server that resets them leave no socket open."""

import gc
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from support import tls_connections

CONNECTIONS = 100


@contextmanager
def _resetting_server() -> Iterator[str]:
    """Yield HOST:PORT of a listener that resets all connections."""
    listener = socket.create_server(("127.0.0.1", 0))

    def reset_all() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    thread = threading.Thread(target=reset_all)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_reset_connection_leaves_no_socket_open() -> None:
    tls = ssl.create_default_context()
    refused = 0
    with (
        _resetting_server() as address,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        for _ in range(CONNECTIONS):
            connection = tls_connections.TlsConnection(address, tls=tls, timeout_s=5.0)
            try:
                connection.request("GET", "/")
            except OSError:
                refused += 1
            connection.close()
        gc.collect()
    assert refused == CONNECTIONS
    assert not [warning for warning in caught if warning.category is ResourceWarning]
