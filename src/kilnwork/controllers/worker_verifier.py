"""The check that a worker belongs to the cluster that it names: the channel's `TokenVerifier`.

Used by the hub for each new link. A TaskCluster's token is in its channel Secret, which only its
worker Pods mount; the caches have both, so that a check needs no request.
"""

import asyncio
import base64
import binascii
import hmac
from collections.abc import Sequence

from kilnwork.api import task_cluster
from kilnwork.controllers import caches, errors, worker_pods

PATIENCE_S = 5.0
"""Maximum time in seconds that a check waits for complete caches: longer than a start takes."""


def channel_secret(known: caches.Caches, cluster: task_cluster.TaskCluster) -> caches.Secret | None:
    """Return the channel Secret that a TaskCluster controls, or None if it does not exist."""
    name = worker_pods.secret_name(cluster.metadata.name)
    found = known.secrets.get((cluster.metadata.namespace, name))
    if found is None:
        return None
    owner = found.metadata.controller()
    return found if owner is not None and owner.uid == cluster.metadata.uid else None


class SecretVerifier:
    """Verifier of workers: compares a credential with the token in the cluster's channel Secret.

    `synced`: set when the caches are complete; a check waits for them up to `PATIENCE_S`, so that
    workers that reconnect during the start of the manager are accepted without delay.
    """

    def __init__(self, known: caches.Caches, *, synced: Sequence[asyncio.Event] = ()) -> None:
        self._caches = known
        self._synced = synced

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """Return whether `credential` is the current token of this cluster.

        Raises NotYet if the caches are not complete or lack the Secret.
        """
        await wait_synced(self._synced)
        known = self._caches.clusters.get((namespace, cluster))
        if known is None or known.metadata.deletion_timestamp is not None:
            return False
        secret = channel_secret(self._caches, known)
        if secret is None:
            raise errors.NotYet(f"TaskCluster {cluster} has no channel Secret yet")
        token = secret.data.get(worker_pods.TOKEN_KEY, "")
        try:
            expected = base64.b64decode(token, validate=True)
        except binascii.Error:
            return False
        return bool(expected) and hmac.compare_digest(expected, credential.encode())


async def wait_synced(synced: Sequence[asyncio.Event]) -> None:
    """Wait up to `PATIENCE_S` until the caches are complete. Raises NotYet."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            for event in synced:
                await event.wait()
    except TimeoutError as error:
        raise errors.NotYet("the caches of the controllers are not full yet") from error
