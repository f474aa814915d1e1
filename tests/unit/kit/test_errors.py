"""Errors explain themselves."""

from kilnwork.kit import errors


class Specific(errors.KilnError):
    """Something specific
    went wrong."""


def test_the_docstring_is_the_default_message() -> None:
    assert str(Specific()) == "Something specific went wrong."
    assert str(Specific("the disk is full")) == "the disk is full"


def test_there_is_one_root() -> None:
    assert issubclass(errors.ConfigurationError, errors.KilnError)
    assert "says what to do" in str(errors.ConfigurationError())
