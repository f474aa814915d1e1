"""The check that a client is an agent of the pond that it names; implements `AgentVerifier` for the
pond exchange.

Created by `assembly` for `server.pond_exchange`. A pond's token is in its Secret, which only its
agents' Pods mount; the caches have it, so that a check needs no request.
"""

import asyncio
import base64
import binascii
import hmac
from collections.abc import Sequence

from kilnwork.api import data_pond, pond_certificate_names
from kilnwork.controllers import caches, errors, worker_verifier
from kilnwork.controllers.data_pond import deletion_decision, pods


def secret_of(known: caches.Caches, pond: data_pond.DataPond) -> caches.Secret | None:
    """Return the Secret that a DataPond controls, or None if it does not exist."""
    name = pods.secret_name(pond.metadata.name)
    found = known.secrets.get((pond.metadata.namespace, name))
    if found is None:
        return None
    owner = found.metadata.controller()
    return found if owner is not None and owner.uid == pond.metadata.uid else None


class PondVerifier:
    """Verifier of agents: compares a credential with the token in the pond's Secret."""

    def __init__(self, known: caches.Caches, *, synced: Sequence[asyncio.Event]) -> None:
        self._caches = known
        self._synced = synced

    async def verify(self, namespace: str, pond: str, credential: str) -> bool:
        """Return whether the credential is the token of the pond; see
        `server.pond_ports.AgentVerifier`. Raises NotYet.
        """
        await worker_verifier.wait_synced(self._synced)
        known = self._caches.ponds.get((namespace, pond))
        if known is None:
            return False
        if known.metadata.deletion_timestamp is not None and not deletion_decision.is_being_deleted(
            known
        ):
            return False
        secret = secret_of(self._caches, known)
        if secret is None:
            raise errors.NotYet(f"DataPond {pond} has no Secret yet")
        try:
            expected = base64.b64decode(
                secret.data.get(pond_certificate_names.TOKEN_KEY, ""), validate=True
            )
        except binascii.Error:
            return False
        return bool(expected) and hmac.compare_digest(expected, credential.encode())
