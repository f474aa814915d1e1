"""The interface by which the dispatcher's end of a link verifies credentials.

Used by `dispatch.hub`, and by `server` for requests with the same credentials. Implemented by
`cli.wiring.port_adapters` (with `controllers`) and, for a home, by `dispatch.process`.
"""

from typing import Protocol

from kilnwork.api import attempts


class TokenVerifier(Protocol):
    """Verifies the credentials of workers, drivers, executors, and Pods of attempts.

    Every method is idempotent and free of effects. A method may raise `kit.errors.KilnError` while
    the credential cannot be verified (for example, the Secret is not in the cache yet): the peer is
    refused, and tries again. A `channel.errors.LinkRefused` is passed on to the peer; it says
    itself whether the peer should try again.
    """

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """Return whether `credential` is the current channel token of the TaskCluster."""
        ...

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        """Return whether `credential` may submit tasks in that namespace now.

        A missing right is reported by a `channel.errors.LinkRefused`, whose message the driver
        shows.
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
