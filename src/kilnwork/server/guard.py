"""Guard of the manager: authenticates requests, and routes them to the app that serves the path.

One ASGI app in front of the other apps: directly behind the listener of `kiln manager`, and behind
the API server in `kiln up`. In a cluster the token is in `X-Kiln-Token`, since the API server's
service proxy keeps `Authorization` for itself, or is a bearer token of clients that connect
directly. Apps find the user in `Request.user`, None without a valid credential, and refuse requests
themselves; apps for workers and drivers call `admit_peer`. Requests that are authenticated here and
may change something are logged with the message `audit`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from urllib import parse

from kilnwork.api import attempts, manager_access, task
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import ports as channel_ports
from kilnwork.kit import asgi
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import errors as kube_errors
from kilnwork.server import errors, ports, problems

log = logging.getLogger(__name__)

_TOKEN_HEADER = manager_access.TOKEN_HEADER.lower().encode()
_ATTEMPT_HEADER = manager_access.ATTEMPT_HEADER.lower().encode()
_CLUSTER_HEADER = manager_access.CLUSTER_HEADER.lower().encode()

_HARMLESS = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing and are not audited."""

_USER_HEADER = manager_access.USER_HEADER.lower().encode()
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
"""Key in a user's `extra`: the id of the token, which is in the API server's audit log too
(KEP-4193)."""

_MAX_NAME_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """An app, and the path that it serves, including all paths below."""

    prefix: str
    app: asgi.App
    asks: bool = True
    """Whether requests are authenticated here; otherwise the app authenticates them itself."""


class Guard:
    """ASGI app that authenticates requests and passes each to the first mount whose prefix
    matches.
    """

    def __init__(self, access: ports.Access, mounts: Sequence[Mount]) -> None:
        self._access = access
        self.mounts = tuple(mounts)

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        found = self._mounted(scope["path"])
        if found is None:
            nothing = errors.NotFound(f"nothing is served at {scope['path']}")
            await problems.send(problems.response(send), nothing)
        else:
            await self.serve(found, scope, receive, send)

    async def serve(
        self, mount: Mount, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send
    ) -> None:
        """Authenticate a request, and pass it to the app of a mount; for callers that route by
        themselves.
        """
        request, user = asgi.Request(scope, receive), None
        if mount.asks:
            try:
                user = await self._access.authenticate(request)
            except kube_errors.KubeError as error:
                await problems.send(problems.response(send), problems.from_error(error))
                return
            if request.method not in _HARMLESS and log.isEnabledFor(logging.INFO):
                send = _audited(request, user, send)
        scope[asgi.USER] = user
        await mount.app(scope, receive, send)

    def _mounted(self, path: str) -> Mount | None:
        for mount in self.mounts:
            if path == mount.prefix or path.startswith(mount.prefix + "/"):
                return mount
        return None


def _audited(request: asgi.Request, user: ports.User | None, send: asgi.Send) -> asgi.Send:
    """Return a `send` function that writes a line to the audit log when the status of the request
    is known: which user changed what.

    `claims`: the name that the sender claims behind the token of a shared account; it is not
    verified.
    """

    async def logged(message: asgi.Message) -> None:
        if message["type"] == "http.response.start":
            extra = {} if user is None else dict(user.extra)
            facts = {
                "user": "" if user is None else user.name,
                "claims": _claimed(request),
                "credential": ",".join(extra.get(_CREDENTIAL, ())),
                "method": request.method,
                "path": request.path,
                "status": message["status"],
            }
            log.info("audit", extra={key: value for key, value in facts.items() if value != ""})
        await send(message)

    return logged


def _claimed(request: asgi.Request) -> str:
    name = parse.unquote(request.header(_USER_HEADER) or "")[:_MAX_NAME_LENGTH]
    return name if name.isprintable() else repr(name)[:_MAX_NAME_LENGTH]


class Gate:
    """ASGI app in front of another app that starts later: it sends 503 while `app` is not set.

    The server listens before the dispatcher runs, because other components need the API to start.
    When the dispatcher stops, `app` is cleared again.
    """

    def __init__(self) -> None:
        self.app: asgi.App | None = None

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Pass the request to `app`, or send 503 if it is not set."""
        if self.app is None:
            await problems.send(problems.response(send), errors.NotReady())
        else:
            await self.app(scope, receive, send)


def token_of(request: asgi.Request) -> str:
    """Return the token of a request, or "" if it has none. `X-Kiln-Token` takes precedence over
    `Authorization`.
    """
    return (request.header(_TOKEN_HEADER) or "").strip() or request.bearer_token


async def admit_peer(
    request: asgi.Request, namespace: str, verifier: channel_ports.TokenVerifier
) -> bool:
    """Check that the client may access the namespace, and return True if it is a worker.

    Return False for a driver or the sidecar of an attempt in this namespace, and for an executor.
    An external executor needs its right in this namespace only, any other executor in all
    namespaces. Raises Unauthorized, Forbidden or NotReady for other clients, and BadRequest for a
    malformed header.
    """
    token = token_of(request)
    if not token:
        raise errors.Unauthorized
    cluster = request.header(_CLUSTER_HEADER) or ""
    attempt = _attempt(request)
    try:
        if attempt is not None:
            pod, ref = attempt
            good = await verifier.verify_attempt(ref, namespace, pod, token)
        elif cluster.startswith(manager_access.EXECUTOR_PREFIX):
            executor = cluster.removeprefix(manager_access.EXECUTOR_PREFIX)
            scope = namespace if executor.startswith(task.EXTERNAL) else ""
            good = await verifier.verify_executor(executor, scope, token)
        elif not cluster:
            good = await verifier.verify_driver(namespace, token)
        else:
            of, _, name = cluster.partition("/")
            good = of == namespace and await verifier.verify(of, name, token)
    except channel_errors.LinkRefused as error:
        raise errors.Forbidden(error.message) from error
    except kit_errors.KilnError as error:
        raise errors.NotReady(str(error)) from error
    if not good:
        raise errors.Unauthorized
    is_executor = cluster.startswith(manager_access.EXECUTOR_PREFIX)
    return bool(cluster) and attempt is None and not is_executor


def _attempt(request: asgi.Request) -> tuple[str, attempts.AttemptRef] | None:
    """Return the Pod and the attempt that are named in a sidecar's request, or None for other
    clients. Raises BadRequest.
    """
    text = request.header(_ATTEMPT_HEADER)
    if text is None:
        return None
    pod, _, ref = text.partition(" ")
    try:
        return pod, attempts.AttemptRef.parse(ref)
    except ValueError as error:
        raise errors.BadRequest(
            f"{manager_access.ATTEMPT_HEADER} is {text!r}; it must be POD ID/RUN/ATTEMPT"
        ) from error
