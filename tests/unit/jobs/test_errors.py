"""Errors of jobs have one base class; each has its own data."""

import inspect

import pytest

from kilnwork.jobs import errors
from kilnwork.kit import errors as kit_errors

EVERY = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if found.__module__ == errors.__name__
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: error.__name__)
def test_every_error_derives_from_jobs_error(error: type[Exception]) -> None:
    assert issubclass(error, errors.JobsError)
    assert issubclass(error, kit_errors.KilnError)


def test_no_error_derives_from_another_one() -> None:
    reactions = [error for error in EVERY if error is not errors.JobsError]
    assert all(error.__bases__ == (errors.JobsError,) for error in reactions)


def test_key_used_has_job_and_fingerprint() -> None:
    error = errors.KeyUsed("2026-01-ab", b"digest")
    assert (error.job, error.fingerprint) == ("2026-01-ab", b"digest")
    assert str(error) == "this idempotency key made job 2026-01-ab already"
