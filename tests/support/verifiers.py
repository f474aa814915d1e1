"""Verifiers of credentials for hubs in tests: one secret for all, or only the workers of another
verifier.
"""

from typing import Protocol

from kilnwork.api import attempts


class OneSecret:
    """Every cluster and every namespace has the same token."""

    def __init__(self, secret: str = "secret") -> None:
        self._secret = secret

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        return credential == self._secret

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        return credential == self._secret

    async def verify_executor(self, executor: str, namespace: str, credential: str) -> bool:
        return credential == self._secret

    async def verify_attempt(
        self, ref: attempts.AttemptRef, namespace: str, pod: str, credential: str
    ) -> bool:
        return credential == self._secret


class Workers(Protocol):
    """Verifies the credential of a worker."""

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool: ...


class NoDrivers:
    """Accepts the workers that another verifier accepts, and no other peers."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        return await self._workers.verify(namespace, cluster, credential)

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        return False

    async def verify_executor(self, executor: str, namespace: str, credential: str) -> bool:
        return False

    async def verify_attempt(
        self, ref: attempts.AttemptRef, namespace: str, pod: str, credential: str
    ) -> bool:
        return False
