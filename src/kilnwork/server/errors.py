"""Errors of the REST API: each is one HTTP response, sent as problem details (RFC 9457).

Raised in this room, sent by `problems`.
"""

from typing import Any

from kilnwork.kit import errors


class HttpError(errors.KilnError):
    """The request failed.

    `type`: URI of the kind of problem, if one is registered. `members`: more of the
    problem's facts, for programs.
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
    """The request cannot be understood."""

    status = 400
    reason = "BadRequest"


class Unauthorized(HttpError):
    """Unauthorized: send the bearer token (`kiln token` prints it)."""

    status = 401
    reason = "Unauthorized"
    headers = ((b"www-authenticate", b"Bearer"),)
    """What to send: a 401 must say it (RFC 9110 §15.5.2)."""


class Forbidden(HttpError):
    """The caller may not do this."""

    status = 403
    reason = "Forbidden"


class NotFound(HttpError):
    """There is no such thing."""

    status = 404
    reason = "NotFound"


class MethodNotAllowed(HttpError):
    """This path does not take that method."""

    status = 405
    reason = "MethodNotAllowed"


class RequestTimeout(HttpError):
    """The request did not come in time."""

    status = 408
    reason = "RequestTimeout"


class Conflict(HttpError):
    """It is not in a state that allows this."""

    status = 409
    reason = "Conflict"


class Gone(HttpError):
    """It was here, and is not any more."""

    status = 410
    reason = "Gone"


class PreconditionFailed(HttpError):
    """It has changed meanwhile: read it again."""

    status = 412
    reason = "PreconditionFailed"


class ContentTooLarge(HttpError):
    """The body is larger than this server takes."""

    status = 413
    reason = "ContentTooLarge"


class UnsupportedMediaType(HttpError):
    """A body of this type is not taken here."""

    status = 415
    reason = "UnsupportedMediaType"


class RangeNotSatisfiable(HttpError):
    """The range begins after the end."""

    status = 416
    reason = "RangeNotSatisfiable"


class UnprocessableContent(HttpError):
    """The request is understood, and cannot be carried out."""

    status = 422
    reason = "UnprocessableContent"


class TooManyRequests(HttpError):
    """This comes too often: wait as long as Retry-After says."""

    status = 429
    reason = "TooManyRequests"


class NotImplementedHere(HttpError):
    """The request needs something of HTTP that this server does not have."""

    status = 501
    reason = "NotImplemented"


class InsufficientStorage(HttpError):
    """There is no room for this."""

    status = 507
    reason = "InsufficientStorage"


class UpgradeRequired(HttpError):
    """This path speaks kilnwork-channel: send `Connection: Upgrade, Upgrade: kilnwork-channel`."""

    status = 426
    reason = "UpgradeRequired"
    headers = ((b"connection", b"Upgrade"), (b"upgrade", b"kilnwork-channel"))


class NoOutput(HttpError):
    """What a task has printed cannot be read now."""

    status = 503
    reason = "NoOutput"


class NotReady(HttpError):
    """The server is starting or stopping: ask again in a moment."""

    status = 503
    reason = "ServiceUnavailable"
