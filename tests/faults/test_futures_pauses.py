"""Processes of a home that stand still for longer than a lease, and go on: nothing ends twice.

Each takes more than ten seconds, since leases do: they run with `make test-faults` only.
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
    """All is well at the end, at the price of that many losses a task at most."""
    assert home.result(timeout_s=90) == fault_driver.RESULTS["slow"]
    home.wait_until_gone()
    home.assert_sound(tasks=2, losses=losses)


def test_a_driver_that_slept_misses_nothing(home: fault_home.FaultHome) -> None:
    pause(home, "driver")
    finish(home, losses=0)
    assert len(home.noted()) == 2


def test_a_dispatcher_that_slept_counts_no_loss(home: fault_home.FaultHome) -> None:
    pause(home, "dispatcher")  # nobody renews the lease: the agent ends its slots in time
    finish(home, losses=0)
    assert len(home.noted()) <= 4


def test_an_agent_that_slept_past_its_lease_costs_one_loss(home: fault_home.FaultHome) -> None:
    pause(home, "agent")
    finish(home, losses=1)


def test_slots_that_slept_past_a_lease_go_on(home: fault_home.FaultHome) -> None:
    pause(home, "slot")
    finish(home, losses=0)
    assert len(home.noted()) == 2


def test_a_whole_worker_that_slept_past_its_lease_reports_in_vain(
    home: fault_home.FaultHome,
) -> None:
    pause(home, "agent", "zygote", "slot")
    finish(home, losses=1)


def test_all_that_slept_goes_on(home: fault_home.FaultHome) -> None:
    pause(home, *fault_home.KINDS)
    finish(home, losses=1)


def test_running_tasks_finish_without_their_driver_and_nothing_is_left(
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
