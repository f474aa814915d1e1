"""The front of the manager: which app answers a path, and who asks.

An ASGI app over others, for a manager that stands by itself; in `kiln up` the API server does the
same. The token comes in `X-Kiln-Token`, since the API server's service proxy keeps `Authorization`
for itself, or as a bearer token from those who connect directly. Apps find the user in
`scope["kiln.user"]`, None for nobody, and refuse by themselves. Each request that would change
something leaves a line `audit` in the log.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib import parse

from kilnwork.api import manager
from kilnwork.kube import errors as kube_errors
from kilnwork.kube import reviews as kube_reviews
from kilnwork.server import asgi, errors

log = logging.getLogger(__name__)

_TOKEN_HEADER = manager.TOKEN_HEADER.lower().encode()
_BEARER = b"bearer "


_HARMLESS = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, and have no audit line."""

_USER_HEADER = manager.USER_HEADER.lower().encode()
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
"""Of a user's `extra`: the id of the token, which the API server's audit log has too (KEP-4193)."""

_MAX_NAME_LENGTH = 256


class Authenticator(Protocol):
    """Who has a token."""

    async def user(self, token: str) -> kube_reviews.User | None:
        """The user, None when the token is not known. Raises KubeError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """An app and the path it is found under. `asks`: whether it wants to know who asks."""

    prefix: str
    app: asgi.App
    asks: bool = True


class Guard:
    """The app. The first mount whose prefix fits answers."""

    def __init__(self, people: Authenticator, mounts: Sequence[Mount]) -> None:
        self._people = people
        self._mounts = tuple(mounts)

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        if scope["type"] != "http":
            return
        found = self._mounted(scope["path"])
        if found is None:
            await asgi.problem(send, errors.NotFound(f"nothing is served at {scope['path']}"))
            return
        try:
            scope["kiln.user"] = user = await self._user(scope) if found.asks else None
            if found.asks and scope["method"] not in _HARMLESS:
                send = _audited(scope, user, send)
            await found.app(scope, receive, send)
        except kube_errors.KubeError as error:
            await asgi.problem(send, errors.NotReady(f"the API server does not say: {error}"))

    def _mounted(self, path: str) -> Mount | None:
        for mount in self._mounts:
            if path == mount.prefix or path.startswith(mount.prefix + "/"):
                return mount
        return None

    async def _user(self, scope: asgi.Scope) -> kube_reviews.User | None:
        token = shown_token(scope)
        return await self._people.user(token) if token else None


def _audited(scope: asgi.Scope, user: kube_reviews.User | None, send: asgi.Send) -> asgi.Send:
    """Log one line for the request, once its status is known: who changes what.

    `claims`: who says to be behind the token of an account that many use; nobody has checked it.
    """

    async def logged(message: asgi.Message) -> None:
        if message["type"] == "http.response.start":
            extra = {} if user is None else dict(user.extra)
            facts = {
                "user": "" if user is None else user.name,
                "claims": _claimed(scope),
                "credential": ",".join(extra.get(_CREDENTIAL, ())),
                "method": scope["method"],
                "path": scope["path"],
                "status": message["status"],
            }
            log.info("audit", extra={key: value for key, value in facts.items() if value != ""})
        await send(message)

    return logged


def _claimed(scope: asgi.Scope) -> str:
    said: bytes = dict(scope["headers"]).get(_USER_HEADER, b"")
    name = parse.unquote(said.decode("latin-1"))[:_MAX_NAME_LENGTH]
    return name if name.isprintable() else repr(name)[:_MAX_NAME_LENGTH]


def shown_token(scope: asgi.Scope) -> str:
    """The token of a request, "" without one; that for the manager wins."""
    headers = dict(reversed(scope["headers"]))
    token: bytes = headers.get(_TOKEN_HEADER, b"")
    if not token:
        authorization: bytes = headers.get(b"authorization", b"")
        if authorization[: len(_BEARER)].lower() == _BEARER:
            token = authorization[len(_BEARER) :]
    return token.strip().decode("latin-1")
