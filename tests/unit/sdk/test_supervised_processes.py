"""How often a process that ended is started again, and what the worker prints."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from kilnwork.sdk import child_processes, supervised_processes


@dataclass
class Ended:
    """A child that has ended."""

    code: int | None = None
    lives: list[float] = field(default_factory=list)


def kept(
    now: float, before: supervised_processes.SupervisedProcess | None, code: int | None = None
) -> supervised_processes.SupervisedProcess:
    child: child_processes.Child = Ended(code)  # type: ignore[assignment]
    return supervised_processes.SupervisedProcess(child, now, before)


def test_first_restart_is_immediate() -> None:
    assert kept(0.0, None).wait_s(1.0) == 0


def test_short_lived_process_backs_off_and_is_abandoned() -> None:
    one, now, waits = kept(0.0, None), 0.0, []
    while (wait_s := one.wait_s(now)) is not None:
        waits.append(wait_s)
        now += wait_s
        assert one.wait_s(now) == 0
        one = kept(now, one)
    assert waits == pytest.approx([0, 0.2, 0.4, 0.8, 1.6])


def test_a_long_life_makes_up_for_short_ones() -> None:
    one = kept(0.0, None)
    for at in (0.0, 1.0, 2.0):
        assert one.wait_s(at) is not None
        one = kept(at, one)
    assert one.wait_s(1000.0) == 0
    assert kept(1000.0, one).wait_s(1001.0) == 0


def test_a_locked_journal_is_not_tried_again() -> None:
    assert kept(0.0, None, supervised_processes.LOCKED).wait_s(0.0) is None


def test_output_is_decoded_across_reads_and_goes_wherever_stdout_is() -> None:
    output, shown = supervised_processes.Output(), io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            os.write(output.end, "grü".encode()[:-1])
            output.copy()
            os.write(output.end, "grü".encode()[-1:] + b"n\n\xff\n")
            output.copy()
            output.copy()
        assert shown.getvalue() == "grün\n\ufffd\n"
        with contextlib.redirect_stdout(None):  # as in a program without a console
            os.write(output.end, b"no reader\n")
            output.copy()
    finally:
        output.close()
        output.close()


@pytest.mark.parametrize("closed", [(0,), (0, 1, 2)])
def test_pipe_ends_are_never_standard_streams(closed: tuple[int, ...]) -> None:
    source = (
        "import os, sys; from kilnwork.sdk import supervised_processes;"
        "[os.close(int(n)) for n in sys.argv[1:]]; os._exit(min(supervised_processes.pipe()) < 3)"
    )
    subprocess.run([sys.executable, "-c", source, *map(str, closed)], check=True)
