"""Health and readiness in the format of Kubernetes."""

from typing import Any

from kilnwork.kit import asgi
from kilnwork.server import health


async def get(app: asgi.App, path: str, query: str = "") -> tuple[int, str]:
    sent: list[Any] = []

    async def send(message: asgi.Message) -> None:
        sent.append(message)

    async def receive() -> asgi.Message:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode()}
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"].decode()


async def test_readyz_succeeds_only_if_every_check_passes() -> None:
    checks: dict[str, str | None] = {"store": None, "node": "is starting"}
    app = health.app(lambda: checks)
    assert await get(app, "/readyz") == (
        503,
        "[+]store ok\n[-]node not ready: is starting\nreadyz check failed\n",
    )
    assert await get(app, "/livez") == (200, "ok")
    checks["node"] = None
    assert await get(app, "/readyz") == (200, "ok")
    assert (await get(app, "/readyz", "verbose"))[1].endswith("readyz check passed\n")
