"""What the node does next, for every state of a Pod and its container."""

from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.node import container, lifecycle, pods

RUNNING = container.Record("u/main/0", "/f", pid=5, started_at=100.0)
OK = RUNNING._replace(exit_code=0, finished_at=101.0)
BAD = RUNNING._replace(exit_code=1, finished_at=101.0)
REST = lifecycle.Rest()


def pod(
    policy: str = "Never",
    *,
    deleted_grace_s: int | None = None,
    phase: str = "Pending",
    count: int = 1,
    **status: Any,
) -> pods.Pod:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "uid": "u"}
    if deleted_grace_s is not None:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        metadata["deletionGracePeriodSeconds"] = deleted_grace_s
    containers = [{"name": f"main{n or ''}", "command": ["x"]} for n in range(count)]
    spec = {"containers": containers, "restartPolicy": policy, "terminationGracePeriodSeconds": 9}
    obj = {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}
    return msgspec.convert(obj, pods.Pod)


def view(last: container.Record | None = None, **more: Any) -> lifecycle.View:
    return lifecycle.View(last=last, **more)


@pytest.mark.parametrize(
    ("of", "known", "decision"),
    [
        (pod(), view(), lifecycle.Start(0)),
        (pod(), view(RUNNING), REST),
        (pod("Never"), view(OK), REST),
        (pod("Never"), view(BAD), REST),
        (pod("OnFailure"), view(OK), REST),
        (pod("OnFailure"), view(BAD), lifecycle.Start(1)),
        (pod("Always"), view(OK), lifecycle.Start(1)),
        (pod("Always"), view(BAD, start_at=14.0), lifecycle.Wait(4.0)),
        (pod("Always", phase="Failed"), view(BAD), REST),
        (pod(phase="Succeeded"), view(), REST),
        (pod(deleted_grace_s=5), view(), lifecycle.Remove()),
        (pod(deleted_grace_s=5), view(RUNNING), lifecycle.Stop(5.0)),
        (pod(deleted_grace_s=5), view(RUNNING, stop_s=5.0), REST),
        (pod(deleted_grace_s=1), view(RUNNING, stop_s=5.0), lifecycle.Stop(1.0)),
        (pod(deleted_grace_s=5), view(OK), lifecycle.Remove()),
        (pod(deleted_grace_s=0), view(OK), REST),
    ],
)
def test_decisions(of: pods.Pod, known: lifecycle.View, decision: lifecycle.Decision) -> None:
    assert lifecycle.decide(of, known, now=10.0) == decision


def test_a_pod_with_two_containers_is_refused() -> None:
    decision = lifecycle.decide(pod(count=2), view(), now=0.0)
    assert isinstance(decision, lifecycle.Refuse)


@pytest.mark.parametrize(
    ("known", "decision"),
    [
        (view(), REST),
        (view(RUNNING), lifecycle.Stop(3.0)),
        (view(RUNNING, stop_s=3.0), REST),
        (view(BAD), REST),
    ],
)
def test_a_leaving_node_stops_and_starts_nothing(
    known: lifecycle.View, decision: lifecycle.Decision
) -> None:
    assert lifecycle.decide(pod("Always"), known, now=10.0, leaving_s=3.0) == decision


def test_lost_records_do_not_reuse_a_number() -> None:
    running = {"restartCount": 4, "state": {"running": {}}}
    waiting = {"restartCount": 0, "state": {"waiting": {}}, "lastState": {}}
    assert lifecycle.next_number(pod(containerStatuses=[running]), view()) == 5
    assert lifecycle.next_number(pod(containerStatuses=[waiting]), view()) == 0


def test_the_first_restart_is_at_once_and_later_ones_wait_longer() -> None:
    known, waits = view(RUNNING), []
    for _ in range(9):
        known = lifecycle.ended(known, BAD, now=1000.0)
        waits.append(known.start_at - 1000.0)
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_long_run_starts_the_count_anew() -> None:
    long = BAD._replace(finished_at=100.0 + lifecycle.STEADY_S)
    assert lifecycle.ended(view(RUNNING, row=7), long, now=0.0).row == 1
