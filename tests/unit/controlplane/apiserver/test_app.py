"""Paths that need no credential."""

import types
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.apiserver import app, authn
from kilnwork.kit import asgi


async def get(path: str) -> tuple[int, bytes]:
    """Return the response to a request without a credential."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def authenticate(_: asgi.Request) -> authn.User | None:
        return None

    parts = types.SimpleNamespace(
        authenticator=types.SimpleNamespace(authenticate=authenticate), authorizer=None
    )
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    await app.build(parts, kubernetes=False)(scope, receive, send)  # type: ignore[arg-type]
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_paths_need_no_credential(path: str) -> None:
    assert await get(path) == (200, b"ok")


@pytest.mark.parametrize("path", ["/version", "/version/"])
async def test_version_needs_no_credential(path: str) -> None:
    status, body = await get(path)
    assert status == 200
    assert msgspec.json.decode(body)["major"] == "1"


@pytest.mark.parametrize("path", ["/version/x", "/version//", "/healthz/x", "/versions", "/"])
async def test_other_paths_need_a_credential(path: str) -> None:
    assert (await get(path))[0] == 401
