"""`spec.http` of a Task: one HTTP request, and how its response is interpreted.

The request has the format of HAR 1.2, so that it can be copied from a browser; fields that HAR
lacks begin with an underscore (`_secretRef`, `_bodyBase64`). Carried out by `executors.http`;
checked by `http_validation`. Facts about one request, no I/O.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct

MAX_S = 31 * 24 * 3600
"""Maximum duration, in seconds, of a request or of the work that it starts elsewhere."""

MAX_BYTES = 1 << 30
"""Maximum size of a response body, in bytes: the same as for the result of a Pod."""

MAX_REDIRECTS = 20

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods whose requests may be repeated by default, since they change nothing (RFC 9110,
9.2.1)."""

CALLBACK_URL = "task.callback_url"
"""Variable of requests with `callback`: the URL to which the result is sent."""

Timeout = Annotated[float, msgspec.Meta(gt=0, le=MAX_S)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class SecretRef(base_struct.Wire, frozen=True):
    """A value in a Secret of the task's namespace. The Secret must have the label
    `kilnwork.dev/use: http` and an annotation `kilnwork.dev/http-hosts` that names the host."""

    name: Text
    """Name of the Secret."""
    key: Text
    """Key in the `data` of the Secret."""
    prefix: str = ""
    """Text before the value, such as `Bearer ` with a trailing space."""


class NameValue(base_struct.Wire, frozen=True):
    """A name and a value, in the format of headers and query parameters in HAR."""

    name: Text
    """Name of the header or parameter."""
    value: str = ""
    """Value. At most one of `value` and `_secretRef` may be set."""
    secret_ref: SecretRef | None = msgspec.field(default=None, name="_secretRef")
    """Secret from which the value is read."""
    comment: str = ""
    """Comment, for people."""


class Cookie(base_struct.Wire, frozen=True):
    """A cookie to send, in the format of HAR. Only its name and value are sent."""

    name: Text
    """Name of the cookie."""
    value: str = ""
    """Value. At most one of `value` and `_secretRef` may be set."""
    secret_ref: SecretRef | None = msgspec.field(default=None, name="_secretRef")
    """Secret from which the value is read."""
    path: str = ""
    """Ignored; accepted as part of HAR."""
    domain: str = ""
    """Ignored; accepted as part of HAR."""
    expires: str | None = None
    """Ignored; accepted as part of HAR."""
    http_only: bool = False
    """Ignored; accepted as part of HAR."""
    secure: bool = False
    """Ignored; accepted as part of HAR."""
    comment: str = ""
    """Comment, for people."""


class PostParam(base_struct.Wire, frozen=True):
    """One field of a form."""

    name: Text
    """Name of the field."""
    value: str = ""
    """Value of the field."""
    file_name: str = ""
    """File name of the field. Only allowed in `multipart/form-data`."""
    content_type: str = ""
    """Media type of the file."""
    comment: str = ""
    """Comment, for people."""


class PostData(base_struct.Wire, frozen=True):
    """The body of a request. Exactly one of `text`, `params` and `_bodyBase64` must be set."""

    mime_type: str = ""
    """Media type, sent as `Content-Type` unless `headers` has one."""
    text: str | None = None
    """Body as text, sent in UTF-8."""
    params: tuple[PostParam, ...] = ()
    """Fields of a form, for `application/x-www-form-urlencoded` and `multipart/form-data`."""
    body_base64: str | None = msgspec.field(default=None, name="_bodyBase64")
    """Body as bytes in base64."""
    comment: str = ""
    """Comment, for people."""


class HttpRequest(base_struct.Wire, frozen=True):
    """A HAR 1.2 request. `method` and `url` are required; sizes are ignored."""

    method: Text
    """HTTP method, such as `GET`."""
    url: Text
    """Absolute URL with the scheme `http` or `https`, without a fragment."""
    http_version: str = "HTTP/1.1"
    """Ignored: the request is always sent as HTTP/1.1."""
    headers: tuple[NameValue, ...] = ()
    """Headers in the order in which they are sent. Headers that belong to a connection are
    omitted, and so are the pseudo-headers of HTTP/2 that browsers export."""
    query_string: tuple[NameValue, ...] = ()
    """Query parameters. Parameters that the query of the URL already has are not repeated."""
    cookies: tuple[Cookie, ...] = ()
    """Cookies. They are not sent if `headers` has a `Cookie` header."""
    post_data: PostData | None = None
    """Body of the request."""
    headers_size: int = -1
    """Ignored; accepted as part of HAR."""
    body_size: int = -1
    """Ignored; accepted as part of HAR."""
    comment: str = ""
    """Comment, for people."""


class HttpResponse(base_struct.Wire, frozen=True):
    """How a response is interpreted. Conditions are evaluated on an object with `status`, `headers`
    (names in lower case) and `body`."""

    format: Annotated[str, msgspec.Meta(pattern="^(json|yaml|text|bytes)?$")] = ""
    """Format of the body: `json`, `yaml`, `text` or `bytes`. Empty: derived from `Content-Type`."""
    result_json_path: str = ""
    """JSONPath (RFC 9535) to the result within the body. Empty: the whole body. Without
    `successCondition`, the request fails if the path selects nothing, `null` or `false`."""
    success_condition: Any = None
    """Rule, or list of rules, that must all be true for success: `{jsonPath, operator, value}`, or
    a string such as `$.body.state == "done"`. Unset: any status from 200 to 299 is a success."""
    failure_condition: Any = None
    """Rule, or list of rules, for failure. It takes precedence over `successCondition`."""
    running_condition: Any = None
    """Rule, or list of rules, for work that is still in progress. Only allowed with `polling`."""
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)] = 16 * 1024 * 1024
    """Maximum size of the body in bytes. A larger body is not read, and the request fails. Results
    above 64 KiB are stored as blobs."""


