"""Construction of the request of a task, with its secrets, and of the redirected and polling
requests after it.

No I/O. Used by `attempt`. HAR has two places for some facts. A query parameter of the URL is not
added again from `queryString`, and the headers `Cookie` and `Content-Type` take precedence over
`cookies` and `mimeType`.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from urllib import parse

import msgspec
import yarl

from kilnwork import version
from kilnwork.api import http_task
from kilnwork.executors.http import exchange

Reveal = Callable[[http_task.SecretRef], str]
"""Returns the value of a Secret that a request refers to."""

IDEMPOTENCY_KEY = "Idempotency-Key"
CALLBACK_HEADER = "Kiln-Callback-Url"

_OF_THE_CONNECTION = frozenset(
    {
        "connection", "content-length", "expect", "host", "http2-settings", "keep-alive",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers that belong to one connection (RFC 9110, 7.6.1), or that are derived from the rest of the
request."""

_AS_IT_IS = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9/?&=._~-]*")
"""Pattern of URLs in which nothing needs to be encoded; most URLs match."""

_DEFAULTS = (
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", f"kilnwork/{version.__version__}"),
)
_OF_THE_ORIGIN = frozenset({"authorization", "cookie"})
_OF_THE_BODY = frozenset({"content-type", "content-encoding", "content-language"})


def build_request(
    template: http_task.HttpTemplate, reveal: Reveal, *, key: str, callback: str
) -> exchange.Outgoing:
    """Return the request for a template whose variables are replaced.

    `key`: idempotency key, sent if the task says that its request is idempotent. `callback`: URL
    for the result, "" for none. Raises ValueError if the URL or the body is invalid, and what
    `reveal` raises.
    """
    request = template.request
    headers, secret = _headers(request, reveal)
    names = {name.lower() for name, _ in headers}
    body, mime = _body(request.post_data)
    if mime and "content-type" not in names:
        headers.append(("Content-Type", mime))
    if request.cookies and "cookie" not in names:
        headers.append(("Cookie", "; ".join(_cookies(request, reveal))))
        if any(cookie.secret_ref for cookie in request.cookies):
            secret.add("cookie")
    if template.idempotent and request.method.upper() not in http_task.SAFE_METHODS:
        _add(headers, names, IDEMPOTENCY_KEY, key)
    if callback:
        _add(headers, names, CALLBACK_HEADER, callback)
        secret.add(CALLBACK_HEADER.lower())
    for name, value in _DEFAULTS:
        _add(headers, names, name, value)
    return exchange.Outgoing(
        method=request.method.upper(),
        url=_url(request, reveal),
        headers=headers,
        body=body,
        secret_headers=frozenset(secret),
    )


def build_redirected(request: exchange.Outgoing, status: int, location: str) -> exchange.Outgoing:
    """Return the request that follows a redirect (RFC 9110, 15.4). Raises ValueError for an invalid
    URL.
    """
    try:
        url = request.url.join(yarl.URL(location, encoded=True)).with_fragment(None)
        origin = url.host and url.origin()
    except ValueError as error:
        raise ValueError(f"what cannot be requested ({error}): {location!r}") from error
    if url.scheme not in ("http", "https") or not origin or url.user or url.password:
        raise ValueError(f"what cannot be requested: {location!r}")
    method, body = request.method, request.body
    dropped: frozenset[str] = frozenset()
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body, dropped = "GET", None, _OF_THE_BODY
    if origin != request.url.origin():
        dropped |= _OF_THE_ORIGIN | request.secret_headers
    headers = [(name, value) for name, value in request.headers if name.lower() not in dropped]
    return msgspec.structs.replace(request, method=method, url=url, body=body, headers=headers)


def build_poll(request: exchange.Outgoing, location: str, method: str = "GET") -> exchange.Outgoing:
    """Return the request that polls for the result of an earlier request. Raises ValueError."""
    found = msgspec.structs.replace(request, method=method, body=None)
    found = build_redirected(found, 307, location)
    headers = [(n, v) for n, v in found.headers if n.lower() not in _OF_THE_BODY]
    headers = [(n, v) for n, v in headers if n not in (CALLBACK_HEADER, IDEMPOTENCY_KEY)]
    return msgspec.structs.replace(found, headers=headers)


def _add(headers: list[tuple[str, str]], names: set[str], name: str, value: str) -> None:
    if name.lower() not in names:
        headers.append((name, value))


def _headers(
    request: http_task.HttpRequest, reveal: Reveal
) -> tuple[list[tuple[str, str]], set[str]]:
    headers: list[tuple[str, str]] = []
    secret: set[str] = set()
    for header in request.headers:
        name = header.name.lower()
        if name.startswith(":") or name in _OF_THE_CONNECTION:
            continue
        headers.append((header.name, _value(header, reveal)))
        if header.secret_ref is not None:
            secret.add(name)
    return headers, secret


def _value(given: http_task.NameValue | http_task.Cookie, reveal: Reveal) -> str:
    if given.secret_ref is None:
        return given.value
    return given.secret_ref.prefix + reveal(given.secret_ref)


def _cookies(request: http_task.HttpRequest, reveal: Reveal) -> Iterator[str]:
    for cookie in request.cookies:
        yield f"{cookie.name}={_value(cookie, reveal)}"


def _url(request: http_task.HttpRequest, reveal: Reveal) -> yarl.URL:
    if not request.query_string and _AS_IT_IS.fullmatch(request.url):
        return yarl.URL(request.url, encoded=True)
    parts = parse.urlsplit(request.url)
    there = parse.parse_qsl(parts.query, keep_blank_values=True)
    more: list[tuple[str, str]] = []
    for parameter in request.query_string:
        pair = (parameter.name, _value(parameter, reveal))
        if pair in there:
            there.remove(pair)  # an export of a browser has each parameter in both places
        else:
            more.append(pair)
    query = "&".join(text for text in (parts.query, parse.urlencode(more)) if text)
    path = parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=-._~")
    return yarl.URL(parse.urlunsplit((parts.scheme, _host(parts), path, query, "")), encoded=True)


def _host(parts: parse.SplitResult) -> str:
    """Return the host of a URL; names with characters beyond ASCII in the form of DNS (IDNA)."""
    netloc = parts.netloc
    return netloc if netloc.isascii() else netloc.encode("idna").decode()


def _body(given: http_task.PostData | None) -> tuple[bytes | None, str]:
    if given is None:
        return None, ""
    if given.body_base64 is not None:
        return base64.b64decode(given.body_base64), given.mime_type
    if not given.params:
        return None if given.text is None else given.text.encode(), given.mime_type
    if given.mime_type.lower().startswith("multipart/form-data"):
        content = "".join(param.value for param in given.params).encode()
        boundary = f"kiln-{hashlib.sha256(content).hexdigest()[:40]}"
        return _multipart(given, boundary), f"multipart/form-data; boundary={boundary}"
    pairs = [(param.name, param.value) for param in given.params]
    return parse.urlencode(pairs).encode(), given.mime_type


def _multipart(given: http_task.PostData, boundary: str) -> bytes:
    """Return a multipart body (RFC 7578). Quotes and line breaks in names are escaped in the same
    way as in browsers.
    """
    pieces = []
    for param in given.params:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(param.name)}"'
        if param.file_name:
            head += f'; filename="{_quoted(param.file_name)}"'
        if param.content_type:
            head += f"\r\nContent-Type: {_quoted(param.content_type)}"
        pieces.append(f"{head}\r\n\r\n{param.value}\r\n")
    return ("".join(pieces) + f"--{boundary}--\r\n").encode()


def _quoted(text: str) -> str:
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
