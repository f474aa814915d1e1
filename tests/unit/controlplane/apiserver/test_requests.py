"""Paths, verbs and queries as Kubernetes reads them."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import authn, requests, statuses
from kilnwork.kit import asgi
from support import served_kinds


def find(group: str, version: str, plural: str) -> api_resources.Resource | None:
    served = served_kinds.find(group, version, plural)
    return None if served is None else served.resource


async def receive_nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def parse(
    method: str, path: str, query: str = "", *, receive: asgi.Receive = receive_nothing
) -> requests.ApiRequest:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [
            (b"Content-Type", b"application/json; charset=utf-8"),
            (b"a", b"1"),
            (b"A", b"2"),
        ],
    }
    return requests.parse(asgi.Request(scope, receive), user=authn.ADMIN, find=find)


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", "", ("list", "pods", "", "", "")),
        ("GET", "/api/v1/pods", "watch=1", ("watch", "pods", "", "", "")),
        ("GET", "/api/v1/pods", "watch=False", ("list", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/a/pods", "watch", ("watch", "pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/p", "", ("get", "pods", "a", "p", "")),
        ("GET", "/api/v1/namespaces/a/pods/p/log", "", ("get", "pods", "a", "p", "log")),
        ("POST", "/api/v1/namespaces/a/pods", "", ("create", "pods", "a", "", "")),
        ("PUT", "/api/v1/namespaces/a/pods/p/status", "", ("update", "pods", "a", "p", "status")),
        ("DELETE", "/api/v1/namespaces/a/pods", "", ("deletecollection", "pods", "a", "", "")),
        ("DELETE", "/api/v1/namespaces/a", "", ("delete", "namespaces", "a", "a", "")),
        (
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "",
            ("update", "namespaces", "a", "a", "finalize"),
        ),
        ("PATCH", "/api/v1/namespaces/a/status", "", ("patch", "namespaces", "a", "a", "status")),
        ("GET", "/api/v1/namespaces", "", ("list", "namespaces", "", "", "")),
        ("GET", "/api/v1/nodes/n", "", ("get", "nodes", "", "n", "")),
        (
            "GET",
            "/apis/kilnwork.dev/v1alpha1/namespaces/a/tasks/t",
            "",
            ("get", "tasks", "a", "t", ""),
        ),
    ],
)
def test_resource_paths_are_parsed(
    method: str, path: str, query: str, expected: tuple[str, ...]
) -> None:
    found = parse(method, path, query)
    assert found.resource is not None
    shown = (found.verb, found.resource.plural, found.namespace, found.name, found.subresource)
    assert shown == expected


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis", "/apis/g/v1", "/version"])
def test_paths_without_resource_are_parsed(path: str) -> None:
    found = parse("GET", path)
    assert (found.resource, found.verb) == (None, "get")


@pytest.mark.parametrize(
    "path", ["/api/v1/things", "/apis/g/v1/pods", "/api/v2/pods", "/api/v1/namespaces/a/nodes"]
)
def test_unknown_resources_are_not_found(path: str) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        parse("GET", path)
    assert caught.value.code == 404


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", False), ("x=0", False), ("x=FALSE", False), ("x", True), ("x=", True), ("x=True", True)],
)
def test_flags_are_parsed_as_in_kubernetes(text: str, expected: bool) -> None:  # noqa: FBT001
    assert requests.Query.parse(text.encode()).flag("x") is expected


def test_headers_and_content_type_are_parsed() -> None:
    found = parse("POST", "/api/v1/namespaces/a/pods")
    assert found.headers["a"] == "1,2"
    assert found.content_type == "application/json"


async def test_body_size_is_limited_with_and_without_length() -> None:
    parts = [b"x" * 60, b"y" * 60]

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    with pytest.raises(statuses.StatusError) as caught:
        await parse("POST", "/api/v1/namespaces/a/pods", receive=receive).body(limit=100)
    assert caught.value.code == 413


async def test_disconnect_during_the_body_is_noticed() -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    with pytest.raises(asgi.Disconnected):
        await parse("POST", "/api/v1/namespaces/a/pods", receive=receive).body(limit=100)


@pytest.mark.parametrize("value", ["1_0", " 5", "٣", "1.5", "0x10", "abc", "9" * 20, "9" * 5000])
def test_only_plain_integers_are_numbers(value: str) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        requests.Query({"limit": value}).number("limit")
    assert caught.value.code == 400
    assert requests.Query({"limit": "-5"}).number("limit") == -5
