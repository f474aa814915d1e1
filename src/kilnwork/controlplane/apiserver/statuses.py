"""Refusals as Kubernetes writes them: metav1.Status with its reasons and its texts.

Raised anywhere in the API server, turned into an HTTP response in `app`. Texts follow
k8s.io/apimachinery/pkg/api/errors, since people and client libraries read them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kilnwork.api import resource
from kilnwork.controlplane import errors

MAX_BODY_BYTES = 3 * 1024 * 1024
"""Largest request body, as in the real API server (`--max-request-bytes` of its defaults)."""


class Cause(msgspec.Struct, frozen=True):
    """One thing wrong in an object: metav1.StatusCause.

    `field` is a path such as `spec.command[0]`; `reason` one of FieldValueRequired,
    FieldValueInvalid, FieldValueNotSupported, FieldValueForbidden, FieldValueDuplicate,
    FieldValueTypeInvalid, FieldValueTooLong; `message` begins as Kubernetes' do: `Required value`,
    `Invalid value: "x": …`.
    """

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class StatusError(errors.ControlPlaneError):
    """A response other than success: HTTP `code`, metav1 `reason`, and what a person reads.

    `details` None: the Status has none; empty ones are sent, as Kubernetes does.
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
        """Of what was sent, for `Warning` headers: a refused write has them too."""

    def document(self) -> dict[str, Any]:
        """The metav1.Status object."""
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
        """The metav1.Status object as JSON."""
        return msgspec.json.encode(self.document())


class Warned:
    """Around a write: a refusal goes with the warnings that a success would have."""

    def __init__(self, warnings: tuple[str, ...]) -> None:
        self._warnings = warnings

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, StatusError) and not error.warnings:
            error.warnings = self._warnings


def success(
    what: resource.Resource, name: str, *, uid: str = "", message: str = ""
) -> dict[str, Any]:
    """The Status in the response to a finished DELETE."""
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


def _details(what: resource.Resource, name: str, **more: str) -> dict[str, Any]:
    details = {"name": name, "group": what.group, "kind": what.plural, **more}
    return {k: v for k, v in details.items() if v}


def not_found(what: resource.Resource, name: str) -> StatusError:
    """404: no such object."""
    return StatusError(
        404, "NotFound", f'{what.qualified} "{name}" not found', details=_details(what, name)
    )


def unknown_path() -> StatusError:
    """404: no such resource in a group that is there."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


class NoPage(StatusError):
    """404 of a path that no API claims: plain text, as Go's own not-found handler sends."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def already_exists(what: resource.Resource, name: str, *, going: bool = False) -> StatusError:
    """409: the name is taken; `going`: by an object that waits for its finalizers."""
    message = f'{what.qualified} "{name}" already exists'
    if going:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, details=_details(what, name))


def timed_out() -> StatusError:
    """504: the request was not complete in time."""
    return StatusError(
        504, "Timeout", "Timeout: request did not complete within the allotted timeout", details={}
    )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(what: resource.Resource, name: str, why: str = MODIFIED) -> StatusError:
    """409: the object is not as the client believes."""
    message = f'Operation cannot be fulfilled on {what.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(what, name))


def unmet(what: resource.Resource, name: str, why: str) -> StatusError:
    """409: a precondition of a deletion does not hold; the text names the kind."""
    kind = f"{what.kind}.{what.group}" if what.group else what.kind
    details = {"name": name, "group": what.group, "kind": what.kind}
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind} "{name}": {why}',
        details={k: v for k, v in details.items() if v},
    )


def invalid(what: resource.Resource, name: str, causes: Sequence[Cause]) -> StatusError:
    """422: the object breaks the rules of its kind; all of them are named."""
    kind = f"{what.kind}.{what.group}" if what.group else what.kind
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
    """422: the options in the query, of a kind such as ListOptions, make no sense."""
    group = "meta.k8s.io"
    options = resource.Resource(group=group, version="v1", kind=kind, plural="", singular="")
    return invalid(options, "", causes)


def version_required(what: resource.Resource, name: str) -> StatusError:
    """422: an update of this kind must say which version it is of."""
    text = "Invalid value: 0x0: must be specified for an update"
    cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
    error = invalid(what, name, [cause])
    error.message = f'{what.qualified} "{name}" is invalid: {cause}'
    error.details["kind"] = what.plural
    return error


def unpatchable(made: Mapping[str, Any], why: str) -> StatusError:
    """422: what a patch makes of an object is none of its kind."""
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
    """409: others manage fields that an apply patch would change; (manager, path) of each."""
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
    """422: a JSON patch does not apply; the real server does not say why either."""
    return StatusError(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        details={},
    )


def plain_internal(message: str) -> StatusError:
    """500 without a reason: what the real server's storage finds."""
    return StatusError(500, "", message)


def forbidden(
    message: str, *, what: resource.Resource | None = None, name: str = ""
) -> StatusError:
    """403: `message` is the whole text; `what` and `name` go to the details."""
    details = _details(what, name) if what is not None else {}
    return StatusError(403, "Forbidden", message, details=details)


def refused(what: resource.Resource, name: str, why: str) -> StatusError:
    """403 with the usual beginning: `pods "x" is forbidden: why`."""
    subject = f'{what.qualified} "{name}"' if name else what.qualified
    return forbidden(f"{subject} is forbidden: {why}", what=what, name=name)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    """401: no credential, or an unknown one."""
    return StatusError(401, "Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})


def bad_request(message: str) -> StatusError:
    """400: the request cannot be read."""
    return StatusError(400, "BadRequest", message)


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> StatusError:
    """405: the resource exists, but not for this verb."""
    return StatusError(405, "MethodNotAllowed", message, details={})


def terminating(what: resource.Resource, verb: str) -> StatusError:
    """405: the definition of the kind is being deleted."""
    text = f"{verb} not allowed while custom resource definition is terminating"
    return StatusError(405, "MethodNotAllowed", text, details=_details(what, ""))


def not_acceptable(message: str) -> StatusError:
    """406: none of the forms that the client accepts can be served."""
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(message: str) -> StatusError:
    """415: the body is in a form that is not taken here; the message names those that are."""
    return StatusError(415, "UnsupportedMediaType", message)


def expired(message: str) -> StatusError:
    """410: the resourceVersion or continue token is too old; the client lists again."""
    return StatusError(410, "Expired", message)


def too_large(limit: int = MAX_BODY_BYTES) -> StatusError:
    """413: the body is longer than is taken."""
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def too_many_operations(count: int, limit: int) -> StatusError:
    """413: a JSON patch with more operations than are taken."""
    return StatusError(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is "
        f"{limit}, got {count}",
    )


def internal(message: str) -> StatusError:
    """500: our fault."""
    text = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", text, details={"causes": [{"message": message}]})


def unavailable(message: str, *, retry_after_s: int = 1) -> StatusError:
    """503: not now; ask again after `retry_after_s`."""
    return StatusError(
        503,
        "ServiceUnavailable",
        message,
        details={"retryAfterSeconds": retry_after_s},
        headers={"Retry-After": str(retry_after_s)},
    )
