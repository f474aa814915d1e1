"""Each error of the REST API has one HTTP status."""

from http import HTTPStatus

import pytest

from kilnwork.server import errors

OWN_REASONS = {
    errors.NoOutput: "NoOutput",
    errors.NotReady: "ServiceUnavailable",
    errors.NotImplementedHere: "NotImplemented",
    errors.HttpError: "InternalError",
}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.HttpError, HTTPStatus.INTERNAL_SERVER_ERROR),
        (errors.BadRequest, HTTPStatus.BAD_REQUEST),
        (errors.Unauthorized, HTTPStatus.UNAUTHORIZED),
        (errors.Forbidden, HTTPStatus.FORBIDDEN),
        (errors.NotFound, HTTPStatus.NOT_FOUND),
        (errors.MethodNotAllowed, HTTPStatus.METHOD_NOT_ALLOWED),
        (errors.RequestTimeout, HTTPStatus.REQUEST_TIMEOUT),
        (errors.Conflict, HTTPStatus.CONFLICT),
        (errors.Gone, HTTPStatus.GONE),
        (errors.PreconditionFailed, HTTPStatus.PRECONDITION_FAILED),
        (errors.ContentTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (errors.UnsupportedMediaType, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
        (errors.RangeNotSatisfiable, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE),
        (errors.UnprocessableContent, HTTPStatus.UNPROCESSABLE_ENTITY),
        (errors.UpgradeRequired, HTTPStatus.UPGRADE_REQUIRED),
        (errors.TooManyRequests, HTTPStatus.TOO_MANY_REQUESTS),
        (errors.NotImplementedHere, HTTPStatus.NOT_IMPLEMENTED),
        (errors.NoOutput, HTTPStatus.SERVICE_UNAVAILABLE),
        (errors.NotReady, HTTPStatus.SERVICE_UNAVAILABLE),
        (errors.InsufficientStorage, HTTPStatus.INSUFFICIENT_STORAGE),
    ],
)
def test_error_has_status_and_reason_of_its_class(
    kind: type[errors.HttpError], status: HTTPStatus
) -> None:
    assert kind.status == status
    assert kind.reason == OWN_REASONS.get(kind, kind.__name__)


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (errors.Unauthorized, (b"www-authenticate", b"Bearer")),
        (errors.UpgradeRequired, (b"upgrade", b"kilnwork-channel")),
    ],
)
def test_required_header_is_sent_by_default(
    kind: type[errors.HttpError], header: tuple[bytes, bytes]
) -> None:
    assert header in kind().headers
    assert kind(headers=()).headers == ()


def test_headers_of_one_error_are_not_those_of_its_class() -> None:
    error = errors.Conflict("a", headers=((b"a", b"1"),), members={"b": 2})
    assert (error.headers, error.members) == (((b"a", b"1"),), {"b": 2})
    assert (errors.Conflict().headers, errors.Conflict().members) == ((), {})