class HttpTimeouts(base_struct.Wire, frozen=True):
    """Timeouts of one request, in seconds."""

    socket_timeout: Timeout = 10.0
    """Maximum time for name resolution, connection and TLS handshake together."""
    read_timeout: Timeout = 60.0
    """Maximum time between two pieces of the response, and before the first one."""
    total_timeout: Timeout = 600.0
    """Maximum duration of one request with its response and all redirects."""


class Affinity(base_struct.Wire, frozen=True):
    """Selection of the executors that may send the request, by their labels."""

    required: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that an executor must have."""
    preferred: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of which an executor should have as many as possible."""


class Redirects(base_struct.Wire, frozen=True):
    """How redirects are followed. The target of each redirect is checked like the first URL."""

    follow: Annotated[int, msgspec.Meta(ge=0, le=MAX_REDIRECTS)] = 0
    """Maximum number of redirects to follow. Secrets, cookies and `Authorization` are sent only to
    the first origin. With 0, a redirect is handled like any other response."""


class Tls(base_struct.Wire, frozen=True):
    """TLS settings: trust in the server, and the client certificate."""

    insecure_skip_verify: bool = False
    """Whether any server certificate is accepted."""
    ca_bundle: str = ""
    """Certificates (PEM) of the trusted authorities, instead of those of the executor's machine."""
    server_name: str = ""
    """Name in the server's certificate, if it differs from the host of the URL."""
    client_certificate_secret: str = ""
    """Name of a Secret with `tls.crt` and `tls.key`. It must have the label and annotation that
    Secrets of `_secretRef` have."""


class Polling(base_struct.Wire, frozen=True):
    """How the executor polls for the result of accepted work (status 202)."""

    location: str = ""
    """JSONPath to the polling URL in the body of the first response. Empty: the header `Location`,
    or `Operation-Location`."""
    interval_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 5.0
    """Time between two requests, in seconds, unless the server sends `Retry-After`."""
    timeout_seconds: Timeout = 86_400.0
    """Maximum time until the last response, in seconds."""
    cancel_method: Annotated[str, msgspec.Meta(pattern="^(DELETE|POST|PUT)?$")] = ""
    """Method of a request to the polling URL that ends the work of a killed task. Empty: the work
    continues."""


class Callback(base_struct.Wire, frozen=True):
    """How the result of accepted work (status 202) is received by a callback: a POST to
    `${task.callback_url}`, which is also sent as the request header `Kiln-Callback-Url`."""

    timeout_seconds: Timeout = 86_400.0
    """Maximum time until the result, in seconds. After that the URL is no longer valid."""


class HttpTemplate(base_struct.Wire, frozen=True):
    """One HTTP request, sent by an executor (`kiln executor http`)."""

    request: HttpRequest
    """The request in the format of HAR 1.2. Strings in it may contain variables."""
    response: HttpResponse = HttpResponse()
    """How the response is interpreted."""
    timeout: HttpTimeouts = HttpTimeouts()
    """Timeouts in seconds."""
    affinity: Affinity = Affinity()
    """Selection of the executors that may send the request."""
    redirects: Redirects = Redirects()
    """How redirects are followed."""
    tls: Tls = Tls()
    """TLS settings for `https`."""
    polling: Polling | None = None
    """Polling for the result after status 202."""
    callback: Callback | None = None
    """Waiting for a callback after status 202."""
    idempotent: bool | None = None
    """Whether the request may be sent again after the loss of an executor that may already have
    sent it. Unset: true for GET, HEAD, OPTIONS and TRACE. If true, other methods get an
    `Idempotency-Key` header."""

    @property
    def callback_settings(self) -> Callback | None:
        """Return the callback settings, or None if the result is not sent by a callback."""
        return self.callback

    @property
    def may_repeat(self) -> bool:
        """Return whether the request may be sent twice."""
        if self.idempotent is None:
            return self.request.method.upper() in SAFE_METHODS
        return self.idempotent
