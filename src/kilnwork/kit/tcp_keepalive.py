"""TCP keepalive settings, which end a connection when its peer's machine or the network is gone.

Used by both ends of the channel unless it is a Unix socket, and by streams (tcp(7)). Without them
an idle connection stays open for hours after a power cut.
"""

import socket

QUIET_S, PROBE_S, PROBES = 10, 4, 3
"""Idle seconds before the first probe, seconds between probes, and number of failed probes after
which the connection ends: 22 s in all.
"""

UNHEARD_S = 20
"""Seconds for which sent data may stay unacknowledged before the connection ends."""


def bound_silence(connection: socket.socket) -> None:
    """Make the kernel end a connection when its peer is silent, also while sent data is
    unacknowledged.

    Not for a peer that may pause reading: that too ends the connection after `UNHEARD_S`.
    """
    enable(connection)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_S * 1000)


def enable(connection: socket.socket) -> None:
    """Make the kernel probe an idle connection, without a limit for unacknowledged data."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
