"""Makes a large result of a Pod a blob of the manager.

Used by `sidecar_result`, which imports it by name: most results are small. Where the manager's
folder is to be seen it is written there, else sent over TLS; it is on disk when that returns.
"""

import hashlib
import socket
import ssl
from collections.abc import Mapping

from kilnwork.api import attempts, manager
from kilnwork.data import blobs, remote
from kilnwork.worker import results, settings, sidecar

_SHORTEST_S = 1.0


def hand_over(
    given: sidecar.Settings, found: results.OutputFile, *, until: float
) -> attempts.Payload:
    """The blob that it is now. `until`: monotonic, how long to try. Raises DataError."""
    if given.blobs is not None:
        with blobs.Blobs(given.blobs / given.namespace, durable=True).writer() as new:
            for piece in found.pieces():
                new.write(piece)
            digest, size = new.commit()
        return attempts.Payload(found.media_type, b"", digest, size)
    hashing = hashlib.sha256()
    for piece in found.pieces():
        hashing.update(piece)
    digest = hashing.digest()
    patience_s = max(_SHORTEST_S, until - sidecar.CLOCK.monotonic())
    path = f"/blobs/{given.namespace}"
    store = remote.Store(_Connector(given, until), path=path, patience_s=patience_s)
    store.put(digest, found.descriptor_path)
    return attempts.Payload(found.media_type, b"", digest, found.size)


class _Connector:
    """`endpoints.client.Connector`: the manager over TLS, by the CA that the Pod was given."""

    def __init__(self, given: sidecar.Settings, until: float) -> None:
        self._given = given
        self._until = until
        host, _, port = given.channel.removeprefix(settings.NETWORK).rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._context = ssl.create_default_context(cadata=given.ca)

    def connect(self) -> socket.socket:
        timeout_s = max(_SHORTEST_S, self._until - sidecar.CLOCK.monotonic())
        made = socket.create_connection(self._address, timeout=timeout_s)
        return self._context.wrap_socket(made, server_hostname=manager.SERVER_NAME)

    def headers(self) -> Mapping[str, str]:
        """The token is read each time, since the kubelet renews it."""
        given = self._given
        task, run, attempt = given.attempt
        return {
            "Host": manager.SERVER_NAME,
            manager.TOKEN_HEADER: given.token_file.read_text().strip(),
            manager.ATTEMPT_HEADER: f"{given.pod} {task}/{run}/{attempt}",
        }

    def refused(self) -> None:
        """There is no other than the one in the file."""
