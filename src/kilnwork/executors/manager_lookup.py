"""Finding and connecting to the manager, for the process of an executor.

Used by `kiln executor` and `kilnwork.executor`.
"""

import socket
from collections.abc import Callable
from urllib import parse

from kilnwork.api import manager_access
from kilnwork.channel import blocking_link as channel_client
from kilnwork.channel import http_upgrade
from kilnwork.data import remote_blobs
from kilnwork.endpoints import connector, manager_client, resolve
from kilnwork.executors import service
from kilnwork.kit import clock, errors, http_types
from kilnwork.kube import config


class _BlobConnector:
    """Connector to the manager in the role of a queue's executor (`manager_client.Connector`), for
    blobs.
    """

    def __init__(self, to: connector.ManagerConnector, queue: str) -> None:
        self.connect = to.connect
        self.refused = to.refused
        self._headers = to.headers
        self._queue = queue

    def headers(self) -> dict[str, str]:
        return {**self._headers(), manager_access.CLUSTER_HEADER: f"/{self._queue}"}


def is_namespace_missing(load: Callable[[], config.Config], namespace: str) -> bool:
    """Return whether the API server says that a namespace does not exist; False if the user may not
    ask, or the API server cannot be reached.
    """
    to = connector.ServerConnector(load, clock.SystemClock())
    http = manager_client.Client(to)
    path = to.path(f"/api/v1/namespaces/{parse.quote(namespace, safe='')}")
    try:
        response = http.exchange(
            http_types.ClientRequest(method="GET", path=path, timeout_s=http_types.CONNECT_S)
        )
    except (manager_client.TryAgain, errors.KilnError, OSError):
        return False
    finally:
        http.close()
    return response.status == 404 and response.is_kubernetes_status()


def find_manager(load: Callable[[], config.Config], queue: str) -> service.Manager:
    """Return the connection data of the manager: its Unix socket if that is on this machine, else
    its address in the network.

    Raises ConfigurationError.
    """
    to = connector.ManagerConnector(load, namespace=load().namespace)
    path = resolve.local_socket(to.server, to.find())

    def connect() -> socket.socket:
        to.token()  # renew the token here, in a thread, if necessary
        return http_upgrade.open_channel(to) if path is None else channel_client.unix(path)

    def store(namespace: str) -> remote_blobs.RemoteBlobs:
        return remote_blobs.RemoteBlobs(
            _BlobConnector(to, queue), path=to.path(f"/blobs/{parse.quote(namespace, safe='')}")
        )

    return service.Manager(
        connect=connect, credential=to.token, store=store, place=path or to.server
    )
