"""What the dispatcher's end of a link needs from other rooms; the code that makes a hub provides
it.

Implemented by `cli.wiring.adapters` (with `controllers`) and, for a home, by `dispatch.process`.
"""

from typing import Protocol

from kilnwork.api import attempts


class TokenVerifier(Protocol):
    """Says whether a credential belongs to a worker of a TaskCluster, to a driver, or to a Pod in
    which an attempt runs."""

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """True when `credential` is the channel token of that cluster now.

        Repeatable and free of effects. May raise `kit.errors.KilnError` when it cannot know yet
        (say, the Secret is not in the cache): the worker is refused, and tries again.
        """
        ...

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        """True when `credential` may submit tasks in that namespace now.

        Repeatable and free of effects. May raise `kit.errors.KilnError` as `verify` does; one that
        names a missing right is shown to the driver.
        """
        ...

    async def verify_executor(self, executor: str, namespace: str, credential: str) -> bool:
        """True when `credential` may carry out attempts of that executor now, in that
        namespace, or in all if that is "".

        Repeatable and free of effects. May raise `kit.errors.KilnError` as `verify` does.
        """
        ...

    async def verify_attempt(
        self, ref: attempts.AttemptRef, namespace: str, pod: str, credential: str
    ) -> bool:
        """True when `credential` belongs to that Pod, and the Pod is that attempt.

        Repeatable and free of effects. May raise `kit.errors.KilnError` as `verify` does.
        """
        ...
