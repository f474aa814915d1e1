"""Renewal of blobs that this process needs, for as long as the objects that refer to the blobs
live.

Used by references to blobs (`sdk.values.Ref`, `parts.SplitFile`, futures with large results), which
hold the blobs that they name, and by each session, whose background thread calls `renew`. Starts no
thread.
"""

import itertools
import weakref
from collections.abc import Callable, Iterable

from kilnwork.data import local_blobs
from kilnwork.kit import clock

RENEW_S = 300.0
"""Interval of renewals. The collector deletes blobs that were not renewed for an hour."""

_AT_ONCE = 256
"""Maximum number of blobs renewed in one call: it takes some milliseconds, and then the calling
thread can do other work.
"""


class _Round:
    """Progress of a round of renewals in one directory: the time of the next round, and the blobs
    left in this one.
    """

    __slots__ = ("due", "left")

    def __init__(self) -> None:
        self.due = 0.0
        self.left: list[bytes] = []


class HeldBlobs:
    """Registry of the blobs that this process needs; thread-safe."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._numbers = itertools.count()
        self._held: dict[int, tuple[weakref.ref[object], tuple[bytes, ...]]] = {}
        self._rounds: weakref.WeakKeyDictionary[local_blobs.Blobs, _Round] = (
            weakref.WeakKeyDictionary()
        )

    def hold(self, owner: object, digests: Iterable[bytes]) -> None:
        """Register blobs that are to be renewed until `owner` is garbage-collected. `owner` must
        support weak references.
        """
        number, held = next(self._numbers), self._held
        alive = weakref.ref(owner, lambda _: held.pop(number, None))
        held[number] = (alive, tuple(digests))

    def renew(
        self, kept: local_blobs.Blobs, submitted: Callable[[], Iterable[bytes]] = frozenset
    ) -> None:
        """Renew some of the held blobs in the directory of `kept`, if a round is due; call this
        often.

        `submitted` returns further blobs, which need no owner.
        """
        now = self._time.monotonic()
        turn = self._rounds.setdefault(kept, _Round())
        if not turn.left:
            if now < turn.due:
                return
            turn.due = now + RENEW_S
            held = {digest for _, held in list(self._held.values()) for digest in held}
            turn.left = list(held.union(submitted()))
        batch, turn.left = turn.left[:_AT_ONCE], turn.left[_AT_ONCE:]
        kept.touch_all(batch)


_holding = HeldBlobs(clock.SystemClock())
hold = _holding.hold
renew = _holding.renew
