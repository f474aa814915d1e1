"""One class of error for each reaction to a response of the API server."""

import pytest

from kilnwork.kube import errors


@pytest.mark.parametrize(
    ("status", "reason", "kind", "retry"),
    [
        (401, "", errors.Unauthorized, False),
        (403, "", errors.Forbidden, False),
        (404, "", errors.NotFound, False),
        (409, "Conflict", errors.Conflict, True),
        (409, "AlreadyExists", errors.AlreadyExists, False),
        (410, "", errors.Expired, True),
        (422, "AlreadyExists", errors.Invalid, False),
        (400, "", errors.Invalid, False),
        (429, "", errors.TooManyRequests, True),
        (500, "", errors.Unavailable, True),
        (503, "", errors.Unavailable, True),
        (302, "", errors.ApiError, False),
    ],
)
def test_a_status_becomes_the_class_of_its_reaction(
    status: int, reason: str, kind: type[errors.ApiError], *, retry: bool
) -> None:
    found = errors.from_status(status, reason)
    assert type(found) is kind
    assert (found.status, found.reason, found.retry) == (status, reason, retry)


def test_message_is_that_of_the_server_if_any() -> None:
    assert str(errors.from_status(404, "NotFound", "no such pod")) == "no such pod"
    assert "404 NotFound" in str(errors.from_status(404, "NotFound"))
