"""Whether a worker belongs to the cluster it names: the channel's `TokenVerifier`.

Used by the hub for every new link. A TaskCluster's token is in its channel Secret, which only its
worker Pods mount; the caches have both, so a check costs no request.
"""

import base64
import binascii
import hmac

import msgspec

from kilnwork.api import meta, task_cluster
from kilnwork.controllers import worker_pods
from kilnwork.kube import cache


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a core/v1 Secret that we read; values are base64."""

    metadata: meta.ObjectMeta
    data: dict[str, str] = msgspec.field(default_factory=dict)


def channel_secret(
    secrets: cache.Cache[Secret], cluster: task_cluster.TaskCluster
) -> Secret | None:
    """The channel Secret that this very cluster controls."""
    name = worker_pods.secret_name(cluster.metadata.name)
    found = secrets.get((cluster.metadata.namespace, name))
    if found is None:
        return None
    owner = found.metadata.controller()
    return found if owner is not None and owner.uid == cluster.metadata.uid else None


class SecretVerifier:
    """Compares a credential with the token in the cluster's channel Secret."""

    def __init__(
        self, clusters: cache.Cache[task_cluster.TaskCluster], secrets: cache.Cache[Secret]
    ) -> None:
        self._clusters = clusters
        self._secrets = secrets

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """True when `credential` is the token of this cluster as it is now."""
        known = self._clusters.get((namespace, cluster))
        if known is None or known.metadata.deletion_timestamp is not None:
            return False
        secret = channel_secret(self._secrets, known)
        token = secret.data.get(worker_pods.TOKEN_KEY, "") if secret is not None else ""
        try:
            expected = base64.b64decode(token, validate=True)
        except binascii.Error:
            return False
        return bool(expected) and hmac.compare_digest(expected, credential.encode())
