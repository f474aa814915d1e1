"""How much one server does at once, and how often it does it for one user. Used by uploads.

A bucket of tokens for each user (RFC 6585 §4: 429 with Retry-After); no waiting room: a client that
comes too often waits at home.
"""

from collections import OrderedDict

from kilnwork.kit import clock
from kilnwork.server import errors
from kilnwork.server.jobs import settings

_USERS = 10_000
"""Remembered; the one that came longest ago is forgotten first, and has a full bucket again."""

_SHARE = 75
"""Percent of the uploads, or downloads, at once that one user may have: no user, however slow,
keeps others out."""


class Limits:
    """Those of `settings.WorkerSettings`."""

    def __init__(self, chosen: settings.Settings, time: clock.Clock) -> None:
        self._settings = chosen
        self._clock = time
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._uploads = _Shares("uploads", chosen.uploads)
        self._downloads = _Shares("downloads", chosen.downloads)

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

    def upload(self, user: str) -> "_Transfer":
        """Be one of the uploads under way (`with`, which raises TooManyRequests); some are left to
        others."""
        return _Transfer(self._uploads, user)

    def download(self, user: str) -> "_Transfer":
        """The same of downloads."""
        return _Transfer(self._downloads, user)


class _Shares:
    """Transfers of one kind that are under way, and whose they are. `what`: their plural."""

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._users: dict[str, int] = {}
        self._under_way = 0

    def begin(self, user: str) -> None:
        """One begins. Raises TooManyRequests."""
        now, what = self._under_way, self._what
        if now >= self._most:
            raise _later(f"{now} {what} are under way, which is the most", after_s=1)
        mine = self._users.get(user, 0)
        if mine >= max(1, self._most * _SHARE // 100):
            raise _later(f"{mine} {what} of yours are under way, which is the most", after_s=1)
        self._users[user] = mine + 1
        self._under_way += 1

    def end(self, user: str) -> None:
        """One is over."""
        self._under_way -= 1
        self._users[user] -= 1
        if not self._users[user]:
            del self._users[user]


class _Transfer:
    """One transfer, from `with` to the end of its block."""

    __slots__ = ("_shares", "_user")

    def __init__(self, shares: _Shares, user: str) -> None:
        self._shares = shares
        self._user = user

    def __enter__(self) -> None:
        self._shares.begin(self._user)

    def __exit__(self, *_: object) -> None:
        self._shares.end(self._user)


def _later(why: str, *, after_s: float) -> errors.TooManyRequests:
    seconds = max(1, int(after_s + 0.999))
    return errors.TooManyRequests(
        f"{why}: come again in {seconds} s", headers=((b"retry-after", str(seconds).encode()),)
    )
