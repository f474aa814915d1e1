"""HTTPS connections of `http.client` to servers that may be killed while a client connects.

For `mixed_load.client` and `kube_servers`. `HTTPSConnection` wraps a socket that is already open.
If the peer has reset it by then, `ssl.SSLSocket._create` raises and leaves its new socket open
(CPython 3.11), which a garbage collection then reports as a ResourceWarning in whatever test runs.
"""

import http.client
import socket
import ssl


class TlsConnection(http.client.HTTPSConnection):
    """HTTPS connection that wraps first and connects then, so that we can close the socket in any
    case.
    """

    def __init__(self, address: str, *, tls: ssl.SSLContext, timeout_s: float) -> None:
        """Take an address HOST:PORT, IPv4 only."""
        super().__init__(address, timeout=timeout_s, context=tls)
        self._tls = tls

    def connect(self) -> None:
        """Connect and shake hands. Raises OSError if the server is down."""
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        plain.settimeout(self.timeout)
        secure = self._tls.wrap_socket(plain, server_hostname=self.host)
        try:
            secure.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure.connect((self.host, self.port))
        except BaseException:
            secure.close()
            raise
        self.sock = secure
