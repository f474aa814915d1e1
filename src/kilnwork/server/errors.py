"""Errors of the REST API: each is one HTTP answer, sent as problem details (RFC 9457).

Raised in this room, answered by `asgi.problem`.
"""

from kilnwork.kit import errors


class HttpError(errors.KilnError):
    """The request failed."""

    status = 500
    reason = "InternalError"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class BadRequest(HttpError):
    """The request cannot be understood."""

    status = 400
    reason = "BadRequest"


class Unauthorized(HttpError):
    """Unauthorized: send the bearer token (`kiln token` prints it)."""

    status = 401
    reason = "Unauthorized"


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


class Conflict(HttpError):
    """The task is not in a state that allows this."""

    status = 409
    reason = "Conflict"


class TooLarge(HttpError):
    """There is no room for this."""

    status = 507
    reason = "InsufficientStorage"


class UpgradeRequired(HttpError):
    """This path speaks kilnwork-channel: send `Connection: Upgrade, Upgrade: kilnwork-channel`."""

    status = 426
    reason = "UpgradeRequired"
    headers = ((b"connection", b"Upgrade"), (b"upgrade", b"kilnwork-channel"))


class NotReady(HttpError):
    """The server is starting or stopping: ask again in a moment."""

    status = 503
    reason = "ServiceUnavailable"
