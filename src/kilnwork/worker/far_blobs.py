"""The blobs and files of a slot whose manager is reached over the network, by way of the relay.

Used by `zygote`, which imports it by name, before slots are forked. All slots of a worker share one
folder of blobs; what they read is fetched once.
"""

from collections.abc import Mapping

from kilnwork.api import manager
from kilnwork.channel import client
from kilnwork.data import asking, blobs, cached, remote
from kilnwork.data.stores import ways
from kilnwork.worker import settings


class _Worker:
    """Shows the token of its cluster, as the agent does."""

    def __init__(self, given: settings.Settings) -> None:
        self._given = given

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


def keep(given: settings.Settings, namespace: str) -> blobs.Blobs:
    """The blobs of the worker's namespace; files of its jobs are found from now on, too."""
    far = given.remote
    if far is None:
        raise ValueError("this dispatcher's blobs are to be seen here")
    route = asking.Route(lambda: client.unix(far.http), _Worker(given))
    ways.manager = ways.Way(route, far.spool)
    store = remote.Store(*route, path=f"/blobs/{namespace}")
    return cached.CachedBlobs(far.blobs / namespace, store)
