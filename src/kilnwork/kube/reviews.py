"""Reviews by the API server: which user a token belongs to, and what a user may do.

Used by the manager (`server.reviews`) and the node (`controlplane.node.access`), which decide how
long a result is cached: TokenReview (authentication.k8s.io/v1) and SubjectAccessReview
(authorization.k8s.io/v1). Tokens themselves are never stored.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kilnwork.api import api_resources, meta
from kilnwork.kit import clock
from kilnwork.kube import client, errors

REMEMBERED = 4096
"""Maximum number of results in each of the two caches, positive results and refusals; those that
were stored first are dropped first.
"""

AT_ONCE = 8
"""Maximum number of reviews at the same time; further ones wait, so that a flood of unknown tokens
does not reach the API server.
"""

WAITING = 256
"""Maximum number of reviews under way or waiting; any further one is refused at once."""

V = TypeVar("V")
_Kept = OrderedDict[Hashable, tuple[float, V]]


class User(NamedTuple):
    """The fields of authentication.k8s.io/v1 UserInfo; `extra` as sorted pairs."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Remembered(Generic[V]):
    """A cache of results with expiry, which limits how many results are requested at the same time.

    Refusals (None, False) are stored separately, so that they never evict other results.
    """

    def __init__(self, now: clock.Clock) -> None:
        self._now = now
        self._results: _Kept[V] = OrderedDict()
        self._refusals: _Kept[V] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """Return the cached result for a key, else the result that `ask` returns.

        `ask` returns a result and its validity in seconds. Raises the errors of `ask`, and
        Unavailable if too many callers are waiting.
        """
        known = self._known(key)
        if known is not None:
            return known[1]
        if self._waiting >= WAITING:
            text = "too many tokens and rights are being asked about: try again in a moment"
            raise errors.Unavailable(503, "ServiceUnavailable", text)
        self._waiting += 1
        try:
            async with self._turns:
                known = self._known(key)  # another caller may have got the same result meanwhile
                return self._keep(key, *await ask()) if known is None else known[1]
        finally:
            self._waiting -= 1

    def _known(self, key: Hashable) -> tuple[float, V] | None:
        # An entry is a pair, and so is true whatever its value.
        known = self._results.get(key) or self._refusals.get(key)
        return known if known is not None and self._now.monotonic() < known[0] else None

    def _keep(self, key: Hashable, result: V, holds_s: float) -> V:
        # The earlier result may be in either cache.
        self._results.pop(key, None)
        self._refusals.pop(key, None)
        cache = self._results if result else self._refusals
        if holds_s > 0:
            cache[key] = (self._now.monotonic() + holds_s, result)
        while len(cache) > REMEMBERED:
            cache.popitem(last=False)
        return result


def digest(token: str) -> bytes:
    """Return the key for a token in a cache: a digest, since the token itself is a secret."""
    return hashlib.sha256(token.encode()).digest()


async def user_of(kube: client.Client, token: str, *, audiences: Sequence[str] = ()) -> User | None:
    """Return the user that a token belongs to, or None if it is invalid. Raises KubeError.

    `audiences`: the audiences that the token must be for; by default the API server.
    """
    spec: meta.JsonObject = {"token": token, **({"audiences": audiences} if audiences else {})}
    status = await _status(kube, api_resources.TOKEN_REVIEWS, spec)
    if not status.get("authenticated"):
        return None
    # A token authenticator that does not support audiences accepts tokens for any audience, and
    # returns none, so clients have to check (authentication.k8s.io/v1, TokenReviewSpec.audiences).
    if audiences and not {*audiences} & {*(status.get("audiences") or ())}:
        return None
    info = status.get("user") or {}
    extra = ((key, tuple(values)) for key, values in sorted((info.get("extra") or {}).items()))
    groups = tuple(info.get("groups") or ())
    return User(str(info.get("username") or ""), groups, str(info.get("uid") or ""), tuple(extra))


async def allows(kube: client.Client, user: User, attributes: meta.JsonObject) -> bool:
    """Return whether `user` has the access that `attributes` describes. Raises KubeError.

    `attributes`: the ResourceAttributes of a SubjectAccessReview.
    """
    who = {"user": user.name, "groups": user.groups, "uid": user.uid, "extra": dict(user.extra)}
    spec = {**who, "resourceAttributes": attributes}
    status = await _status(kube, api_resources.SUBJECT_ACCESS_REVIEWS, spec)
    return bool(status.get("allowed"))


async def _status(
    kube: client.Client, kind: api_resources.Resource, spec: meta.JsonObject
) -> Mapping[str, Any]:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
    return (await kube.create(kind, body)).get("status") or {}
