"""Errors of the work on a part have one base class and state whether a record is the cause."""

import pytest

from kilnwork.jobs.work import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.BadResult,
        errors.RecordsRefused,
        errors.FailPart,
        errors.MapperUnusable,
        errors.CommandFailed,
    ],
)
def test_every_error_derives_from_work_error(error: type[Exception]) -> None:
    assert error.__bases__ == (errors.WorkError,)


@pytest.mark.parametrize("is_input", [False, True])
def test_refused_records_say_whether_the_input_is_bad(is_input: bool) -> None:  # noqa: FBT001
    assert errors.RecordsRefused("bad", input_=is_input).input is is_input


def test_refused_records_are_not_bad_input_by_default() -> None:
    assert errors.RecordsRefused("bad").input is False
    assert str(errors.RecordsRefused("line 3")) == "line 3"
    assert str(errors.RecordsRefused())
