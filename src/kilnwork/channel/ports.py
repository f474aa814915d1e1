"""Interfaces that the dispatcher's end of a link needs; the code that creates a hub provides them.

Implemented by `cli.wiring.port_adapters` (with `controllers`) and, for a home, by
`dispatch.process`.
"""

from typing import Protocol

from kilnwork.api import attempts


class TokenVerifier(Protocol):
    """Verifies the credentials of workers, drivers, executors, and Pods of attempts.

    Every method is idempotent and free of effects. A method may raise `kit.errors.KilnError` while
    the credential cannot be verified (for example, the Secret is not in the cache yet): the peer is
    refused, and tries again.
    """

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """Return whether `credential` is the current channel token of the TaskCluster."""
        ...

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        """Return whether `credential` may submit tasks in that namespace now.

        A `kit.errors.KilnError` that names a missing right is shown to the driver.
        """
        ...

    async def verify_executor(self, executor: str, namespace: str, credential: str) -> bool:
        """Return whether `credential` may carry out attempts of the executor in `namespace` now.

        An empty `namespace` means all namespaces.
        """
        ...

    async def verify_attempt(
        self, ref: attempts.AttemptRef, namespace: str, pod: str, credential: str
    ) -> bool:
        """Return whether `credential` belongs to the Pod `pod`, and that Pod runs the attempt
        `ref`.
        """
        ...
