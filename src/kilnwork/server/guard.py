"""The front of the manager: which app serves a path, and for whom.

One ASGI app over the others: by itself behind the listener of `kiln manager`, behind the API server
in `kiln up`. In a cluster the token comes in `X-Kiln-Token`, since the API server's service proxy
keeps `Authorization` for itself, or as a bearer token from those who connect directly. Apps find
the user in `scope["kiln.user"]`, None without a good credential, and refuse by themselves. Each
request that would change something leaves a line `audit` in the log.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from urllib import parse

from kilnwork.api import manager
from kilnwork.kube import errors as kube_errors
from kilnwork.server import asgi, errors, ports

log = logging.getLogger(__name__)

_TOKEN_HEADER = manager.TOKEN_HEADER.lower().encode()
_BEARER = b"bearer "


_HARMLESS = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, and have no audit line."""

_USER_HEADER = manager.USER_HEADER.lower().encode()
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
"""Of a user's `extra`: the id of the token, which the API server's audit log has too (KEP-4193)."""

_MAX_NAME_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """An app and the path that it serves, with all below."""

    prefix: str
    app: asgi.App
    asks: bool = True
    """Whether requests are authenticated; without, the app checks by itself who comes."""


class Guard:
    """The app. The first mount whose prefix fits serves a request."""

    def __init__(self, access: ports.Access, mounts: Sequence[Mount]) -> None:
        self._access = access
        self.mounts = tuple(mounts)

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        if scope["type"] != "http":
            return
        found = self._mounted(scope["path"])
        if found is None:
            await asgi.problem(send, errors.NotFound(f"nothing is served at {scope['path']}"))
        else:
            await self.serve(found, scope, receive, send)

    async def serve(
        self, mount: Mount, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send
    ) -> None:
        """Serve one request for a mount, for callers that route by themselves."""
        try:
            user = await self._access.authenticate(scope) if mount.asks else None
            scope["kiln.user"] = user
            if mount.asks and scope["method"] not in _HARMLESS and log.isEnabledFor(logging.INFO):
                send = _audited(scope, user, send)
            await mount.app(scope, receive, send)
        except kube_errors.KubeError as error:
            await asgi.problem(send, errors.NotReady(f"the API server does not say: {error}"))

    def _mounted(self, path: str) -> Mount | None:
        for mount in self.mounts:
            if path == mount.prefix or path.startswith(mount.prefix + "/"):
                return mount
        return None


def _audited(scope: asgi.Scope, user: ports.User | None, send: asgi.Send) -> asgi.Send:
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
