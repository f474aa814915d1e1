"""Who asks, and what they may: questions that the API server of a Kubernetes cluster answers.

Used by the manager in a cluster, for the REST API, metrics and drivers: bearer tokens by
TokenReview (authentication.k8s.io/v1), rights by SubjectAccessReview (authorization.k8s.io/v1).
Answers are remembered for seconds, as the kubelet does, so that a page that polls asks rarely; a
right that is taken away holds on for so long. Only digests of tokens are kept.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from kilnwork.api import manager, meta, resource
from kilnwork.kit import clock
from kilnwork.kube import client, errors
from kilnwork.server import ports

REMEMBER_S = 10.0
"""How long a yes holds."""

REFUSE_S = 2.0
"""How long a no holds: somebody who has just been given a right tries again at once."""

REMEMBERED = 4096
"""Answers kept; the oldest go first."""

V = TypeVar("V")


class User(msgspec.Struct, frozen=True, kw_only=True):
    """authentication.k8s.io/v1 UserInfo."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Answers(Generic[V]):
    """Answers by question, each with the moment until which it holds."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._known: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    async def get(
        self, key: Hashable, ask: Callable[[], Awaitable[V]], *, good: Callable[[V], bool]
    ) -> V:
        """What is remembered, else what `ask` gives."""
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is not None and now < known[0]:
            return known[1]
        answer = await ask()
        holds_s = REMEMBER_S if good(answer) else REFUSE_S
        self._known[key] = (self._clock.monotonic() + holds_s, answer)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return answer


class Reviews:
    """`ports.Rights`, and users by their tokens, as the API server of `kube` sees them."""

    def __init__(self, kube: client.Client, *, time: clock.Clock) -> None:
        self._kube = kube
        self._users: _Answers[User | None] = _Answers(time)
        self._refusals: _Answers[str | None] = _Answers(time)

    async def user(self, token: str) -> User | None:
        """Whose token it is, None when the API server does not know it. Raises KubeError."""
        digest = hashlib.sha256(token.encode()).digest()
        return await self._users.get(digest, lambda: self._review(token), good=bool)

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        """None when `user`, one of ours, may do it; else Kubernetes' own text. Raises KubeError."""
        asked: User = user
        key = (asked.username, asked.uid, asked.groups, _pairs(asked.extra), question)
        return await self._refusals.get(
            key, lambda: self._ask(asked, question), good=lambda refused: refused is None
        )

    async def _review(self, token: str) -> User | None:
        """Tokens for the API server, and those that are for us alone."""
        for more in ({}, {"audiences": [manager.AUDIENCE]}):
            review = await self._create(resource.TOKEN_REVIEWS, {"token": token, **more})
            status = review.get("status") or {}
            if status.get("authenticated"):
                return msgspec.convert(status.get("user") or {}, User)
        return None

    async def _ask(self, user: User, question: ports.Question) -> str | None:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": {
                "group": resource.TASKS.group,
                "version": resource.TASKS.version,
                "resource": resource.TASKS.plural,
                "subresource": question.subresource,
                "verb": question.verb,
                "namespace": question.namespace,
                "name": question.name,
            },
        }
        review = await self._create(resource.SUBJECT_ACCESS_REVIEWS, spec)
        status = review.get("status") or {}
        return None if status.get("allowed") else refusal_text(user.username, question)

    async def _create(self, kind: resource.Resource, spec: meta.JsonObject) -> meta.JsonObject:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        try:
            return await self._kube.create(kind, body)
        except errors.Forbidden as error:
            # Not the caller's fault: what the manager lacks must not look like what they lack.
            raise errors.Unavailable(
                503, "ServiceUnavailable", f"the manager may not ask: {error}"
            ) from error


def refusal_text(user: str, question: ports.Question) -> str:
    """The message of a 403, as k8s.io/apiserver words it (handlers/responsewriters/errors.go)."""
    tasks = resource.TASKS
    what = f'{tasks.qualified} "{question.name}"' if question.name else tasks.qualified
    whole = f"{tasks.plural}/{question.subresource}" if question.subresource else tasks.plural
    return (
        f'{what} is forbidden: User "{user}" cannot {question.verb} resource "{whole}" '
        f'in API group "{tasks.group}" in the namespace "{question.namespace}"'
    )


def _pairs(extra: dict[str, tuple[str, ...]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted(extra.items()))
