"""Requests of the Jobs API, and the methods of a path."""

import enum
from collections.abc import Callable

import pytest

from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import http_resource_base


class _Color(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


async def _no_body() -> asgi.Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _scope(query: bytes = b"", method: str = "GET") -> asgi.Scope:
    return {
        "type": "http",
        "method": method,
        "path": "/jobs",
        "query_string": query,
        "headers": [],
        "path_params": {"id": "a"},
    }


def _request(query: bytes = b"") -> http_resource_base.JobRequest:
    return http_resource_base.JobRequest(_scope(query), _no_body)


@pytest.mark.parametrize(
    ("query", "namespace"),
    [(b"", "default"), (b"limit=1", "default"), (b"namespace=team-a", "team-a")],
)
def test_namespace_is_default_unless_given(query: bytes, namespace: str) -> None:
    assert _request(query).namespace == namespace


@pytest.mark.parametrize(
    ("query", "read", "message"),
    [
        (b"namespace=A", lambda given: given.namespace, "namespace='A'"),
        (b"a=1&b=2&a=1", lambda given: given.query, "parameter 'a' comes more than once"),
        (b"a=&a=", lambda given: given.query, "parameter 'a' comes more than once"),
        (b"a=", lambda given: given.text("a"), "a=: give a value, or leave it out"),
        (b"a=", lambda given: given.flag("a"), "a=: give a value, or leave it out"),
        (b"a=", lambda given: given.number("a", least=0, most=9), "a=: give a value"),
        (b"a=green", lambda given: given.choice("a", _Color), "a=green: known are red, blue"),
        (b"a=1&b=2", lambda given: given.check_known("a"), "'b': known here are namespace, a"),
    ],
)
def test_invalid_parameter_is_refused_by_name(
    query: bytes, read: Callable[[http_resource_base.JobRequest], object], message: str
) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        read(_request(query))
    assert message in str(caught.value)


def test_parameter_is_parsed_as_its_type() -> None:
    found = _request(b"n=7&t=x&f=true&w=blue&namespace=a")
    assert found.number("n", least=7, most=7) == 7
    assert found.text("t") == "x"
    assert found.flag("f") is True
    assert found.choice("w", _Color) is _Color.BLUE
    found.check_known("n", "t", "f", "w")


def test_missing_parameter_has_no_value() -> None:
    found = _request()
    assert found.number("n", least=1, most=2) is None
    assert found.text("t") is None
    assert found.flag("f") is False
    assert found.choice("w", _Color) is None


async def _sent(method: str) -> tuple[int, dict[bytes, bytes], bytes]:
    messages: list[asgi.Message] = []

    async def send(message: asgi.Message) -> None:
        messages.append(message)

    async def show(request: http_resource_base.JobRequest, response: asgi.Response) -> None:
        await response.send(200, "text/plain", request.method.encode())

    resource = http_resource_base.Resource({"GET": show, "POST": show})
    await resource(_scope(method=method), _no_body, send)
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return messages[0]["status"], dict(messages[0]["headers"]), body


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
async def test_resource_serves_its_methods_and_head(method: str) -> None:
    status, _, body = await _sent(method)
    assert (status, body) == (200, method.encode())


@pytest.mark.parametrize(("method", "status"), [("OPTIONS", 204), ("PUT", 405), ("DELETE", 405)])
async def test_unsupported_method_gets_405_with_allow(method: str, status: int) -> None:
    found, headers, body = await _sent(method)
    assert (found, headers[b"allow"]) == (status, b"GET, HEAD, OPTIONS, POST")
    assert (b"add -X POST" in body) == (method == "PUT")
