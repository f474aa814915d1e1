"""Errors of a link: what a caller may do is in the class."""

import pytest

from kilnwork.channel import errors


def test_refusal_says_why_and_whether_to_retry() -> None:
    error = errors.LinkRefused("version", "speak 1", retry=False)
    assert str(error) == "version: speak 1"
    assert (error.reason, error.message, error.retry) == ("version", "speak 1", False)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.FrameTooLarge, errors.MalformedFrame),
        (errors.LinkForked, errors.LinkClosed),
        (errors.LinkRefused, errors.ChannelError),
    ],
)
def test_every_error_is_a_channel_error(
    kind: type[errors.ChannelError], base: type[errors.ChannelError]
) -> None:
    assert issubclass(kind, base)
    assert not issubclass(errors.LinkRefused, errors.LinkClosed), "connecting again does not help"
