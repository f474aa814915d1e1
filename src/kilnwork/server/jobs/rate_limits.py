"""Limits on concurrent transfers, and on the rate at which each user creates jobs.

Created by `app`; used by the handlers of uploads and downloads. Each user has a token bucket for
new jobs (RFC 6585 §4: 429 with Retry-After). There is no queue: a client that exceeds its rate has
to retry later.
"""

from collections import OrderedDict

from kilnwork.kit import clock
from kilnwork.server import errors
from kilnwork.server.jobs import settings

_USERS = 10_000
"""Number of users remembered. The one with the oldest request is dropped first, and starts again
with a full bucket."""

_SHARE = 75
"""Percentage of the concurrent uploads, or downloads, that one user may have: a slow user cannot
block others."""


class RequestLimits:
    """Limits on each user's rate of new jobs and concurrent transfers, as set in
    `settings.JobsApiSettings`.
    """

    def __init__(self, chosen: settings.JobsApiSettings, time: clock.Clock) -> None:
        self._settings = chosen
        self._clock = time
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._uploads = _Shares("uploads", chosen.uploads)
        self._downloads = _Shares("downloads", chosen.downloads)

    def admit(self, user: str) -> None:
        """Count a user's request for a new job. Raises TooManyRequests if the user exceeds the
        rate.
        """
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
        """Return a context manager that counts one concurrent upload.

        Entering it raises TooManyRequests if there are too many uploads, in total or of this user.
        """
        return _Transfer(self._uploads, user)

    def download(self, user: str) -> "_Transfer":
        """Return a context manager that counts one concurrent download, as `upload` does."""
        return _Transfer(self._downloads, user)


class _Shares:
    """Counter of the concurrent transfers of one kind, by user. `what`: plural noun for
    messages.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._users: dict[str, int] = {}
        self._under_way = 0

    def begin(self, user: str) -> None:
        """Count a transfer that begins. Raises TooManyRequests."""
        now, what = self._under_way, self._what
        if now >= self._most:
            raise _later(f"{now} {what} are under way, which is the most", after_s=1)
        mine = self._users.get(user, 0)
        if mine >= max(1, self._most * _SHARE // 100):
            raise _later(f"{mine} {what} of yours are under way, which is the most", after_s=1)
        self._users[user] = mine + 1
        self._under_way += 1

    def end(self, user: str) -> None:
        """Count a transfer that has ended."""
        self._under_way -= 1
        self._users[user] -= 1
        if not self._users[user]:
            del self._users[user]


class _Transfer:
    """Context manager that counts one transfer from the beginning to the end of its `with`
    block.
    """

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
