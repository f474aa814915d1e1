"""Who may use the kubelet's paths: client certificates, bearer tokens, and rights on the Node.

Used by `kubelet.App` for every request. Rules and texts are the kubelet's (k8s.io/kubernetes
pkg/kubelet/server/auth.go and InstallAuthFilter, 1.33): a client certificate of the CA or a token
that the API server knows, and the right to `nodes/proxy` (or the finer subresource of a path) of
this Node. There are no anonymous requests. What the API server says is remembered as long as the
kubelet does (authentication and authorization webhook defaults).
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kilnwork.api import meta, resource
from kilnwork.kit import clock, serving
from kilnwork.kube import client, errors

log = logging.getLogger(__name__)

TOKEN_S = 120.0
"""How long a token stays known."""

YES_S, NO_S = 300.0, 30.0
"""How long a right, and the lack of one, stay known."""

REMEMBERED = 1024
SUPERUSERS = "system:masters"
"""The group that every Kubernetes API server allows everything, so it need not be asked."""

_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FINER = {
    "pods": ("pods", "proxy"),
    "runningpods": ("pods", "proxy"),
    "healthz": ("healthz", "proxy"),
    "configz": ("configz", "proxy"),
    "stats": ("stats",),
    "metrics": ("metrics",),
    "logs": ("log",),
    "checkpoint": ("checkpoint",),
}
"""Subresources of nodes for paths by their first part; for all others `proxy`."""

V = TypeVar("V")


class User(NamedTuple):
    """authentication.k8s.io/v1 UserInfo; `extra` as pairs."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Refusal(NamedTuple):
    """Why a request is not answered: an HTTP status and the kubelet's text."""

    status: int
    message: str


UNAUTHORIZED = Refusal(401, "Unauthorized")


class Reviewer(Protocol):
    """Who knows tokens and rights. Both raise KubeError when they cannot be asked."""

    async def user(self, token: str) -> User | None:
        """Whose token it is; None when it is not known."""
        ...

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        """Whether `user` may do this with the Node."""
        ...


class Access:
    """The rules for one Node."""

    def __init__(self, reviewer: Reviewer) -> None:
        self._reviewer = reviewer

    async def refusal(self, scope: serving.Scope, parts: Sequence[str]) -> Refusal | None:
        """None when the request may be answered; `parts` are those of its path."""
        try:
            user = await self._authenticate(scope)
        except errors.KubeError as error:
            log.warning("token could not be reviewed", extra={"error": str(error)})
            return UNAUTHORIZED
        if user is None:
            return UNAUTHORIZED
        if SUPERUSERS in user.groups:
            return None
        verb, subresources = _VERBS.get(scope["method"], ""), _FINER.get(parts[0], ("proxy",))
        for subresource in subresources:
            try:
                if await self._reviewer.allows(user, verb, subresource):
                    return None
            except errors.KubeError as error:
                log.warning("right could not be reviewed", extra={"error": str(error)})
                what = f"user={user.name}, verb={verb}, resource=nodes, subresource={subresource}"
                return Refusal(500, f"Authorization error ({what})")
        named = " ".join(subresources)
        what = f"user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{named}]"
        return Refusal(403, f"Forbidden ({what})\n")

    async def _authenticate(self, scope: serving.Scope) -> User | None:
        shown = (scope.get("state") or {}).get("peer_certificate")
        if shown and (user := certified(shown)).name:
            return user
        token = _bearer(scope["headers"])
        return await self._reviewer.user(token) if token else None


def certified(shown: Mapping[str, Any]) -> User:
    """The user of a client certificate (as `ssl.getpeercert` gives it): common name and
    organisations.
    """
    pairs = [pair for part in shown.get("subject") or () for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return User(names[0] if names else "", (*groups, "system:authenticated"))


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        kind, _, token = value.partition(b" ")
        if name == b"authorization" and kind.lower() == b"bearer":
            return token.strip().decode("latin-1")
    return ""


class Reviews:
    """`Reviewer` that asks the API server (TokenReview, SubjectAccessReview)."""

    def __init__(self, kube: client.Client, node: str, *, now: clock.Clock) -> None:
        self._kube = kube
        self._node = node
        self._users: _Known[User | None] = _Known(now)
        self._rights: _Known[bool] = _Known(now)

    async def user(self, token: str) -> User | None:
        """Whose token it is; only its digest is remembered, and only if it is known."""
        digest = hashlib.sha256(token.encode()).digest()

        async def ask() -> tuple[User | None, float]:
            status = await self._review(resource.TOKEN_REVIEWS, {"token": token})
            if not status.get("authenticated"):
                return None, 0.0
            return _user(status.get("user") or {}), TOKEN_S

        return await self._users.get(digest, ask)

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        """Whether `user` may do this with the Node."""

        async def ask() -> tuple[bool, float]:
            wanted = {
                "version": "v1",
                "resource": resource.NODES.plural,
                "name": self._node,
                "verb": verb,
                "subresource": subresource,
            }
            who = {"user": user.name, "groups": user.groups, "uid": user.uid}
            spec = {**who, "extra": dict(user.extra), "resourceAttributes": wanted}
            status = await self._review(resource.SUBJECT_ACCESS_REVIEWS, spec)
            allowed = bool(status.get("allowed"))
            return allowed, YES_S if allowed else NO_S

        return await self._rights.get((user, verb, subresource), ask)

    async def _review(self, kind: resource.Resource, spec: meta.JsonObject) -> Mapping[str, Any]:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        return (await self._kube.create(kind, body)).get("status") or {}


def _user(info: Mapping[str, Any]) -> User:
    extra = ((key, tuple(values)) for key, values in sorted((info.get("extra") or {}).items()))
    groups = tuple(info.get("groups") or ())
    return User(str(info.get("username")), groups, str(info.get("uid") or ""), tuple(extra))


class _Known(Generic[V]):
    """Answers by question, each for its time."""

    def __init__(self, now: clock.Clock) -> None:
        self._now = now
        self._answers: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        known = self._answers.get(key)
        if known is not None and self._now.monotonic() < known[0]:
            return known[1]
        answer, seconds = await ask()
        self._answers[key] = (self._now.monotonic() + seconds, answer)
        self._answers.move_to_end(key)
        while len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        return answer
