"""Delays before the next try: capped exponential back-off with jitter.

Used by reconnecting links, work queues, container restarts and other retries. Holds no state: the
caller counts.
"""

from dataclasses import dataclass

from kilnwork.kit import ids


@dataclass(frozen=True, slots=True)
class Backoff:
    """Settings of a back-off: the delay is `base_s * factor ** (failures - 1)`, at most `max_s`,
    spread by ± `jitter` (a fraction).
    """

    base_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay_s(self, failures: int, *, entropy: ids.Entropy | None = None) -> float:
        """Return the seconds to wait after the given number of failures in a row (0 for none)."""
        if failures <= 0:
            return 0.0
        exponent = min(failures - 1, 64)
        delay = min(self.max_s, self.base_s * self.factor**exponent)
        if entropy is not None and self.jitter:
            delay *= 1 + self.jitter * (2 * entropy.random() - 1)
        return float(delay)
