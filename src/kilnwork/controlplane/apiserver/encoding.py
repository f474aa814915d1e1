"""Encoding of response bodies: JSON with a final newline, indented JSON, or YAML.

Large bodies are compressed with gzip. `app` puts an `Encoder` before the `send` of each Kubernetes
request; all other modules write compact JSON (or OpenAPI as protobuf) and do not deal with formats.
Streamed responses (watches, logs) pass unchanged.
"""

import asyncio
import gzip
from typing import Any

import msgspec

from kilnwork.controlplane.apiserver import openapi_protobuf, requests, response_formats
from kilnwork.kit import asgi

_COMPRESS_FROM_BYTES = 128 * 1024
"""Smaller responses cost more to compress than to send; value of kube-apiserver."""

_GZIP_LEVEL = 1
_JSON_ONLY = "/openapi/"
"""Documents below this path are never YAML (k8s.io/kube-openapi/pkg/handler)."""
_ENCODED = (response_formats.JSON.encode(), openapi_protobuf.MEDIA_TYPE.encode())
_PEOPLE = (b"curl", b"Wget", b"Mozilla/5.0")
"""User agents that get indented JSON by default (isPrettyPrint of k8s.io/apiserver)."""


class Encoder:
    """Encoder of the response to one request, used as the ASGI `send` of the request."""

    def __init__(self, send: asgi.Send, scope: asgi.Scope) -> None:
        self._send = send
        self._scope = scope
        self._start: asgi.Message | None = None

    async def __call__(self, message: asgi.Message) -> None:
        """Send a message of the response.

        The start of a complete response is delayed until its body is known; then both are sent.
        """
        if message["type"] == "http.response.start" and _is_whole(message):
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            as_json = dict(start["headers"])[b"content-type"] == response_formats.JSON.encode()
            body, changed = await self._encoded(message["body"], as_json=as_json)
            kept = [(name, value) for name, value in start["headers"] if name not in changed]
            await self._send({**start, "headers": [*kept, *changed.items()]})
            message = {**message, "body": body}
        await self._send(message)

    async def _encoded(self, body: bytes, *, as_json: bool) -> tuple[bytes, dict[bytes, bytes]]:
        """Return the encoded body and the headers that describe it."""
        headers: dict[bytes, bytes] = {}
        sent = dict(self._scope["headers"])
        accept = sent.get(b"accept", b"").decode("latin-1")
        if not as_json:
            pass
        elif response_formats.error_media_type(accept) == response_formats.YAML and not self._scope[
            "path"
        ].startswith(_JSON_ONLY):
            body = await asyncio.to_thread(_yaml, body)
            headers[b"content-type"] = response_formats.YAML.encode()
        elif self._for_people(sent.get(b"user-agent", b"")):
            body = msgspec.json.format(body, indent=2)
        else:
            body += b"\n"
        if len(body) > _COMPRESS_FROM_BYTES and _takes_gzip(sent.get(b"accept-encoding", b"")):
            body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)
            headers[b"content-encoding"] = b"gzip"
            headers[b"vary"] = b"Accept-Encoding"
        headers[b"content-length"] = str(len(body)).encode()
        return body, headers

    def _for_people(self, agent: bytes) -> bool:
        query = self._scope.get("query_string", b"")
        asked = requests.Query.parse(query).text("pretty") if query else ""
        if asked:
            return asked in ("1", "t", "T", "true", "TRUE", "True")
        return agent.startswith(_PEOPLE)


def _takes_gzip(accepted: bytes) -> bool:
    return any(part.partition(b";")[0].strip() == b"gzip" for part in accepted.split(b","))


def _is_whole(start: asgi.Message) -> bool:
    headers = dict(start["headers"])
    # Streamed responses have no Content-Length.
    return headers.get(b"content-type") in _ENCODED and b"content-length" in headers


def _yaml(body: bytes) -> bytes:
    document: Any = msgspec.json.decode(body)
    return msgspec.yaml.encode(document, order="sorted")
