"""Who may use the kubelet's paths: client certificates, bearer tokens, and rights on the Node.

Used by `kubelet.KubeletApp` for every request. Rules and texts are the kubelet's (k8s.io/kubernetes
pkg/kubelet/server/auth.go and InstallAuthFilter, 1.33): a client certificate of the CA or a token
that the API server knows, and the right to `nodes/proxy` (or the finer subresource of a path) of
this Node. There are no anonymous requests. What the API server says is remembered as long as the
kubelet does (authentication and authorization webhook defaults).
"""

import logging
from typing import Protocol

from kilnwork.api import resource
from kilnwork.kit import asgi, clock
from kilnwork.kube import client, errors, reviews

log = logging.getLogger(__name__)

TOKEN_S = 120.0
"""How long a token stays known."""

YES_S, NO_S = 300.0, 30.0
"""How long a right, and the lack of one, stay known."""

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


UNAUTHORIZED = asgi.Refusal(401, "Unauthorized", ((b"www-authenticate", b"Bearer"),))


class AccessReviewer(Protocol):
    """Who knows tokens and rights. Both raise KubeError when they cannot be asked."""

    async def user(self, token: str) -> reviews.User | None:
        """Whose token it is; None when it is not known."""
        ...

    async def allows(self, user: reviews.User, verb: str, subresource: str) -> bool:
        """Whether `user` may do this with the Node."""
        ...


class Access:
    """The rules for one Node."""

    def __init__(self, reviewer: AccessReviewer) -> None:
        self._reviewer = reviewer

    async def refusal(self, request: asgi.Request) -> asgi.Refusal | None:
        """Return why the client may not send the request, None if they may."""
        try:
            user = await self._authenticate(request)
        except errors.KubeError as error:
            log.warning("token could not be reviewed", extra={"error": str(error)})
            return UNAUTHORIZED
        if user is None:
            return UNAUTHORIZED
        if SUPERUSERS in user.groups:
            return None
        verb = _VERBS.get(request.method, "")
        subresources = _FINER.get(request.segments[0], ("proxy",))
        for subresource in subresources:
            try:
                if await self._reviewer.allows(user, verb, subresource):
                    return None
            except errors.KubeError as error:
                log.warning("right could not be reviewed", extra={"error": str(error)})
                what = f"user={user.name}, verb={verb}, resource=nodes, subresource={subresource}"
                return asgi.Refusal(500, f"Authorization error ({what})")
        named = " ".join(subresources)
        what = f"user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{named}]"
        return asgi.Refusal(403, f"Forbidden ({what})\n")

    async def _authenticate(self, request: asgi.Request) -> reviews.User | None:
        subject = request.client_subject
        if subject is not None:
            name, organizations = subject
            return reviews.User(name, (*organizations, "system:authenticated"))
        token = request.bearer_token
        return await self._reviewer.user(token) if token else None


class Reviews:
    """`AccessReviewer` that asks the API server (`kube.reviews`). An unknown token is not
    remembered."""

    def __init__(self, kube: client.Client, node: str, *, now: clock.Clock) -> None:
        self._kube = kube
        self._node = node
        self._users: reviews.Remembered[reviews.User | None] = reviews.Remembered(now)
        self._rights: reviews.Remembered[bool] = reviews.Remembered(now)

    async def user(self, token: str) -> reviews.User | None:
        async def ask() -> tuple[reviews.User | None, float]:
            found = await reviews.user_of(self._kube, token)
            return found, 0.0 if found is None else TOKEN_S

        return await self._users.get(reviews.digest(token), ask)

    async def allows(self, user: reviews.User, verb: str, subresource: str) -> bool:
        """Whether `user` may do this with the Node."""
        attributes = {
            "version": "v1",
            "resource": resource.NODES.plural,
            "name": self._node,
            "verb": verb,
            "subresource": subresource,
        }

        async def ask() -> tuple[bool, float]:
            allowed = await reviews.allows(self._kube, user, attributes)
            return allowed, YES_S if allowed else NO_S

        return await self._rights.get((user, verb, subresource), ask)
