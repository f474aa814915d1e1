"""Authentication and authorization by the API server of a Kubernetes cluster, over HTTP.

Used by the manager in a cluster, for the REST API, metrics and drivers. The reviews, and the limit
on concurrent ones, are in `kube.reviews`. Results are cached for seconds, so that a polling page
costs few of them; a revoked right stays valid for that long.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kilnwork.api import kinds, manager_access
from kilnwork.kit import asgi, clock
from kilnwork.kube import client, errors
from kilnwork.kube import reviews as kube_reviews
from kilnwork.server import guard, ports

REMEMBER_S = 10.0
"""How long an allowed decision is cached."""

REFUSE_S = 2.0
"""How long a refusal is cached: a user who was just given a right retries at once."""

UNKNOWN_S = 5.0
"""How long an invalid token is cached as invalid: it hardly ever becomes valid."""


class Reviews:
    """Implementation of `ports.Access` by TokenReview and SubjectAccessReview of a cluster's API
    server.
    """

    def __init__(self, kube: client.Client, *, time: clock.Clock) -> None:
        self._kube = kube
        self._users: kube_reviews.Remembered[kube_reviews.User | None]
        self._users = kube_reviews.Remembered(time)
        self._rights: kube_reviews.Remembered[bool] = kube_reviews.Remembered(time)

    async def authenticate(self, request: asgi.Request) -> kube_reviews.User | None:
        """Return the user of a request's token, or None without a valid one. Raises KubeError."""
        token = guard.token_of(request)
        return await self.token_user(token) if token else None

    async def token_user(
        self, token: str, *, audience: str | None = None
    ) -> kube_reviews.User | None:
        """Return the user of a token, as `ports.Access.token_user`."""
        tried = ((), (manager_access.AUDIENCE,)) if audience is None else ((audience,),)

        async def ask() -> tuple[kube_reviews.User | None, float]:
            for audiences in tried:
                with _report_missing_rights():
                    found = await kube_reviews.user_of(self._kube, token, audiences=audiences)
                if found is not None:
                    return found, REMEMBER_S
            return None, UNKNOWN_S

        return await self._users.get((kube_reviews.digest(token), audience), ask)

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        """Return why `user` is not allowed to do something, in the words of Kubernetes, or None if
        it is allowed. Raises KubeError.
        """
        asked: kube_reviews.User = user

        async def ask() -> tuple[bool, float]:
            with _report_missing_rights():
                allowed = await kube_reviews.allows(self._kube, asked, _attributes(question))
            return allowed, REMEMBER_S if allowed else REFUSE_S

        allowed = await self._rights.get((asked, question), ask)
        return None if allowed else refusal_text(asked.name, question)


@contextmanager
def _report_missing_rights() -> Iterator[None]:
    """Convert errors about missing rights of the manager itself to 503, so that they do not look
    like missing rights of the caller.
    """
    try:
        yield
    except errors.Forbidden as error:
        text = f"the manager may not ask: {error}"
        raise errors.Unavailable(503, "ServiceUnavailable", text) from error


def _attributes(question: ports.Question) -> dict[str, str]:
    return {
        "group": kinds.GROUP,
        "version": kinds.VERSION,
        "resource": question.resource,
        "subresource": question.subresource,
        "verb": question.verb,
        "namespace": question.namespace,
        "name": question.name,
    }


def refusal_text(user: str, question: ports.Question) -> str:
    """Return the message of a 403 in the wording of k8s.io/apiserver
    (handlers/responsewriters/errors.go)."""
    plural = question.resource
    qualified = f"{plural}.{kinds.GROUP}"
    what = f'{qualified} "{question.name}"' if question.name else qualified
    whole = f"{plural}/{question.subresource}" if question.subresource else plural
    namespace = question.namespace
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    return (
        f'{what} is forbidden: User "{user}" cannot {question.verb} resource "{whole}" '
        f'in API group "{kinds.GROUP}" {where}'
    )
