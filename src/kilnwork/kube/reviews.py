"""Whose token it is and what somebody may do: questions that the API server answers.

Used by the manager (`server.reviews`) and the node (`controlplane.node.access`), which say how long
an answer holds: TokenReview (authentication.k8s.io/v1) and SubjectAccessReview
(authorization.k8s.io/v1). Tokens are asked about, never kept.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kilnwork.api import meta, resource
from kilnwork.kit import clock
from kilnwork.kube import client

REMEMBERED = 4096
"""Answers kept; those that were asked for longest ago go first."""

V = TypeVar("V")


class User(NamedTuple):
    """authentication.k8s.io/v1 UserInfo; `extra` as sorted pairs."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Remembered(Generic[V]):
    """Answers by question, each for its time."""

    def __init__(self, now: clock.Clock) -> None:
        self._now = now
        self._answers: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """What is remembered, else what `ask` gives: an answer, and how many seconds it holds."""
        known = self._answers.get(key)
        if known is not None and self._now.monotonic() < known[0]:
            return known[1]
        answer, holds_s = await ask()
        self._answers[key] = (self._now.monotonic() + holds_s, answer)
        self._answers.move_to_end(key)
        while len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        return answer


def digest(token: str) -> bytes:
    """What to remember an answer about a token by, since the token itself is a secret."""
    return hashlib.sha256(token.encode()).digest()


async def user_of(kube: client.Client, token: str, *, audiences: Sequence[str] = ()) -> User | None:
    """Whose token it is, None when it is not known. Raises KubeError.

    `audiences`: whom it must be for; the API server itself unless named.
    """
    spec: meta.JsonObject = {"token": token, **({"audiences": audiences} if audiences else {})}
    status = await _status(kube, resource.TOKEN_REVIEWS, spec)
    if not status.get("authenticated"):
        return None
    info = status.get("user") or {}
    extra = ((key, tuple(values)) for key, values in sorted((info.get("extra") or {}).items()))
    groups = tuple(info.get("groups") or ())
    return User(str(info.get("username") or ""), groups, str(info.get("uid") or ""), tuple(extra))


async def allows(kube: client.Client, user: User, attributes: meta.JsonObject) -> bool:
    """Whether `user` may do it; `attributes` are ResourceAttributes. Raises KubeError."""
    who = {"user": user.name, "groups": user.groups, "uid": user.uid, "extra": dict(user.extra)}
    spec = {**who, "resourceAttributes": attributes}
    status = await _status(kube, resource.SUBJECT_ACCESS_REVIEWS, spec)
    return bool(status.get("allowed"))


async def _status(
    kube: client.Client, kind: resource.Resource, spec: meta.JsonObject
) -> Mapping[str, Any]:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
    return (await kube.create(kind, body)).get("status") or {}
