"""The blobs and files of a slot whose manager is reached over the network, by way of the relay.

Used by `zygote`, which imports it by name, before slots are forked. All slots of a worker share one
directory of blobs; what they read is fetched once.
"""

import socket
from collections.abc import Mapping

from kilnwork.api import manager
from kilnwork.channel import client as channel_client
from kilnwork.data import blobs, cached_blobs, remote_blobs
from kilnwork.endpoints import client
from kilnwork.worker import settings


class _RelayConnector:
    """Connects to the relay, and shows the token of the worker's cluster, as the agent does."""

    def __init__(self, given: settings.WorkerSettings, path: str) -> None:
        self._given = given
        self._path = path

    def connect(self) -> socket.socket:
        """To the relay's socket for HTTP."""
        return channel_client.unix(self._path)

    def headers(self) -> Mapping[str, str]:
        """The token is read each time, since it may be renewed."""
        given = self._given
        return {
            "Host": manager.SERVER_NAME,
            manager.TOKEN_HEADER: given.token_file.read_text().strip(),
            manager.CLUSTER_HEADER: f"{given.namespace}/{given.cluster}",
        }

    def refused(self) -> None:
        """There is no other than the one in the file."""


def open_blobs(given: settings.WorkerSettings, namespace: str) -> blobs.Blobs:
    """The blobs of the worker's namespace; files of its jobs are found from now on, too."""
    far = given.remote
    if far is None:
        raise ValueError("this dispatcher's blobs are to be seen here")
    connector = _RelayConnector(given, far.http)
    client.slot_manager = client.SlotManager(connector, far.spool)
    store = remote_blobs.RemoteBlobs(connector, path=f"/blobs/{namespace}")
    return cached_blobs.CachedBlobs(far.blobs / namespace, store)
