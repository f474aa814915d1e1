"""Errors that users catch: their base classes, facts and public names."""

import pytest

import kilnwork as kiln
from kilnwork.sdk import errors


@pytest.mark.parametrize("error", errors.PUBLIC)
def test_a_public_error_is_found_under_the_name_that_tracebacks_show(
    error: type[Exception],
) -> None:
    assert error.__module__ == "kilnwork"
    assert getattr(kiln, error.__name__) is error


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (errors.NoSession, RuntimeError),
        (errors.NotInTask, RuntimeError),
        (errors.BadOption, ValueError),
        (errors.BadOption, errors.ConfigurationError),
        (errors.NotPicklable, TypeError),
        (errors.DispatcherLost, ConnectionError),
        (errors.TaskTimedOut, TimeoutError),
        (errors.TaskTimedOut, errors.TaskError),
        (errors.TaskFailed, errors.TaskError),
        (errors.Cancelled, errors.TaskError),
        (errors.JobFailed, errors.KilnError),
    ],
)
def test_an_error_can_be_caught_as_its_standard_kind(
    error: type[Exception], base: type[Exception]
) -> None:
    assert issubclass(error, base)


def test_facts_are_attributes_of_the_error() -> None:
    failed = errors.TaskFailed("message", task="t", reason="Failed")
    assert (str(failed), failed.task, failed.reason) == ("message", "t", "Failed")
    assert (failed.type, failed.text, failed.traceback) == ("", "", "")
    job = errors.JobFailed("message", job="j", phase="Killed", reason="Asked")
    assert (job.job, job.phase, job.reason) == ("j", "Killed", "Asked")
    assert errors.NotPicklable("message", path="arguments[0]").path == "arguments[0]"


def test_error_without_a_message_has_the_class_docstring() -> None:
    assert "kiln.start()" in str(errors.NoSession())


def test_a_remote_traceback_is_set_off_in_quotes() -> None:
    assert str(errors.RemoteTraceback("line\n\n")) == '\n"""\nline\n"""'
