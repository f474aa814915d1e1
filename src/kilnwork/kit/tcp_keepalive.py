"""Noticing that the machine at the other end of a TCP connection, or the network, is gone.

Used by both ends of the channel wherever it is no Unix socket, and by streams (tcp(7)). Without it
a connection on which nobody sends stands for hours after a power cut.
"""

import socket

QUIET_S, PROBE_S, PROBES = 10, 4, 3
"""After so long without a word it is asked, so often, whether anybody is there: 22 s in all."""

UNHEARD_S = 20
"""What was sent and is not acknowledged for so long ends the connection."""


def bound_silence(connection: socket.socket) -> None:
    """Do so on this connection, whichever library holds it.

    Not for one whose reader may pause: that it reads nothing for `UNHEARD_S` ends it too.
    """
    enable(connection)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_S * 1000)


def enable(connection: socket.socket) -> None:
    """Only ask, while nothing is under way, whether anybody is there."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
