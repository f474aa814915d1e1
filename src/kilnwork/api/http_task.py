"""`spec.http` of a Task: one HTTP request, and what its response means.

The request is what HAR 1.2 calls one, so that it can be copied from a browser; what HAR lacks
begins with an underscore there (`_secretRef`, `_bodyBase64`). Carried out by `executors.http`.
Facts about one request, no I/O: what is wrong with one says `http_validation`.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import wire

MAX_S = 31 * 24 * 3600
"""Longest time that a request, or what it has begun elsewhere, may take."""

MAX_BYTES = 1 << 30
"""Largest body of a response that may be requested: the same as for a Pod's result."""

MAX_REDIRECTS = 20

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that may be repeated unless a task says otherwise, as they change nothing (RFC 9110,
9.2.1)."""

CALLBACK_URL = "task.callback_url"
"""Variable of requests with `callback`: where the result is to be sent."""

Timeout = Annotated[float, msgspec.Meta(gt=0, le=MAX_S)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class SecretRef(wire.Wire, frozen=True):
    """One value of a Secret of the task's namespace. It must be labelled `kilnwork.dev/use: http`,
    and its annotation `kilnwork.dev/http-hosts` must name the host."""

    name: Text
    """Name of the Secret."""
    key: Text
    """Key in its `data`."""
    prefix: str = ""
    """Text before the value, such as `Bearer ` with a space behind it."""


class NameValue(wire.Wire, frozen=True):
    """A name with a value, as HAR has headers and query parameters."""

    name: Text
    """Its name."""
    value: str = ""
    """Its value. Give this or `_secretRef`."""
    secret_ref: SecretRef | None = msgspec.field(default=None, name="_secretRef")
    """Where the value is, if it is a secret."""
    comment: str = ""
    """For people."""


class Cookie(wire.Wire, frozen=True):
    """A cookie to send, as HAR has it; only name and value are sent."""

    name: Text
    """Its name."""
    value: str = ""
    """Its value. Give this or `_secretRef`."""
    secret_ref: SecretRef | None = msgspec.field(default=None, name="_secretRef")
    """Where the value is, if it is a secret."""
    path: str = ""
    """For people."""
    domain: str = ""
    """For people."""
    expires: str | None = None
    """For people."""
    http_only: bool = False
    """For people."""
    secure: bool = False
    """For people."""
    comment: str = ""
    """For people."""


class PostParam(wire.Wire, frozen=True):
    """One field of a form."""

    name: Text
    """Its name."""
    value: str = ""
    """Its value."""
    file_name: str = ""
    """Name of the file that it is; only in `multipart/form-data`."""
    content_type: str = ""
    """Type of that file."""
    comment: str = ""
    """For people."""


class PostData(wire.Wire, frozen=True):
    """The body of a request: one of `text`, `params` and `_bodyBase64`."""

    mime_type: str = ""
    """Sent as `Content-Type`, unless `headers` has one."""
    text: str | None = None
    """The body as text, sent in UTF-8."""
    params: tuple[PostParam, ...] = ()
    """Fields of a form, for `application/x-www-form-urlencoded` and `multipart/form-data`."""
    body_base64: str | None = msgspec.field(default=None, name="_bodyBase64")
    """The body as bytes, in base64."""
    comment: str = ""
    """For people."""


class HttpRequest(wire.Wire, frozen=True):
    """A HAR 1.2 request. Needed are `method` and `url`; sizes are not looked at."""

    method: Text
    """Method, such as `GET`."""
    url: Text
    """Absolute URL with `http` or `https`, without a fragment."""
    http_version: str = "HTTP/1.1"
    """For people: the request is sent as HTTP/1.1."""
    headers: tuple[NameValue, ...] = ()
    """Headers, in this order. Those that belong to a connection, and the pseudo-headers of HTTP/2
    that browsers export, are left out."""
    query_string: tuple[NameValue, ...] = ()
    """Query parameters. If the URL has a query too, those that it has already are not repeated."""
    cookies: tuple[Cookie, ...] = ()
    """Cookies; not sent if `headers` has `Cookie`."""
    post_data: PostData | None = None
    """Body of the request."""
    headers_size: int = -1
    """Not looked at."""
    body_size: int = -1
    """Not looked at."""
    comment: str = ""
    """For people."""


class HttpResponse(wire.Wire, frozen=True):
    """What a response means. Conditions see an object with `status`, `headers` (names in lower
    case) and `body`."""

    format: Annotated[str, msgspec.Meta(pattern="^(json|yaml|text|bytes)?$")] = ""
    """How to read the body: `json`, `yaml`, `text` or `bytes`. Empty: by its `Content-Type`."""
    result_json_path: str = ""
    """JSONPath (RFC 9535) to the part of the body that is the result. Empty: all of it. Without
    `successCondition` the request has failed if nothing, `null` or `false` is there."""
    success_condition: Any = None
    """Rule, or list of rules, that must be true: `{jsonPath, operator, value}`, or a text such as
    `$.body.state == "done"`. Without it any status from 200 to 299 is a success."""
    failure_condition: Any = None
    """Rule or rules by which the request has failed, whatever `successCondition` says."""
    running_condition: Any = None
    """Rule or rules by which the work goes on; only with `polling`."""
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)] = 16 * 1024 * 1024
    """Largest body. More is a failure, and is not read. Results over 64 KiB are stored as blobs."""


class HttpTimeouts(wire.Wire, frozen=True):
    """Deadlines of one request, in seconds."""

    socket_timeout: Timeout = 10.0
    """For the name, the connection and TLS together."""
    read_timeout: Timeout = 60.0
    """Between two pieces of the response, and before the first."""
    total_timeout: Timeout = 600.0
    """For one request with its response and all redirects."""


class Affinity(wire.Wire, frozen=True):
    """Which executors may send the request, by the labels that they were started with."""

    required: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that an executor must have."""
    preferred: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of which an executor should have as many as possible."""


class Redirects(wire.Wire, frozen=True):
    """How redirects are followed. Each target is checked as the first is."""

    follow: Annotated[int, msgspec.Meta(ge=0, le=MAX_REDIRECTS)] = 0
    """How many redirects to follow. Secrets, cookies and `Authorization` go to the first origin
    only. With 0 such a response is like any other."""


class Tls(wire.Wire, frozen=True):
    """Trust in the server, and the client's certificate."""

    insecure_skip_verify: bool = False
    """Accept any certificate."""
    ca_bundle: str = ""
    """PEM of the authorities to trust, instead of those of the executor's machine."""
    server_name: str = ""
    """Name in the server's certificate, if it is not the host of the URL."""
    client_certificate_secret: str = ""
    """Name of a Secret with `tls.crt` and `tls.key`, labelled as those of `_secretRef` are."""


