"""Health checks: `/healthz`, `/livez` and `/readyz`, open to all clients, in the format of
Kubernetes.

`/readyz` responds with 200 only if every check passes: then all parts of the server are ready.
"""

from collections.abc import Callable, Mapping

from kilnwork.kit import asgi
from kilnwork.server import problems

Checks = Callable[[], Mapping[str, str | None]]
"""Returns by name of each component: None if it is ready, else what it waits for."""

PATHS = ("/healthz", "/livez", "/readyz")


def app(checks: Checks) -> asgi.App:
    """Return the ASGI app of the three health paths; `?verbose` lists the checks."""

    async def serve(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request, response = asgi.Request(scope, receive), problems.response(send)
        found = checks() if request.path.startswith("/readyz") else {"ping": None}
        failed = [name for name, wants in found.items() if wants is not None]
        if not failed and "verbose" not in request.query:
            await response.text(200, "ok")
            return
        lines = [_line(name, wants) for name, wants in found.items()]
        endpoint = request.path.strip("/").partition("/")[0]
        lines.append(f"{endpoint} check {'failed' if failed else 'passed'}\n")
        await response.text(503 if failed else 200, "\n".join(lines))

    return serve


def _line(name: str, wants: str | None) -> str:
    return f"[+]{name} ok" if wants is None else f"[-]{name} not ready: {wants}"
