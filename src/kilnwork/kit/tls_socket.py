"""TLS on a connected socket, for clients that block.

Used for the connections of `endpoints` and `pond`, and of workers to a manager. Not for servers
(`kit.serving`) or asyncio, which has its own.
"""

import socket
import ssl


def wrap(
    context: ssl.SSLContext, connected: socket.socket, *, server_name: str | bytes
) -> ssl.SSLSocket:
    """Do the TLS handshake on the socket `connected`, which is taken over, and return the socket
    with TLS.

    Raises OSError, of which `ssl.SSLError` is one; the connection is closed then.
    """
    try:
        # CPython 3.11 leaves its new socket open when the peer has reset the connection before the
        # handshake (`SSLSocket._create`), so look for that first.
        connected.getpeername()
        return context.wrap_socket(connected, server_hostname=server_name)
    except BaseException:
        connected.close()
        raise
