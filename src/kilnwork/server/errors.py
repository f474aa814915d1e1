"""Errors of the REST API: each is one HTTP response, sent as problem details (RFC 9457).

Raised in this package, and by implementations of its ports in `cli.wiring`; sent by `problems`.
"""

from typing import Any

from kilnwork.kit import errors


class HttpError(errors.KilnError):
    """The request failed.

    `type`: URI of the problem type, if one is registered. `members`: additional facts for programs.
    """

    status = 500
    reason = "InternalError"
    type = "about:blank"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self,
        message: str | None = None,
        *,
        members: dict[str, Any] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] | None = None,
    ) -> None:
        super().__init__(message)
        self.members = members or {}
        if headers is not None:
            self.headers = headers


class BadRequest(HttpError):
    """The request is malformed."""

    status = 400
    reason = "BadRequest"


class Unauthorized(HttpError):
    """Unauthorized: send the bearer token (`kiln token` prints it)."""

    status = 401
    reason = "Unauthorized"
    headers = ((b"www-authenticate", b"Bearer"),)
    """A 401 must name the authentication scheme (RFC 9110 §15.5.2)."""


class Forbidden(HttpError):
    """The caller may not do this."""

    status = 403
    reason = "Forbidden"


class NotFound(HttpError):
    """The requested resource does not exist."""

    status = 404
    reason = "NotFound"


class MethodNotAllowed(HttpError):
    """This path does not support the method."""

    status = 405
    reason = "MethodNotAllowed"


class RequestTimeout(HttpError):
    """The body of the request did not arrive in time."""

    status = 408
    reason = "RequestTimeout"


class Conflict(HttpError):
    """The state of the resource does not allow this operation."""

    status = 409
    reason = "Conflict"


class Gone(HttpError):
    """The resource existed, and does not exist any more."""

    status = 410
    reason = "Gone"


class PreconditionFailed(HttpError):
    """The resource has changed meanwhile: read it again."""

    status = 412
    reason = "PreconditionFailed"


class ContentTooLarge(HttpError):
    """The body is larger than this server accepts."""

    status = 413
    reason = "ContentTooLarge"


class UnsupportedMediaType(HttpError):
    """A body of this type is not accepted here."""

    status = 415
    reason = "UnsupportedMediaType"


class RangeNotSatisfiable(HttpError):
    """The range begins after the end of the content."""

    status = 416
    reason = "RangeNotSatisfiable"


class UnprocessableContent(HttpError):
    """The request is well-formed but cannot be carried out."""

    status = 422
    reason = "UnprocessableContent"


class TooManyRequests(HttpError):
    """The client sends too many requests: it must wait for the time in Retry-After."""

    status = 429
    reason = "TooManyRequests"


class NotImplementedHere(HttpError):
    """The request needs a feature of HTTP that this server does not have."""

    status = 501
    reason = "NotImplemented"


class InsufficientStorage(HttpError):
    """There is not enough space to store this."""

    status = 507
    reason = "InsufficientStorage"


class UpgradeRequired(HttpError):
    """This path speaks kilnwork-channel: send `Connection: Upgrade, Upgrade: kilnwork-channel`."""

    status = 426
    reason = "UpgradeRequired"
    headers = ((b"connection", b"Upgrade"), (b"upgrade", b"kilnwork-channel"))


class NoOutput(HttpError):
    """The output of a task cannot be read at the moment."""

    status = 503
    reason = "NoOutput"


class NotReady(HttpError):
    """The server is starting or stopping: retry in a moment."""

    status = 503
    reason = "ServiceUnavailable"
