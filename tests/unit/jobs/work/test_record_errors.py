"""Reasons of bad records: the exception and the line of the user's code."""

import contextlib

import pytest

from kilnwork.data import errors as data_errors
from kilnwork.jobs.work import errors, record_errors


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raised(error: Exception) -> Exception:
    with contextlib.suppress(type(error)):
        raise error
    return error


def test_reason_names_class_text_and_line() -> None:
    assert record_errors.reason(KeyError("price")) == "KeyError: 'price'"
    line = raised.__code__.co_firstlineno + 2
    error = raised(ValueError("odd"))
    assert record_errors.reason(error) == f"ValueError: odd (test_record_errors.py:{line})"


@pytest.mark.parametrize("kind", [data_errors.BadRecord, errors.BadResult])
def test_reason_of_own_error_is_its_text(kind: type[Exception]) -> None:
    assert record_errors.reason(raised(kind("no JSON"))) == "no JSON"


def test_reason_of_exception_without_text_is_its_name() -> None:
    assert record_errors.reason(Silent()) == "Silent"
    assert record_errors.reason(ValueError()) == "ValueError"
