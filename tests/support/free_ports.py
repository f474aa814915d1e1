"""Free ports for processes that take only a port number: free now and when they bind it."""

import itertools
import os
import socket

_LOWEST, _COUNT = 2000, 7000
"""Range of ports below those of outgoing connections (ip(7), ip_local_port_range) and those that
`kiln up` picks, either of which could take a port before its use."""

_numbers = itertools.count(os.getpid() * 101)  # test processes side by side begin elsewhere


def free() -> int:
    """Return a port that no other process on 127.0.0.1 has."""
    for number in itertools.islice(_numbers, _COUNT):
        port = _LOWEST + number % _COUNT
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise AssertionError(f"no port is free from {_LOWEST} on")
