"""Error responses as Kubernetes writes them: metav1.Status with its reasons and messages.

Errors are raised anywhere in the API server, and `app` turns them into HTTP responses. Messages
follow k8s.io/apimachinery/pkg/api/errors, since people and client libraries read them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kilnwork.api import api_resources
from kilnwork.controlplane import errors

MAX_BODY_BYTES = 3 * 1024 * 1024
"""Maximum size of a request body: the default of kube-apiserver (`--max-request-bytes`)."""


class Cause(msgspec.Struct, frozen=True):
    """One problem of an object: metav1.StatusCause."""

    field: str
    """Path such as `spec.command[0]`."""
    reason: str
    """One of FieldValueRequired, FieldValueInvalid, FieldValueNotSupported, FieldValueForbidden,
    FieldValueDuplicate, FieldValueTypeInvalid, FieldValueTooLong, …"""
    message: str
    """The message begins as in Kubernetes: `Required value`, `Invalid value: "x": …`."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class StatusError(errors.ControlPlaneError):
    """An error response: HTTP `code`, metav1 `reason`, and a message for people.

    If `details` is None, the Status has no details; empty details are sent, as by Kubernetes.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self._detailed = details is not None
        self.metadata = dict(metadata or {})
        self.headers = dict(headers or {})
        self.warnings: tuple[str, ...] = ()
        """Warnings about the request. Error responses have them as `Warning` headers too."""

    def document(self) -> dict[str, Any]:
        """Return the metav1.Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details or self._detailed:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def body(self) -> bytes:
        """Return the metav1.Status object as encoded JSON."""
        return msgspec.json.encode(self.document())


class AddWarnings:
    """Context manager around a write that adds the warnings of the request to a StatusError.

    A refused write has the same `Warning` headers as a successful one.
    """

    def __init__(self, warnings: tuple[str, ...]) -> None:
        self._warnings = warnings

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, StatusError) and not error.warnings:
            error.warnings = self._warnings


def success(
    what: api_resources.Resource, name: str, *, uid: str = "", message: str = ""
) -> dict[str, Any]:
    """Return the Status of a successful DELETE."""
    document: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if message:
        document["message"] = message
    document["details"] = _details(what, name, uid=uid)
    return document


def _details(what: api_resources.Resource, name: str, **more: str) -> dict[str, Any]:
    details = {"name": name, "group": what.group, "kind": what.plural, **more}
    return {k: v for k, v in details.items() if v}


def not_found(what: api_resources.Resource, name: str) -> StatusError:
    """Return a 404: the object does not exist."""
    return StatusError(
        404, "NotFound", f'{what.qualified} "{name}" not found', details=_details(what, name)
    )


