"""Arguments of `python -m kilnwork.dispatch`: what is wrong is named."""

import os
from pathlib import Path

import pytest

from kilnwork.dispatch import settings
from kilnwork.kit import errors

COMMON = ["--listen-fd", "0", "--token-file", "/t", "--blobs", "/b"]


def test_durable_dispatcher_gets_its_directory() -> None:
    given = settings.from_arguments(
        [*COMMON, "--directory", "/f", "--idle-seconds", "2.5"], {settings.SYNC_DELAY: "0.005"}
    )
    assert (given.directory, given.blobs, given.token_file) == (Path("/f"), Path("/b"), Path("/t"))
    assert (given.listener, given.owner, given.scratch) == (0, None, None)
    assert (given.idle_s, given.sync_delay_s) == (2.5, 0.005)


def test_volatile_dispatcher_gets_its_owner() -> None:
    given = settings.from_arguments(
        [*COMMON, "--volatile", "--owner-fd", "1", "--scratch", "/s"], {}
    )
    assert (given.directory, given.owner, given.scratch) == (None, 1, Path("/s"))
    assert given.idle_s == settings.IDLE_S


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([*COMMON], "either --directory DIR or --volatile"),
        ([*COMMON, "--directory", "/f", "--volatile"], "either --directory DIR or --volatile"),
        ([*COMMON, "--volatile"], "needs --owner-fd"),
        (["--token-file", "/t", "--blobs", "/b", "--directory", "/f"], "--listen-fd is missing"),
        ([*COMMON, "--directory"], "--directory needs a value"),
        ([*COMMON, "--directory", "/f", "--port", "1"], "unknown argument --port"),
        ([*COMMON, "--directory", "/f", "--idle-seconds", "soon"], "--idle-seconds: 'soon'"),
        ([*COMMON, "--directory", "/f", "--idle-seconds", "nan"], "--idle-seconds: 'nan'"),
        (
            [*COMMON, "--directory", "/f", "--owner-fd", "x"],
            "--owner-fd: 'x' is no open descriptor",
        ),
    ],
)
def test_invalid_argument_is_named(arguments: list[str], problem: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=problem):
        settings.from_arguments(arguments, {})


def test_a_descriptor_that_is_closed_is_named() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    os.close(theirs)
    with pytest.raises(errors.ConfigurationError, match="--owner-fd"):
        settings.from_arguments([*COMMON, "--volatile", "--owner-fd", str(theirs)], {})
