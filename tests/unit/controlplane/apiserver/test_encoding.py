"""Encoded responses: only whole JSON responses are touched, and only as the client asks."""

import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.apiserver import encoding

Message = dict[str, Any]
DOCUMENT = {"kind": "Status", "a": [1, 2]}


async def encode(
    messages: list[Message], *, query: bytes = b"", **headers: str
) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of what comes out of an Encoder."""
    found: list[Any] = []

    async def send(message: Any) -> None:
        found.append(message)

    given = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    encoder = encoding.Encoder(send, {"path": "/api", "headers": given, "query_string": query})
    for message in messages:
        await encoder(message)
    body = b"".join(m["body"] for m in found if m["type"] == "http.response.body")
    return dict(found[0]["headers"]), body


def complete_response(body: bytes, media: bytes = b"application/json") -> list[Message]:
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", media), length]
    return [
        {"type": "http.response.start", "status": 200, "headers": headers},
        {"type": "http.response.body", "body": body},
    ]


async def test_json_ends_with_newline_by_default() -> None:
    headers, body = await encode(complete_response(msgspec.json.encode(DOCUMENT)))
    assert body == b'{"kind":"Status","a":[1,2]}\n'
    assert headers[b"content-length"] == str(len(body)).encode()


async def test_yaml_response_has_sorted_keys() -> None:
    headers, body = await encode(
        complete_response(msgspec.json.encode(DOCUMENT)), accept="application/yaml"
    )
    assert headers[b"content-type"] == b"application/yaml"
    assert body.startswith(b"a:")
    assert msgspec.yaml.decode(body) == DOCUMENT


@pytest.mark.parametrize(
    ("query", "agent", "lines"),
    [(b"pretty=1", "x", 7), (b"", "curl/8", 7), (b"pretty=0", "curl/8", 1), (b"", "x", 1)],
)
async def test_json_is_indented_for_curl_and_browsers(query: bytes, agent: str, lines: int) -> None:
    message = complete_response(msgspec.json.encode(DOCUMENT))
    _, body = await encode(message, query=query, user_agent=agent)
    assert len(body.splitlines()) == lines


async def test_only_large_responses_are_compressed() -> None:
    large = msgspec.json.encode({"a": "x" * (200 * 1024)})
    headers, body = await encode(complete_response(large), accept_encoding="br, gzip;q=1.0")
    assert headers[b"content-encoding"] == b"gzip"
    assert gzip.decompress(body) == large + b"\n"
    headers, _ = await encode(complete_response(b"{}"), accept_encoding="gzip")
    assert b"content-encoding" not in headers
    headers, _ = await encode(complete_response(large))
    assert b"content-encoding" not in headers


@pytest.mark.parametrize("media", [b"text/plain", b"application/json;as=APIGroupDiscoveryList"])
async def test_other_media_types_are_unchanged(media: bytes) -> None:
    headers, body = await encode(complete_response(b"ok", media), accept="application/yaml")
    assert (headers[b"content-type"], body) == (media, b"ok")


async def test_start_of_a_stream_is_not_delayed() -> None:
    found: list[str] = []

    async def send(message: Any) -> None:
        found.append(message["type"])

    encoder: Callable[[Any], Awaitable[None]] = encoding.Encoder(send, {"headers": []})
    headers = [(b"content-type", b"application/json")]
    await encoder({"type": "http.response.start", "status": 200, "headers": headers})
    assert found == ["http.response.start"]
    await encoder({"type": "http.response.body", "body": b"{}\n", "more_body": True})
    assert len(found) == 2


async def test_openapi_protobuf_is_only_compressed() -> None:
    media = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    text = bytes(range(256)) * 2000
    headers, body = await encode(
        complete_response(text, media), accept="application/yaml", accept_encoding="gzip"
    )
    assert headers[b"content-type"] == media
    assert headers[b"content-encoding"] == b"gzip"
    assert gzip.decompress(body) == text
    _, body = await encode(complete_response(b"\x01", media), user_agent="curl/8")
    assert body == b"\x01"