def unknown_path() -> StatusError:
    """Return a 404: a served group has no such resource."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


class PathNotServed(StatusError):
    """A 404 for a path that no API serves.

    It is sent as plain text, like that of Go's default not-found handler.
    """

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def already_exists(what: api_resources.Resource, name: str, *, going: bool = False) -> StatusError:
    """Return a 409: the name is taken.

    `going`: the object with this name is being deleted.
    """
    message = f'{what.qualified} "{name}" already exists'
    if going:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, details=_details(what, name))


def timed_out() -> StatusError:
    """Return a 504: the request was not complete in time."""
    return StatusError(
        504, "Timeout", "Timeout: request did not complete within the allotted timeout", details={}
    )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(what: api_resources.Resource, name: str, why: str = MODIFIED) -> StatusError:
    """Return a 409: the object is not in the state that the client assumes."""
    message = f'Operation cannot be fulfilled on {what.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(what, name))


def unmet(what: api_resources.Resource, name: str, why: str) -> StatusError:
    """Return a 409: a precondition of a deletion does not hold. The message names the kind."""
    kind = f"{what.kind}.{what.group}" if what.group else what.kind
    details = {"name": name, "group": what.group, "kind": what.kind}
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind} "{name}": {why}',
        details={k: v for k, v in details.items() if v},
    )


def invalid(what: api_resources.Resource, name: str, causes: Sequence[Cause]) -> StatusError:
    """Return a 422 that lists all rules that the object breaks."""
    kind = f"{what.kind}.{what.group}" if what.group else what.kind
    # As in ErrorList.ToAggregate, the message lists equal problems once; `causes` has them all.
    texts = list(dict.fromkeys(str(cause) for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if what.group:
        details["group"] = what.group
    details["kind"] = what.kind
    details["causes"] = [
        {"reason": c.reason, "message": c.message, "field": c.field} for c in causes
    ]
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details=details)


def invalid_options(kind: str, causes: Sequence[Cause]) -> StatusError:
    """Return a 422 for invalid query options, of a kind such as ListOptions."""
    group = "meta.k8s.io"
    options = api_resources.Resource(group=group, version="v1", kind=kind, plural="", singular="")
    return invalid(options, "", causes)


def version_required(what: api_resources.Resource, name: str) -> StatusError:
    """Return a 422: an update of this kind must contain a resourceVersion."""
    text = "Invalid value: 0x0: must be specified for an update"
    cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
    error = invalid(what, name, [cause])
    error.message = f'{what.qualified} "{name}" is invalid: {cause}'
    error.details["kind"] = what.plural
    return error


def unpatchable(made: Mapping[str, Any], why: str) -> StatusError:
    """Return a 422: the patched object cannot be decoded as its kind."""
    # Encoded twice: Go shows the JSON as a quoted string.
    shown = msgspec.json.encode(msgspec.json.encode(made).decode()).decode()
    cause = Cause("patch", "FieldValueInvalid", f"Invalid value: {shown}: {why}")
    return StatusError(
        422,
        "Invalid",
        f' "" is invalid: {cause}',
        details={
            "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
        },
    )


def apply_conflict(found: Sequence[tuple[str, str]]) -> StatusError:
    """Return a 409: an apply would change fields of other managers.

    `found` has (manager, path) for each of these fields.
    """
    if len(found) == 1:
        text = f"conflict with {found[0][0]}: {found[0][1]}"
    else:
        lines: list[str] = []
        for manager in dict.fromkeys(manager for manager, _ in found):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {path}" for other, path in found if other == manager]
        text = "\n".join(lines)
    word = "conflict" if len(found) == 1 else "conflicts"
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {manager}",
            "field": path,
        }
        for manager, path in found
    ]
    message = f"Apply failed with {len(found)} {word}: {text}"
    return StatusError(409, "Conflict", message, details={"causes": causes})


def rejected() -> StatusError:
    """Return a 422: a JSON patch does not apply. The message gives no reason, as in Kubernetes."""
    return StatusError(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        details={},
    )


def plain_internal(message: str) -> StatusError:
    """Return a 500 without a reason, as kube-apiserver does for errors of its storage."""
    return StatusError(500, "", message)


def forbidden(
    message: str, *, what: api_resources.Resource | None = None, name: str = ""
) -> StatusError:
    """Return a 403 with exactly this message; `what` and `name` go into the details."""
    details = _details(what, name) if what is not None else {}
    return StatusError(403, "Forbidden", message, details=details)


def refused(what: api_resources.Resource, name: str, why: str) -> StatusError:
    """Return a 403 with the usual prefix: `pods "x" is forbidden: why`."""
    subject = f'{what.qualified} "{name}"' if name else what.qualified
    return forbidden(f"{subject} is forbidden: {why}", what=what, name=name)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    """Return a 401: the request has no valid credential."""
    return StatusError(401, "Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})


def bad_request(message: str) -> StatusError:
    """Return a 400: the request cannot be read."""
    return StatusError(400, "BadRequest", message)


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> StatusError:
    """Return a 405: the resource does not support this verb."""
    return StatusError(405, "MethodNotAllowed", message, details={})


def terminating(what: api_resources.Resource, verb: str) -> StatusError:
    """Return a 405: the definition of the kind is being deleted."""
    text = f"{verb} not allowed while custom resource definition is terminating"
    return StatusError(405, "MethodNotAllowed", text, details=_details(what, ""))


def not_acceptable(message: str) -> StatusError:
    """Return a 406: no format that the client accepts is available."""
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(message: str) -> StatusError:
    """Return a 415: the format of the body is not supported; the message lists supported ones."""
    return StatusError(415, "UnsupportedMediaType", message)


def expired(message: str) -> StatusError:
    """Return a 410: the client must list again.

    Its resourceVersion or continue token is too old.
    """
    return StatusError(410, "Expired", message)


def too_large(limit: int = MAX_BODY_BYTES) -> StatusError:
    """Return a 413: the body exceeds `limit` bytes."""
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def too_many_operations(count: int, limit: int) -> StatusError:
    """Return a 413: a JSON patch has too many operations."""
    return StatusError(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is "
        f"{limit}, got {count}",
    )


def internal(message: str) -> StatusError:
    """Return a 500: an error of the server."""
    text = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", text, details={"causes": [{"message": message}]})


def unavailable(message: str, *, retry_after_s: int = 1) -> StatusError:
    """Return a 503: the client should retry after `retry_after_s`."""
    return StatusError(
        503,
        "ServiceUnavailable",
        message,
        details={"retryAfterSeconds": retry_after_s},
        headers={"Retry-After": str(retry_after_s)},
    )
