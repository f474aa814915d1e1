"""What the status of an ephemeral container means for its attempt."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, pod, reasons
from kilnwork.executors import port
from kilnwork.executors.ephemeral import observation, states_reference
from kilnwork.executors.state_table_types import Counts
from support import pod_statuses as pods

R = reasons.Reason
E = attempts.Ending

ENDS: dict[str, tuple[dict[str, Any], attempts.Ending, str, str]] = {
    "success": (pods.ended(0), E.SUCCEEDED, R.SUCCEEDED, ""),
    "code": (pods.ended(3), E.FAILED, R.NON_ZERO_EXIT, "exit code 3"),
    "its message": (pods.ended(3, message="oops"), E.FAILED, R.NON_ZERO_EXIT, "oops"),
    "again": (pods.ended(75), E.FAILED, R.RETRY_REQUESTED, "75"),
    "memory": (pods.ended(137, reason="OOMKilled"), E.FAILED, R.OUT_OF_MEMORY, "memory"),
    "killed": (pods.ended(137), E.LOST, R.PROCESS_KILLED, "signal 9"),
    "unseen": (
        pods.ended(137, reason="ContainerStatusUnknown", message="lost"),
        E.LOST, R.PROCESS_KILLED, "its container ended, and its end was not seen: lost",
    ),
    "no program": (
        pods.ended(128, reason="StartError", message="no such file"),
        E.FAILED, R.COMMAND_NOT_FOUND, "no such file",
    ),
}  # fmt: skip


def test_the_table_has_every_end_and_what_it_counts_against() -> None:
    counts = {
        row.reason: row.counts
        for row in states_reference.TABLE.rows
        if row.state in ("Failed", "Pending")
    }
    for status, ending, reason, _ in ENDS.values():
        seen = observed(status)
        assert seen.outcome is not None
        if ending is E.SUCCEEDED:
            continue
        wanted = Counts.LOSS if ending is E.LOST else Counts.FAILURE
        assert counts[R(reason)] is wanted


def observed(status: dict[str, Any] | None) -> port.Observation:
    found = None if status is None else msgspec.convert(status, pod.ContainerStatus)
    return observation.observe(pods.made("Running"), found)


@pytest.mark.parametrize("name", ENDS)
def test_an_end(name: str) -> None:
    status, ending, reason, says = ENDS[name]
    seen = observed(status)
    assert seen.phase is port.Phase.OVER
    assert seen.outcome is not None
    assert (seen.outcome.ending, seen.outcome.reason) == (ending, reason)
    assert says in seen.outcome.message
    assert seen.outcome.requested_retry == (reason == R.RETRY_REQUESTED)
    assert (seen.outcome.started, seen.outcome.finished) == (
        pod.parse_time(pods.STARTED), pod.parse_time(pods.FINISHED),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (None, R.STARTING, "was added to Pod t-1-1"),
        (pods.waiting("ContainerCreating"), R.STARTING, "starts its container"),
        (pods.waiting("ImagePullBackOff", "no such tag"), R.IMAGE_PULL, "no such tag"),
        (pods.waiting("CreateContainerError", "bad"), R.CONTAINER_NOT_STARTED, "bad"),
    ],
)
def test_why_it_has_not_started(status: dict[str, Any] | None, reason: str, says: str) -> None:
    seen = observed(status)
    assert (seen.phase, seen.reason, seen.started) == (port.Phase.STAGING, reason, None)
    assert says in seen.message


def test_running_container_has_its_id_as_in_cgroups() -> None:
    seen = observed({**pods.running(), "containerID": "containerd://abc"})
    assert (seen.phase, seen.container) == (port.Phase.RUNNING, "abc")
    assert seen.started == pod.parse_time(pods.STARTED)
    assert seen.node == pods.NODE


@pytest.mark.parametrize(
    ("of_pod", "code", "ending", "reason"),
    [
        ({"deleted": pods.FINISHED}, 143, E.LOST, R.WORKER_STOPPING),
        ({"deleted": pods.FINISHED}, 0, E.SUCCEEDED, R.SUCCEEDED),
        ({"deleted": "2026-01-01T00:01:00Z", "grace": 30}, 3, E.FAILED, R.NON_ZERO_EXIT),
        ({"reason": "Evicted"}, 143, E.LOST, R.EVICTED),
    ],
)
def test_end_of_the_pod_is_a_loss(
    of_pod: dict[str, Any], code: int, ending: attempts.Ending, reason: str
) -> None:
    status = msgspec.convert(pods.ended(code), pod.ContainerStatus)
    outcome = observation.observe(pods.made("Running", **of_pod), status).outcome
    assert outcome is not None
    assert (outcome.ending, outcome.reason) == (ending, reason)
