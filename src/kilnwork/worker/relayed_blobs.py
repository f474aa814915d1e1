"""Blobs and job files for slots whose manager is on another machine, fetched over the relay.

Used by `zygote`, which imports it by name before it forks slots. All slots of a worker share one
cache directory, so each blob is fetched once.
"""

import socket
from collections.abc import Mapping

from kilnwork.api import manager_access
from kilnwork.channel import blocking_link as channel_client
from kilnwork.data import cached_blobs, local_blobs, remote_blobs
from kilnwork.endpoints import manager_client
from kilnwork.worker import settings


class _RelayConnector:
    """Connector to the manager over the relay.

    It authenticates with the token of the worker's cluster, as the agent does.
    """

    def __init__(self, given: settings.WorkerSettings, path: str) -> None:
        self._given = given
        self._path = path

    def connect(self) -> socket.socket:
        """Connect to the relay's socket for HTTP."""
        return channel_client.unix(self._path)

    def headers(self) -> Mapping[str, str]:
        """Return the authentication headers.

        The token file is read each time, since it may be renewed.
        """
        given = self._given
        return {
            "Host": manager_access.SERVER_NAME,
            manager_access.TOKEN_HEADER: given.token_file.read_text().strip(),
            manager_access.CLUSTER_HEADER: f"{given.namespace}/{given.cluster}",
        }

    def refused(self) -> None:
        """Do nothing after a refusal, because there is no token other than that in the file."""


def open_blobs(given: settings.WorkerSettings, namespace: str) -> local_blobs.Blobs:
    """Open the blobs of the worker's namespace, and make the files of its jobs readable."""
    far = given.remote
    if far is None:
        raise ValueError("this dispatcher's blobs are to be seen here")
    connector = _RelayConnector(given, far.http)
    manager_client.slot_manager = manager_client.SlotManager(connector, far.spool)
    store = remote_blobs.RemoteBlobs(connector, path=f"/blobs/{namespace}")
    return cached_blobs.CachedBlobs(far.blobs / namespace, store)
