"""Authentication and authorization of the kubelet API: client certificates, tokens, and RBAC.

Used by `kubelet_api.KubeletApp` for every request. Rules and messages are the kubelet's
(k8s.io/kubernetes pkg/kubelet/server/auth.go and InstallAuthFilter, 1.33). A client needs a client
certificate of the CA or a token that the API server accepts, and permission for `nodes/proxy` (or
the finer subresource of a path) on this Node. There are no anonymous requests. Responses of the API
server are cached as long as by the kubelet (authentication and authorization webhook defaults).
"""

import logging
from typing import Protocol

from kilnwork.api import api_resources
from kilnwork.kit import asgi, clock
from kilnwork.kube import client, errors, reviews

log = logging.getLogger(__name__)

TOKEN_S = 120.0
"""Seconds for which the user of a token is cached."""

ALLOWED_S, DENIED_S = 300.0, 30.0
"""Seconds for which an allowed and a denied permission are cached."""

SUPERUSERS = "system:masters"
"""The group that may do everything on every Kubernetes API server, so no review is needed."""

_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES = {
    "pods": ("pods", "proxy"),
    "runningpods": ("pods", "proxy"),
    "healthz": ("healthz", "proxy"),
    "configz": ("configz", "proxy"),
    "stats": ("stats",),
    "metrics": ("metrics",),
    "logs": ("log",),
    "checkpoint": ("checkpoint",),
}
"""First part of a path → subresources of nodes, any of which permits the path. All other paths need
`proxy`."""


UNAUTHORIZED = asgi.Refusal(401, "Unauthorized", ((b"www-authenticate", b"Bearer"),))


class AccessReviewer(Protocol):
    """Port that verifies tokens and permissions.

    Both methods raise KubeError if the API server cannot decide.
    """

    async def user(self, token: str) -> reviews.User | None:
        """Return the user of a token, or None if the token is not valid."""
        ...

    async def allows(self, user: reviews.User, verb: str, subresource: str) -> bool:
        """Return whether `user` may use `verb` on `subresource` of the Node."""
        ...


class NodeAccess:
    """Rules of access to the kubelet API of one Node."""

    def __init__(self, reviewer: AccessReviewer) -> None:
        self._reviewer = reviewer

    async def refusal(self, request: asgi.Request) -> asgi.Refusal | None:
        """Return the error response for a request that is not allowed, or None."""
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
        subresources = _SUBRESOURCES.get(request.segments[0], ("proxy",))
        # The finer permission comes first; nodes/proxy still covers it (KEP-2862).
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


class ApiAccessReviewer:
    """`AccessReviewer` that asks the API server (`kube.reviews`) and caches its decisions.

    Invalid tokens are not cached.
    """

    def __init__(self, kube: client.Client, node: str, *, now: clock.Clock) -> None:
        self._kube = kube
        self._node = node
        self._users: reviews.Remembered[reviews.User | None] = reviews.Remembered(now)
        self._rights: reviews.Remembered[bool] = reviews.Remembered(now)

    async def user(self, token: str) -> reviews.User | None:
        async def ask() -> tuple[reviews.User | None, float]:
            user = await reviews.user_of(self._kube, token)
            return user, 0.0 if user is None else TOKEN_S

        return await self._users.get(reviews.digest(token), ask)

    async def allows(self, user: reviews.User, verb: str, subresource: str) -> bool:
        """Return whether `user` may use `verb` on `subresource` of the Node."""
        attributes = {
            "version": "v1",
            "resource": api_resources.NODES.plural,
            "name": self._node,
            "verb": verb,
            "subresource": subresource,
        }

        async def ask() -> tuple[bool, float]:
            allowed = await reviews.allows(self._kube, user, attributes)
            return allowed, ALLOWED_S if allowed else DENIED_S

        return await self._rights.get((user, verb, subresource), ask)
