"""Errors as responses of the REST API."""

import pytest

from kilnwork.data import errors as data_errors
from kilnwork.jobs import errors as jobs_errors
from kilnwork.kit import asgi
from kilnwork.kube import errors as kube_errors
from kilnwork.server import errors, problems


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asgi.BadParameter("a"), errors.BadRequest),
        (asgi.BodyTooLarge(seen=2, limit=1), errors.ContentTooLarge),
        (asgi.BodyStalled("a"), errors.RequestTimeout),
        (kube_errors.KubeError("a"), errors.NotReady),
        (jobs_errors.NoSuchJob("a"), errors.NotFound),
        (jobs_errors.NotNow("a"), errors.Conflict),
        (jobs_errors.SeveralJobs("a"), errors.Conflict),
        (jobs_errors.InvalidJob("a"), errors.UnprocessableContent),
        (jobs_errors.KeyUsed("a", b"1"), errors.UnprocessableContent),
        (jobs_errors.JobsStopped("a"), errors.NotReady),
        (data_errors.StoreUnreachable("a"), errors.NotReady),
        (data_errors.InputRefused("a"), errors.UnprocessableContent),
        (data_errors.StoreFull("a"), errors.InsufficientStorage),
        (data_errors.BlobNotWritten("a"), errors.InsufficientStorage),
        (data_errors.ObjectMissing("a"), errors.Gone),
        (data_errors.ObjectChanged("a"), errors.Conflict),
    ],
)
def test_each_error_has_its_response(error: Exception, kind: type[errors.HttpError]) -> None:
    found = problems.from_error(error)
    assert type(found) is kind
    assert str(error) in str(found)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        jobs_errors.TickDecided("secret"),
        data_errors.BlobDamaged("secret"),
    ],
)
def test_text_of_unexpected_error_is_not_sent(error: Exception) -> None:
    found = problems.from_error(error)
    assert (type(found), found.status) == (errors.HttpError, 500)
    assert "secret" not in str(found)


def test_http_error_is_sent_unchanged() -> None:
    error = errors.Gone("a")
    assert problems.from_error(error) is error


@pytest.mark.parametrize(
    ("error", "members"),
    [
        (
            asgi.BodyTooLarge(seen=2, limit=1),
            {"field": "body", "limit": 1, "seen": 2, "remedy": "send it in pieces"},
        ),
        (
            data_errors.InputTooLarge("a", limit=1, seen=2, unit="bytes", remedy="b"),
            {"field": "file", "limit": 1, "seen": 2, "unit": "bytes", "remedy": "b"},
        ),
        (data_errors.InputRefused("a", line=3), {"line": 3}),
        (data_errors.InputRefused("a"), {}),
    ],
)
def test_facts_are_members_of_the_problem(error: Exception, members: dict[str, object]) -> None:
    assert problems.from_error(error).members == members
