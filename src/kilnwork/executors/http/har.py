"""What was sent and received, as HAR 1.2: the log of an attempt, which `kiln logs` shows. Pure.

Used by `attempt`. Secrets are not in it: neither the values that were put in, nor, as far as they
are long enough to be told from other text, where a server repeats them.
"""

import base64
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib import parse

import msgspec

from kilnwork import version
from kilnwork.executors.http import exchange

MAX_CONTENT_BYTES = 64 * 1024
"""Of a body; the result is stored apart."""

MAX_ENTRIES = 8
"""The first and the last ones; of polls in between only their number is kept."""

REDACTED = "***"
MIN_SECRET_LENGTH = 6
"""Shorter values would be found in any text."""


class Archive:
    """The exchanges of one attempt."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._left_out = 0

    def add(
        self,
        request: exchange.Outgoing,
        received: exchange.Received | None,
        *,
        began: float,
        error: str,
        secrets: Collection[str],
    ) -> None:
        """Keep one exchange; `received` is None if there was no whole response. `began`: wall."""
        hide = _Hiding(secrets)
        timings = _NO_TIMINGS if received is None else _timings(received.timings)
        entry: dict[str, Any] = {
            "startedDateTime": datetime.fromtimestamp(began, UTC),
            "time": sum([value for value in timings.values() if value > 0]),
            "request": _request(request, hide),
            "response": _NO_RESPONSE | {"_error": hide.text(error)}
            if received is None
            else _response(received, hide),
            "cache": {},
            "timings": timings,
        }
        if received is not None:
            entry["serverIPAddress"] = received.address
        if len(self._entries) >= MAX_ENTRIES:
            del self._entries[MAX_ENTRIES // 2]
            self._left_out += 1
        self._entries.append(_encode(entry))

    def encode(self) -> bytes:
        """Return the document as one line."""
        comment = f"{self._left_out} exchanges in the middle are left out"
        end = b',"comment":' + _encode(comment) if self._left_out else b""
        return _BEGINNING + b",".join(self._entries) + b"]" + end + b"}}\n"


_encode = msgspec.json.Encoder().encode
_CREATOR = {"name": "kilnwork", "version": version.__version__}
_BEGINNING = b'{"log":{"version":"1.2","creator":' + _encode(_CREATOR) + b',"entries":['
_NO_RESPONSE: dict[str, Any] = {
    "status": 0, "statusText": "", "httpVersion": "", "cookies": [], "headers": [],
    "content": {"size": 0, "mimeType": ""}, "redirectURL": "", "headersSize": -1, "bodySize": -1,
}  # fmt: skip

_NO_TIMINGS = {"send": -1.0, "wait": -1.0, "receive": -1.0}


class _Hiding:
    """Replaces secrets."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets: list[str] = []
        if not secrets:
            return
        long = {one for one in secrets if len(one) >= MIN_SECRET_LENGTH}
        forms = long | {parse.quote_plus(one) for one in long} | {parse.quote(one) for one in long}
        self._secrets = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def data(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret.encode(), REDACTED.encode())
        return data


def hidden(text: str, secrets: Collection[str]) -> str:
    """Return a text without the secrets."""
    return _Hiding(secrets).text(text)


def _request(request: exchange.Outgoing, hide: _Hiding) -> dict[str, Any]:
    body = request.body
    query = request.url.raw_query_string
    pairs = parse.parse_qsl(query, keep_blank_values=True) if query else ()
    shown: dict[str, Any] = {
        "method": request.method,
        "url": hide.text(str(request.url)),
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": [
            {
                "name": name,
                "value": REDACTED if name.lower() in request.secret_headers else hide.text(value),
            }
            for name, value in request.headers
        ],
        "queryString": [{"name": name, "value": hide.text(value)} for name, value in pairs],
        "headersSize": -1,
        "bodySize": 0 if body is None else len(body),
    }
    if body is not None:
        mime = next((v for n, v in request.headers if n.lower() == "content-type"), "")
        shown["postData"] = {"mimeType": mime, **_text(hide.data(body), len(body))}
    return shown


def _response(received: exchange.Received, hide: _Hiding) -> dict[str, Any]:
    raw = received.body.read(MAX_CONTENT_BYTES)
    mime = received.header("content-type") or ""
    return {
        "status": received.status,
        "statusText": hide.text(received.reason),
        "httpVersion": received.version,
        "cookies": [],
        "headers": _headers(received.headers, hide),
        "content": {
            "size": received.body.size,
            "mimeType": hide.text(mime),
            **_text(hide.data(raw), received.body.size),
        },
        "redirectURL": hide.text(received.redirect),
        "headersSize": -1,
        "bodySize": received.body.size,
    }


def _headers(headers: Sequence[tuple[str, str]], hide: _Hiding) -> list[dict[str, str]]:
    return [
        {"name": name, "value": REDACTED if name.lower() == "set-cookie" else hide.text(value)}
        for name, value in headers
    ]


def _text(raw: bytes, size: int) -> dict[str, Any]:
    raw = raw[:MAX_CONTENT_BYTES]
    comment = {"comment": f"the first {len(raw)} bytes of {size}"} if size > len(raw) else {}
    try:
        return {"text": raw.decode(), **comment}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(raw).decode(), "encoding": "base64", **comment}


def _timings(seen: exchange.Timings) -> dict[str, float]:
    """Milliseconds; -1 for a phase that there was not. TLS is part of `connect`."""
    connected = seen.connected or seen.began
    answered = seen.answered or connected
    over = seen.over or answered
    named = seen.named
    return {
        "blocked": -1,
        "dns": -1 if named is None else _ms(named - seen.began),
        "connect": -1 if named is None else _ms(connected - named),
        "ssl": -1,
        "send": 0,
        "wait": _ms(answered - connected),
        "receive": _ms(over - answered),
    }


def _ms(seconds: float) -> float:
    return round(max(0.0, seconds) * 1e6) / 1e3
