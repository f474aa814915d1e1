"""Commands with pipes read and write in parallel, and none of their processes is left."""

import os
from collections.abc import Callable

import pytest

from kilnwork.jobs.work import errors, pipes
from kilnwork.kit import clock

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Receiver:
    def __init__(self) -> None:
        self.out = b""
        self.bad = b""

    def printed(self, data: bytes) -> None:
        self.out += data

    def reported(self, data: bytes) -> None:
        self.bad += data


def run(command: str, data: bytes, check: Callable[[], None] = lambda: None) -> Receiver:
    receiver = Receiver()
    piped = pipes.Piped(
        ["sh", "-c", command], ENVIRONMENT, receiver, clock=clock.SystemClock(), check=check
    )
    try:
        piped.write(data)
        piped.finish()
    finally:
        piped.close()
        piped.close()  # may be repeated
    return receiver


def test_data_beyond_pipe_size_is_passed() -> None:
    data = b"x" * (4 << 20)
    assert run("cat", data).out == data


def test_reports_are_read_from_descriptor_3() -> None:
    found = run("echo bad >&3; cat", b"good\n")
    assert (found.out, found.bad) == (b"good\n", b"bad\n")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("cat; exit 3", "ended with exit code 3"),
        ("cat; kill -TERM $$", "was ended by SIGTERM"),
        ("exit 0", "did not read the last 2 bytes or more"),
    ],
)
def test_command_must_read_all_and_exit_with_0(command: str, why: str) -> None:
    with pytest.raises(errors.CommandFailed, match=why):
        run(command, b"1\n")


def test_missing_program_is_named() -> None:
    with pytest.raises(errors.MapperUnusable, match="no-such-program cannot be started"):
        pipes.Piped(
            ["no-such-program"],
            ENVIRONMENT,
            Receiver(),
            clock=clock.SystemClock(),
            check=lambda: None,
        )


def test_raising_check_ends_the_command() -> None:
    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run("sleep 60", b"", stop)