class Polling(wire.Wire, frozen=True):
    """How to poll for the result of work that was only accepted (202)."""

    location: str = ""
    """JSONPath to the URL to ask in the body of the first response. Empty: its header `Location`,
    or `Operation-Location`."""
    interval_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 5.0
    """Time between two requests, unless the server says `Retry-After`."""
    timeout_seconds: Timeout = 86_400.0
    """Time until the last response."""
    cancel_method: Annotated[str, msgspec.Meta(pattern="^(DELETE|POST|PUT)?$")] = ""
    """Method of a request to the same URL by which a killed task ends the work there. Empty: it
    goes on."""


class Callback(wire.Wire, frozen=True):
    """How to get the result of work that was only accepted (202) by a callback: it is sent to us by
    a POST to `${task.callback_url}`, which is also in the header `Kiln-Callback-Url` of the
    request."""

    timeout_seconds: Timeout = 86_400.0
    """Time until the result; then the URL is void."""


class HttpTemplate(wire.Wire, frozen=True):
    """One HTTP request to be sent by an executor (`kiln executor http`)."""

    request: HttpRequest
    """The request, as HAR 1.2 has it; its texts may have variables."""
    response: HttpResponse = HttpResponse()
    """What the response means."""
    timeout: HttpTimeouts = HttpTimeouts()
    """Deadlines in seconds."""
    affinity: Affinity = Affinity()
    """Which executors may send it."""
    redirects: Redirects = Redirects()
    """How redirects are followed."""
    tls: Tls = Tls()
    """Trust and client certificate of `https`."""
    polling: Polling | None = None
    """Ask again after 202 until the work is done."""
    callback: Callback | None = None
    """Wait for a callback after 202."""
    idempotent: bool | None = None
    """Whether the request may be sent again after the loss of an executor that may have sent it.
    Empty: true for GET, HEAD, OPTIONS and TRACE. If true, other methods get an
    `Idempotency-Key`."""

    @property
    def awaited(self) -> Callback | None:
        """How long a callback may take, if its result is to come by one."""
        return self.callback

    @property
    def may_repeat(self) -> bool:
        """Whether sending it twice does no harm."""
        if self.idempotent is None:
            return self.request.method.upper() in SAFE_METHODS
        return self.idempotent
