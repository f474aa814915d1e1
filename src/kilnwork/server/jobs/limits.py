"""How much one server does at once, and how often it does it for one user. Used by uploads.

A bucket of tokens for each user (RFC 6585 §4: 429 with Retry-After); no waiting room: whoever comes
too often waits at home.
"""

from collections import OrderedDict

from kilnwork.kit import clock
from kilnwork.server import errors
from kilnwork.server.jobs import settings

_USERS = 10_000
"""Remembered; the one that came longest ago is forgotten first, and has a full bucket again."""

_SHARE = 75
"""Percent of the uploads at once that one user may have: nobody, however slow, keeps others out."""


class Limits:
    """Those of `settings.Settings`."""

    def __init__(self, chosen: settings.Settings, time: clock.Clock) -> None:
        self._settings = chosen
        self._clock = time
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._uploads: dict[str, int] = {}
        self._under_way = 0

    def admit(self, user: str) -> None:
        """Count one request of a user. Raises TooManyRequests."""
        rate = self._settings.posts_per_second
        if rate is None:
            return
        now = self._clock.monotonic()
        tokens, since = self._buckets.pop(user, (float(self._settings.burst), now))
        tokens = min(tokens + (now - since) * rate, float(self._settings.burst))
        allowed = tokens >= 1
        self._buckets[user] = (tokens - allowed, now)
        if len(self._buckets) > _USERS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise _later(
                f"more than {rate:g} jobs a second (after a burst of {self._settings.burst})",
                after_s=(1 - tokens) / rate,
            )

    def upload(self, user: str) -> "_Upload":
        """Be one of the uploads under way (`with`); some are left to others."""
        return _Upload(self, user)

    def begin(self, user: str) -> None:
        """An upload begins. Raises TooManyRequests."""
        most, now = self._settings.uploads, self._under_way
        if now >= most:
            raise _later(f"{now} uploads are under way, which is the most", after_s=1)
        mine = self._uploads.get(user, 0)
        if mine >= max(1, most * _SHARE // 100):
            raise _later(f"{mine} uploads of yours are under way, which is the most", after_s=1)
        self._uploads[user] = mine + 1
        self._under_way += 1

    def end(self, user: str) -> None:
        """An upload is over."""
        self._under_way -= 1
        self._uploads[user] -= 1
        if not self._uploads[user]:
            del self._uploads[user]


class _Upload:
    """One upload, from `with` to the end of its block."""

    __slots__ = ("_limits", "_user")

    def __init__(self, limits: Limits, user: str) -> None:
        self._limits = limits
        self._user = user

    def __enter__(self) -> None:
        self._limits.begin(self._user)

    def __exit__(self, *_: object) -> None:
        self._limits.end(self._user)


def _later(why: str, *, after_s: float) -> errors.TooManyRequests:
    seconds = max(1, int(after_s + 0.999))
    return errors.TooManyRequests(
        f"{why}: come again in {seconds} s", headers=((b"retry-after", str(seconds).encode()),)
    )
