"""Blobs that this process still needs: renewed now and then for as long as their owner lives.

Used by references to blobs (`sdk.values.Ref`, `parts.Part`, futures with large results), which hold
what they name, and by each session, whose background thread calls `renew`. Starts no thread.
"""

import itertools
import weakref
from collections.abc import Callable, Iterable

from kilnwork.data import blobs
from kilnwork.kit import clock

RENEW_S = 300.0
"""The collector takes what was not renewed for twice as long, or for an hour."""

_AT_ONCE = 256
"""Renewed in one go, some milliseconds, so that the thread that does it can do other things."""


class _Round:
    """When the next one begins, and what is left of this one."""

    __slots__ = ("due", "left")

    def __init__(self) -> None:
        self.due = 0.0
        self.left: list[bytes] = []


class Holding:
    """What is held; safe to use from several threads."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._numbers = itertools.count()
        self._held: dict[int, tuple[weakref.ref[object], tuple[bytes, ...]]] = {}
        self._rounds: weakref.WeakKeyDictionary[blobs.Blobs, _Round] = weakref.WeakKeyDictionary()

    def hold(self, owner: object, digests: Iterable[bytes]) -> None:
        """Renew these until `owner` is collected as garbage; it must take weak references."""
        number, held = next(self._numbers), self._held
        alive = weakref.ref(owner, lambda _: held.pop(number, None))
        held[number] = (alive, tuple(digests))

    def renew(
        self, kept: blobs.Blobs, submitted: Callable[[], Iterable[bytes]] = frozenset
    ) -> None:
        """Renew some of what is held and in this directory, if it is time; call it often.

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


_holding = Holding(clock.SystemClock())
hold = _holding.hold
renew = _holding.renew
