"""The log of an HTTP attempt as HAR 1.2, with its requests and responses, as `kiln logs` shows it.

Used by `attempt`. No I/O, except that a large body is read from its file. The log contains no
secrets: neither the inserted values, nor, if they are long enough to differ from other text, copies
of them in a server's response.
"""

import base64
import json
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib import parse

import msgspec

from kilnwork import version
from kilnwork.executors.http import exchange

MAX_CONTENT_BYTES = 64 * 1024
"""Maximum number of bytes of a body in the log; the result is stored separately."""

MAX_ENTRIES = 8
"""Maximum number of entries in the log: the first and the last ones. Of the polls in between only
the number is kept."""

REDACTED = "***"
_CUT = "…"
"""End of a value that is shown only in part (`json_limits.show`)."""

MIN_SECRET_LENGTH = 6
"""Minimum length of a value that is hidden: shorter values occur in any text."""


class Archive:
    """The requests and responses of one attempt, as a HAR document."""

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
        """Add a request and its response. `received`: None if there was no whole response; `began`:
        wall clock.
        """
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
        """Return the HAR document as one line of JSON."""
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
    """Replacer of secrets in texts and bodies."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets: list[str] = []
        self._encoded: list[bytes] = []
        self.longest = 0
        """Length in bytes of the longest secret."""
        if not secrets:
            return
        long = {one for one in secrets if len(one) >= MIN_SECRET_LENGTH}
        forms = {form for one in long for form in _forms(one)}
        self._secrets = sorted(forms, key=len, reverse=True)
        self._encoded = [form.encode() for form in self._secrets]
        self.longest = max(map(len, self._encoded), default=0)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def data(self, data: bytes, limit: int) -> bytes:
        """Return the first `limit` bytes of a body without secrets.

        To find a secret at the cut, `data` needs to contain `longest` bytes more than that.
        """
        if not self._encoded:
            return data[:limit]
        pieces: list[bytes] = []
        end = 0
        for found in re.finditer(b"|".join(map(re.escape, self._encoded)), data):
            if found.start() >= limit:
                break
            pieces += data[end : found.start()], REDACTED.encode()
            end = found.end()
        return b"".join(pieces) + data[end:limit]

    def message(self, text: str) -> str:
        """Return a message without secrets, including the beginning of a secret where a value was
        cut off.
        """
        shown, *rest = self.text(text).split(_CUT)
        for part in rest:
            value = shown.rstrip('"')
            shown = self._without_beginning(value) + shown[len(value) :] + _CUT + part
        return shown

    def _without_beginning(self, value: str) -> str:
        for secret in self._secrets:
            for length in range(min(len(secret), len(value)), 0, -1):
                if value.endswith(secret[:length]):
                    return value[:-length] + REDACTED
        return value


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret unchanged, and in the forms in which servers repeat it.

    These are: encoded for URLs, in JSON with all usual escapes, and decoded as Latin-1, as some
    servers do with headers.
    """
    for one in {secret, secret.encode().decode("latin-1")}:
        yield from (one, parse.quote_plus(one), parse.quote(one))
        for text in (json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1]):
            yield from (text, text.replace("/", "\\/"))


def hidden(text: str, secrets: Collection[str]) -> str:
    """Return a text in which the secrets are replaced."""
    return _Hiding(secrets).message(text)


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
        shown["postData"] = {"mimeType": mime, **_content(body, len(body), hide)}
    return shown


def _response(received: exchange.Received, hide: _Hiding) -> dict[str, Any]:
    raw = received.body.read(MAX_CONTENT_BYTES + hide.longest)
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
            **_content(raw, received.body.size, hide),
        },
        "redirectURL": hide.text(received.redirect),
        "headersSize": -1,
        "bodySize": received.body.size,
    }


def _headers(headers: Sequence[tuple[str, str]], hide: _Hiding) -> list[dict[str, str]]:
    return [
        {
            "name": hide.text(name),
            "value": REDACTED if name.lower() == "set-cookie" else hide.text(value),
        }
        for name, value in headers
    ]


def _content(raw: bytes, size: int, hide: _Hiding) -> dict[str, Any]:
    comment = {}
    if size > MAX_CONTENT_BYTES:
        comment["comment"] = f"the first {MAX_CONTENT_BYTES} bytes of {size}"
    raw = hide.data(raw, MAX_CONTENT_BYTES)
    try:
        return {"text": raw.decode(), **comment}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(raw).decode(), "encoding": "base64", **comment}


def _timings(seen: exchange.Timings) -> dict[str, float]:
    """Return the milliseconds of each phase of an exchange; -1 for a phase that did not happen. TLS
    is part of `connect`.
    """
    connected = seen.connected or seen.began
    responded = seen.responded or connected
    over = seen.finished or responded
    named = seen.named
    return {
        "blocked": -1,
        "dns": -1 if named is None else _ms(named - seen.began),
        "connect": -1 if named is None else _ms(connected - named),
        "ssl": -1,
        "send": 0,
        "wait": _ms(responded - connected),
        "receive": _ms(over - responded),
    }


def _ms(seconds: float) -> float:
    return round(max(0.0, seconds) * 1e6) / 1e3
