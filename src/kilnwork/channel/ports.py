"""What the channel needs from rooms above it. Implemented in `controllers`, handed in by wiring."""

from typing import Protocol


class TokenVerifier(Protocol):
    """Says whether a credential belongs to a worker of a TaskCluster."""

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """True when `credential` is the channel token of that cluster now.

        Repeatable and free of effects. May raise `kit.errors.KilnError` when it cannot know yet
        (say, the Secret is not in the cache): the worker is refused and told to try again.
        """
        ...
