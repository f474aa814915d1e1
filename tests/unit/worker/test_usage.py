"""What calls have used: of their own, however they run on top of each other."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kilnwork.api import attempts, calls
from kilnwork.kit import ids
from kilnwork.worker import slot_call_table, usage

ARGUMENTS = attempts.Payload(attempts.JSON, b"[[],{}]")
LONG_S = 2 * usage.SHORT_S


def level(seconds: float = LONG_S) -> slot_call_table.StackLevel:
    run = calls.CallRun(attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1), 1, ARGUMENTS, "")
    made = slot_call_table.StackLevel(run, 0.0)
    made.seconds = seconds
    return made


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_cpu_and_peak_of_a_call_are_measured() -> None:
    meter, one = usage.Meter(), level()
    meter.begin(one)
    burn(0.02)
    used = meter.end(one)
    assert used is not None
    assert 0.02 <= used.cpu_s < 1
    assert used.peak_bytes is not None
    assert used.peak_bytes > 1 << 20
    assert meter.end(one) is used, "asked again when its end is reported"


@pytest.mark.parametrize(
    ("min_s", "seconds", "is_measured"),
    [
        (usage.SHORT_S, usage.SHORT_S, True),
        (usage.SHORT_S, 0.9 * usage.SHORT_S, False),
        (0.0, 0.0, True),
    ],
)
def test_short_calls_are_not_measured(min_s: float, seconds: float, *, is_measured: bool) -> None:
    meter, one = usage.Meter(min_s=min_s), level(seconds)
    meter.begin(one)
    assert (meter.end(one) is not None) is is_measured


def test_call_that_never_started_has_used_nothing() -> None:
    assert usage.Meter().end(level()) is None


def test_processes_from_before_the_call_do_not_count() -> None:
    own_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    more_bytes = own_bytes + (200 << 20)
    subprocess.run(
        [sys.executable, "-c", f"held = b'x' * {more_bytes}\nfor _ in range(10**6): pass"],
        check=True,
    )
    meter, one = usage.Meter(), level()
    meter.begin(one)
    used = meter.end(one)
    assert used is not None
    assert used.cpu_s < 0.01
    assert used.peak_bytes is not None
    assert used.peak_bytes < more_bytes


def test_call_on_top_does_not_count_for_the_waiting_call() -> None:
    meter, below, above = usage.Meter(), level(), level()
    meter.begin(below)
    burn(0.01)
    meter.begin(above)
    burn(0.05)
    of_above = meter.end(above)
    burn(0.01)
    of_below = meter.end(below)
    assert of_above is not None
    assert of_below is not None
    assert of_above.cpu_s >= 0.05
    assert 0.02 <= of_below.cpu_s < 0.05


def test_freed_memory_does_not_count_for_the_next_call() -> None:
    meter, large, small = usage.Meter(), level(), level()
    meter.begin(large)
    held = b"x" * (8 * usage.RAISED_BYTES)
    del held
    of_large = meter.end(large)
    meter.begin(small)
    of_small = meter.end(small)
    assert of_large is not None
    assert of_small is not None
    assert of_large.peak_bytes is not None
    assert of_small.peak_bytes is not None
    assert of_small.peak_bytes < of_large.peak_bytes - 4 * usage.RAISED_BYTES
