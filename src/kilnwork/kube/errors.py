"""Errors of requests to a Kubernetes API, one class for each reaction of the caller.

`retry` of the class says whether repeating the request later may help. Messages are the server's
own if it sent one, so that people see what kubectl would show.
"""

from typing import Any, ClassVar

from kilnwork.kit import errors


class KubeError(errors.KilnError):
    """A request to the Kubernetes API failed."""


class Untrusted(KubeError):
    """The server's certificate is not trusted, because of its CA, host name or dates."""


class NotSynced(KubeError):
    """The caches of a manager were not filled in time."""


class ApiError(KubeError):
    """The Kubernetes API responded with an error.

    `status` is the HTTP status (0: no response); `reason` and `details` are those of metav1.Status;
    `retry_after_s` is the time in Retry-After, if the server sent it.
    """

    retry: ClassVar[bool] = False

    def __init__(
        self,
        status: int = 0,
        reason: str = "",
        message: str = "",
        *,
        details: dict[str, Any] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message or str(self)
        self.details = details or {}
        self.retry_after_s = retry_after_s


class NotFound(ApiError):
    """The requested object, or its kind, does not exist."""


class AlreadyExists(ApiError):
    """An object with this name already exists."""


class Conflict(ApiError):
    """The object has changed since it was read: read it again."""

    retry = True


class Expired(ApiError):
    """The resourceVersion or continue token is too old: list again."""

    retry = True


class Invalid(ApiError):
    """The server refuses the request as invalid; repeating it unchanged does not help."""


class Forbidden(ApiError):
    """The server accepts the credential, but does not permit the request."""


class Unauthorized(ApiError):
    """The server does not accept the credential."""


class TooManyRequests(ApiError):
    """The server is busy: wait `retry_after_s` and repeat the request."""

    retry = True


class Unavailable(ApiError):
    """The server failed or cannot be reached: retry later.

    The request may have been carried out.
    """

    retry = True


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    429: TooManyRequests,
}


def from_status(
    status: int,
    reason: str = "",
    message: str = "",
    *,
    details: dict[str, Any] | None = None,
    retry_after_s: float | None = None,
) -> ApiError:
    """Return an error of the class for an HTTP status and for the reason in a metav1.Status."""
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = Unavailable if status >= 500 else Invalid if status >= 400 else ApiError
    # 409 has two meanings, which only the reason distinguishes.
    if status == 409 and reason == "AlreadyExists":
        kind = AlreadyExists
    text = message or f"the server responded with {status} {reason}".rstrip()
    return kind(status, reason, text, details=details, retry_after_s=retry_after_s)
