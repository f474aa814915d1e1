"""Paths that need no credential, and what is authorized."""

import types
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.apiserver import app, authn, requests
from kilnwork.kit import asgi
from support import served_kinds


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


def parse(query: str, method: str = "GET") -> requests.ApiRequest:
    def find(group: str, version: str, plural: str) -> Any:
        served = served_kinds.find(group, version, plural)
        return None if served is None else served.resource

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": method,
        "path": "/api/v1/namespaces/a/configmaps",
        "query_string": query.encode(),
        "headers": [],
    }
    return requests.parse(asgi.Request(scope, receive), user=authn.ADMIN, find=find)


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("metadata.name%3Dweb", "web"),
        ("metadata.name%3D%3Dweb", "web"),
        ("metadata.name%3Dweb,metadata.namespace%3Da", "web"),
        ("metadata.name%3D", ""),
        ("metadata.name!%3Dweb", ""),
        ("metadata.namespace%3Da", ""),
        ("metadata.name%3D%3D%3Dweb", ""),
        ("", ""),
    ],
)
def test_list_of_one_name_is_authorized_for_that_name(selector: str, name: str) -> None:
    assert app._attributes(parse(f"fieldSelector={selector}")).name == name


def test_field_selector_of_a_create_names_nothing() -> None:
    request = parse("fieldSelector=metadata.name%3Dweb", "POST")
    assert app._attributes(request).name == ""
