"""Processes of a home that are stopped for longer than a lease, and then continue: no task ends
twice.

Each test takes more than ten seconds, since leases do: they run with `make test-faults` only.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import fault_driver, fault_home, waiting

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(180),
    pytest.mark.skipif("KILN_FAULT_RUNS" not in os.environ, reason="long: make test-faults"),
]

PAUSE_S = 14.0
"""A lease lasts 10 s."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[fault_home.FaultHome]:
    made = fault_home.FaultHome(tmp_path)
    made.start(str(made.directory), "slow")
    try:
        waiting.wait_until(lambda: len(made.noted()) == 2, what=f"both run\n{made.story()}")
        yield made
    finally:
        made.destroy()


def pause(home: fault_home.FaultHome, *kinds: str) -> None:
    """Stop all processes of these kinds for longer than a lease."""
    pids = [pid for kind in kinds for pid in home.pids(kind)]
    assert pids, f"there is no {kinds}"
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(PAUSE_S)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def finish(home: fault_home.FaultHome, *, losses: int) -> None:
    """Assert the result and a clean end, with at most that many losses of a task."""
    assert home.result(timeout_s=90) == fault_driver.RESULTS["slow"]
    home.wait_until_gone()
    home.assert_sound(tasks=2, losses=losses)


def test_paused_driver_misses_no_result(home: fault_home.FaultHome) -> None:
    pause(home, "driver")
    finish(home, losses=0)
    assert len(home.noted()) == 2


def test_paused_dispatcher_counts_no_loss(home: fault_home.FaultHome) -> None:
    pause(home, "dispatcher")  # the lease is not renewed: the agent ends its slots in time
    finish(home, losses=0)
    assert len(home.noted()) <= 4


def test_agent_paused_past_its_lease_costs_one_loss(home: fault_home.FaultHome) -> None:
    pause(home, "agent")
    finish(home, losses=1)


def test_slots_paused_past_a_lease_continue(home: fault_home.FaultHome) -> None:
    pause(home, "slot")
    finish(home, losses=0)
    assert len(home.noted()) == 2


def test_late_reports_of_a_worker_paused_past_its_lease_are_ignored(
    home: fault_home.FaultHome,
) -> None:
    pause(home, "agent", "zygote", "slot")
    finish(home, losses=1)


def test_home_paused_past_a_lease_continues(home: fault_home.FaultHome) -> None:
    pause(home, *fault_home.KINDS)
    finish(home, losses=1)


def test_running_tasks_finish_after_their_driver_is_killed(
    home: fault_home.FaultHome,
) -> None:
    assert home.driver is not None
    home.driver.kill()
    home.driver.wait()
    waiting.wait_until(
        lambda: len(home.rows("SELECT 1 FROM task WHERE state = 'Success'")) == 2,
        what="both have finished",
        timeout_s=30,
    )
    home.wait_until_gone(timeout_s=90)
    home.assert_sound(tasks=2, losses=0)
