"""What the manager in a cluster answers to rooms that must not know each other.

Used by `manager_wiring`; `adapters` has those of `kiln up`. Rights and users come from reviews by
the API server, what exists from the caches of the controllers.
"""

from kilnwork.cli import adapters
from kilnwork.controllers import caches as known_caches
from kilnwork.dispatch.hub import hub
from kilnwork.server import ports, reviews


class ChannelVerifier:
    """`channel.ports.TokenVerifier`: workers by their cluster's Secret, drivers by reviews.

    A driver shows a token of the API server; who may create Tasks in a namespace may submit calls.
    """

    def __init__(
        self,
        workers: adapters.WorkerVerifier,
        people: reviews.Reviews,
        caches: known_caches.Caches,
    ) -> None:
        self._workers = workers
        self._people = people
        self._caches = caches

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """As `controllers` say."""
        return await self._workers.verify(namespace, cluster, credential)

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        """True when the token may submit; raises LinkRefused when it is good for other things."""
        user = await self._people.user(credential)
        if user is None:
            return False
        question = ports.Question(verb="create", namespace=namespace)
        refused = await self._people.refusal(user, question)
        exists = ("", namespace) in self._caches.namespaces
        adapters.check_driver(namespace, refused=refused, exists=exists)
        return True


class KnownClusters:
    """`server.ports.Clusters`: objects of the caches, numbers of the hub."""

    def __init__(self, running: hub.Hub, caches: known_caches.Caches) -> None:
        self._hub = running
        self._caches = caches

    def namespaces(self) -> list[str]:
        """All namespaces, sorted."""
        return sorted(name for _, name in list(self._caches.namespaces.keys()))

    def clusters(self, namespace: str) -> list[ports.Cluster]:
        """The TaskClusters of a namespace, sorted by name."""
        keys = sorted(self._caches.clusters.keys())
        return [adapters.shown(self._hub, *key) for key in keys if key[0] == namespace]
