"""The lease of a worker, as the worker itself computes it.

Used by `channel.worker_side`, and by `cli.wiring.dispatcher` for the lease duration. Arithmetic
only, without clock or timer; times are seconds of the worker's monotonic clock. The end of the
lease that the dispatcher computes is never earlier than the end computed here.
"""

RETURN_S = 10.0
"""Seconds from the moment a dispatcher can be reached again until its workers have renewed their
leases: a reconnect every second, a handshake, and the time until names and Services of a network
point to a new address.
"""


def length_for(absence_s: float, *, renew_s: float) -> float:
    """Return the lease duration, in seconds, that allows a dispatcher to be away for `absence_s`.

    If a dispatcher goes away just before a renewal, `renew_s` of the lease are used up, and a
    worker stops its work up to `MARGIN_S` before the end.
    """
    return absence_s + renew_s + MARGIN_S + RETURN_S


MARGIN_S = 2.0
"""Maximum seconds before the end of its lease at which a worker ends its work."""


class Lease:
    """The time until which this worker may run attempts, by its own monotonic clock.

    A renewal counts from the time at which it was *sent*, so that the end which the dispatcher
    computes is never earlier than the end computed here. Work stops `margin_s` before the end: two
    seconds before the end of a lease of ten, less for shorter leases.
    """

    def __init__(self) -> None:
        self._length_s = 0.0
        self._sent: dict[int, float] = {}
        self._until = float("-inf")

    def begin(self, length_s: float, *, sent: float) -> None:
        """Start a new lease of `length_s` on a new link, whose Hello was sent at `sent`."""
        self._length_s = length_s
        self._sent.clear()
        self._until = sent + length_s

    def sent(self, number: int, *, at: float) -> None:
        """Record that renewal `number` was sent at `at`."""
        self._sent[number] = at

    def granted(self, number: int) -> None:
        """Extend the lease, since renewal `number`, and with it every older renewal, was
        acknowledged.
        """
        at = self._sent.get(number)
        # The renewal was sent on an earlier link, or is older than one that was granted already.
        if at is None:
            return
        self._until = max(self._until, at + self._length_s)
        self._sent = {n: t for n, t in self._sent.items() if n > number}

    @property
    def margin_s(self) -> float:
        """Return the seconds between the time when all work must stop and the end of the lease."""
        return min(MARGIN_S, self._length_s / 5)

    @property
    def stop_at(self) -> float:
        """Return the time at which all attempts must have ended, unless a renewal is granted
        before.
        """
        return self._until - self.margin_s
