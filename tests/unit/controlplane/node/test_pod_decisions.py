"""What the node does next, for every state of a Pod and its container."""

import math
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.node import pod_decisions, pod_types, shim_container

NOW = pod_decisions.DecisionTime(10.0, 1_700_000_000.0)
RUNNING = shim_container.ContainerRecord("u/main/0", "/f", pid=5, started_at=100.0)
OK = RUNNING._replace(exit_code=0, finished_at=101.0)
BAD = RUNNING._replace(exit_code=1, finished_at=101.0)
REST = None


def pod(
    policy: str = "Never",
    *,
    deleted_grace_s: int | None = None,
    phase: str = "Pending",
    count: int = 1,
    **status: Any,
) -> pod_types.Pod:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "uid": "u"}
    if deleted_grace_s is not None:
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z"
        metadata["deletionGracePeriodSeconds"] = deleted_grace_s
    containers = [{"name": f"main{n or ''}", "command": ["x"]} for n in range(count)]
    spec = {"containers": containers, "restartPolicy": policy, "terminationGracePeriodSeconds": 9}
    obj = {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}
    return msgspec.convert(obj, pod_types.Pod)


def start(number: int) -> pod_decisions.StartContainer:
    return pod_decisions.StartContainer("main", number)


def wait(seconds: float) -> pod_decisions.WaitToStart:
    return pod_decisions.WaitToStart("main", seconds)


def stop(grace_s: float) -> pod_decisions.StopContainer:
    return pod_decisions.StopContainer("main", grace_s)


def view(
    last: shim_container.ContainerRecord | None = None, **more: Any
) -> pod_decisions.ContainerView:
    return pod_decisions.ContainerView(last=last, **more)


@pytest.mark.parametrize(
    ("of", "known", "decision"),
    [
        (pod(), view(), start(0)),
        (pod(), view(RUNNING), REST),
        (pod("Never"), view(OK), REST),
        (pod("Never"), view(BAD), REST),
        (pod("OnFailure"), view(OK), REST),
        (pod("OnFailure"), view(BAD), start(1)),
        (pod("Always"), view(OK), start(1)),
        (pod("Always"), view(BAD, start_at=14.0), wait(4.0)),
        (pod("Always", phase="Failed"), view(BAD), REST),
        (pod(phase="Succeeded"), view(), REST),
        (pod(deleted_grace_s=5), view(), pod_decisions.RemovePod()),
        (pod(deleted_grace_s=5), view(RUNNING), stop(5.0)),
        (pod(deleted_grace_s=5), view(RUNNING, stop_s=5.0), REST),
        (pod(deleted_grace_s=1), view(RUNNING, stop_s=5.0), stop(1.0)),
        (pod(deleted_grace_s=5), view(OK), pod_decisions.RemovePod()),
        (pod(deleted_grace_s=0), view(OK), REST),
    ],
)
def test_decide_returns_expected_decisions(
    of: pod_types.Pod, known: pod_decisions.ContainerView, decision: object
) -> None:
    expected = [] if decision is REST else [decision]
    assert pod_decisions.decide(of, {"main": known}, NOW) == expected


@pytest.mark.parametrize(
    ("known", "decision"),
    [
        (view(), REST),
        (view(RUNNING), stop(3.0)),
        (view(RUNNING, stop_s=3.0), REST),
        (view(BAD), REST),
    ],
)
def test_leaving_node_only_stops_containers(
    known: pod_decisions.ContainerView, decision: object
) -> None:
    leaving = NOW._replace(leaving_s=3.0)
    expected = [] if decision is REST else [decision]
    assert pod_decisions.decide(pod("Always"), {"main": known}, leaving) == expected


def pod_with_status(**state: Any) -> pod_types.Pod:
    return pod(containerStatuses=[{"name": "main", "restartCount": 4, **state}])


def test_start_is_recalled_from_status_without_a_record() -> None:
    terminated = {"exitCode": 3, "finishedAt": "2023-11-14T22:13:20Z"}
    ended = pod_decisions.recall_start(
        pod_with_status(state={"terminated": terminated}), "main", wall=5.0
    )
    assert ended is not None
    assert (ended.number, ended.exit_code, ended.finished_at) == (4, 3, 1_700_000_000.0)
    crashed = pod_with_status(state={"waiting": {}}, lastState={"terminated": terminated})
    assert pod_decisions.recall_start(crashed, "main", wall=5.0) == ended
    waiting = pod_with_status(state={"waiting": {}}, lastState={})
    assert pod_decisions.recall_start(waiting, "main", wall=5.0) is None


def test_running_container_without_record_counts_as_failed() -> None:
    of = pod_with_status(state={"running": {}})
    lost = pod_decisions.recall_start(of, "main", wall=5.0)
    assert lost is not None
    assert (lost.exit_code, lost.reason) == (137, "ContainerStatusUnknown")
    assert pod_decisions.decide(of, {"main": view(lost)}, NOW) == []


def test_restart_delay_grows_after_the_first() -> None:
    known, waits = view(RUNNING), []
    for _ in range(9):
        known = pod_decisions.after_end(known, BAD, now=1000.0)
        waits.append(known.start_at - 1000.0)
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_long_run_resets_the_restart_count() -> None:
    long = BAD._replace(finished_at=100.0 + pod_decisions.STEADY_S)
    assert pod_decisions.after_end(view(RUNNING, row=7), long, now=0.0).row == 1


def pod_with_init_containers(
    policy: str = "Never", *, deleted_grace_s: int | None = None
) -> pod_types.Pod:
    made = pod(policy, deleted_grace_s=deleted_grace_s)
    inits = [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}, {"name": "last"}]
    spec = {
        "initContainers": inits,
        "containers": [{"name": "a"}, {"name": "b"}],
        "restartPolicy": policy,
        "terminationGracePeriodSeconds": 9,
    }
    return msgspec.structs.replace(made, spec=msgspec.convert(spec, pod_types.PodSpec))


def decide(of: pod_types.Pod, **views: pod_decisions.ContainerView) -> list[pod_decisions.Decision]:
    return pod_decisions.decide(of, views, NOW)


def test_init_containers_run_one_after_the_other_and_sidecars_stay() -> None:
    of = pod_with_init_containers()
    done, runs = view(OK), view(RUNNING)
    assert decide(of) == [pod_decisions.StartContainer("first", 0)]
    assert decide(of, first=runs) == []
    assert decide(of, first=done) == [pod_decisions.StartContainer("side", 0)]
    unstarted = view(RUNNING, started=False)
    assert decide(of, first=done, side=unstarted) == []
    assert decide(of, first=done, side=runs) == [pod_decisions.StartContainer("last", 0)]
    both = [pod_decisions.StartContainer("a", 0), pod_decisions.StartContainer("b", 0)]
    assert decide(of, first=done, side=runs, last=done) == both
    assert decide(of, first=done, side=runs, last=done, a=runs, b=done) == []


def test_failed_init_container_is_restarted_or_fails_the_pod() -> None:
    again = [pod_decisions.StartContainer("first", 1)]
    assert decide(pod_with_init_containers("Always"), first=view(BAD)) == again
    assert decide(pod_with_init_containers("OnFailure"), first=view(BAD)) == again
    assert decide(pod_with_init_containers("Never"), first=view(BAD)) == []
    assert pod_decisions.only_sidecars_left(pod_with_init_containers("Never"), {"first": view(BAD)})


def test_sidecar_is_restarted_with_every_policy() -> None:
    views = {"first": view(OK), "side": view(BAD), "last": view(OK), "a": view(RUNNING)}
    wanted = [pod_decisions.StartContainer("side", 1), pod_decisions.StartContainer("b", 0)]
    assert decide(pod_with_init_containers(), **views) == wanted


def test_sidecars_are_stopped_after_main_containers() -> None:
    views = {"first": view(OK), "side": view(RUNNING), "last": view(OK), "a": view(OK)}
    assert decide(pod_with_init_containers(), **views, b=view(BAD)) == [
        pod_decisions.StopContainer("side", 9.0)
    ]
    hasty = msgspec.structs.replace(
        pod_with_init_containers().spec, termination_grace_period_seconds=0
    )
    of = msgspec.structs.replace(pod_with_init_containers(), spec=hasty)
    assert decide(of, **views, b=view(BAD)) == [pod_decisions.StopContainer("side", 2.0)]
    deleted = pod_with_init_containers(deleted_grace_s=5)
    assert decide(deleted, **views, b=view(RUNNING)) == [pod_decisions.StopContainer("b", 5.0)]
    assert decide(deleted, **views, b=view(OK)) == [pod_decisions.StopContainer("side", 2.0)]


def test_container_with_failed_probe_is_stopped_and_restarted() -> None:
    of = pod("OnFailure")
    failing = view(RUNNING, failing="Liveness")
    assert decide(of, main=failing) == [stop(9.0)]
    assert decide(of, main=failing._replace(stop_s=9.0)) == []
    assert decide(of, main=view(OK, failing="Liveness")) == [start(1)]
    assert decide(pod("Never"), main=view(OK, failing="Liveness")) == []


@pytest.mark.parametrize(
    ("failing", "liveness_s", "startup_s", "grace_s"),
    [
        ("Liveness", 3, 4, 3.0),
        ("Startup", 3, 4, 4.0),
        ("PostStart", 3, 4, 9.0),
        ("Liveness", None, 4, 9.0),
        ("Startup", 3, None, 9.0),
    ],
)
def test_grace_period_is_that_of_the_failed_probe(
    failing: str, liveness_s: int | None, startup_s: int | None, grace_s: float
) -> None:
    of = pod("OnFailure")
    probed = msgspec.structs.replace(
        of.spec.containers[0],
        liveness_probe=pod_types.Probe(termination_grace_period_seconds=liveness_s),
        startup_probe=pod_types.Probe(termination_grace_period_seconds=startup_s),
    )
    of = msgspec.structs.replace(of, spec=msgspec.structs.replace(of.spec, containers=(probed,)))
    assert decide(of, main=view(RUNNING, failing=failing)) == [stop(grace_s)]


def test_pod_past_its_deadline_is_stopped() -> None:
    of = pod(startTime="2023-11-14T22:13:00Z")
    late = msgspec.structs.replace(
        of, spec=msgspec.structs.replace(of.spec, active_deadline_seconds=10)
    )
    assert decide(late, main=view(RUNNING)) == [stop(9.0)]
    assert decide(late, main=view(BAD)) == []
    assert pod_decisions.deadline_left_s(late, NOW.wall) == -10.0


def pod_with_ephemeral(*names: str, **more: Any) -> pod_types.Pod:
    """A Pod with these ephemeral containers."""
    of = pod(**more)
    added = tuple(pod_types.EphemeralContainer(name=name, command=("x",)) for name in names)
    spec = msgspec.structs.replace(of.spec, ephemeral_containers=added)
    return msgspec.structs.replace(of, spec=spec)


def started_view(name: str, *, exit_code: int | None = None) -> pod_decisions.ContainerView:
    return pod_decisions.ContainerView(last=RUNNING._replace(id=f"u/{name}/0", exit_code=exit_code))


def test_ephemeral_container_is_started_once() -> None:
    main = {"main": view(RUNNING)}
    assert pod_decisions.decide(pod_with_ephemeral("e"), main, NOW) == [
        pod_decisions.StartContainer("e", 0)
    ]
    for code in (None, 0, 1):
        views = main | {"e": started_view("e", exit_code=code)}
        assert pod_decisions.decide(pod_with_ephemeral("e"), views, NOW) == []
    never = pod_decisions.ContainerView(start_at=math.inf, reason="r", message="it cannot run here")
    assert pod_decisions.decide(pod_with_ephemeral("e", "f"), main | {"e": never}, NOW) == [
        pod_decisions.StartContainer("f", 0)
    ]


def test_many_ephemeral_containers_are_started_in_batches() -> None:
    names = [f"e{number}" for number in range(100)]
    decide = pod_decisions.decide(pod_with_ephemeral(*names), {"main": view(RUNNING)}, NOW)
    first = names[: pod_decisions.MAX_EPHEMERAL_STARTS]
    assert decide == [
        *(pod_decisions.StartContainer(name, 0) for name in first),
        pod_decisions.StartMore(),
    ]


def test_waiting_ephemeral_container_does_not_block_others() -> None:
    names = [f"e{number}" for number in range(20)]
    waits = pod_decisions.ContainerView(reason="r", message="a ConfigMap is missing")
    views = {"main": view(RUNNING), **dict.fromkeys(names[:-1], waits)}
    decide = pod_decisions.decide(pod_with_ephemeral(*names), views, NOW)
    assert decide[0] == pod_decisions.StartContainer("e19", 0)
    assert pod_decisions.StartMore() not in decide
    assert len(decide) == len(names)


@pytest.mark.parametrize(
    ("of", "main"),
    [
        (pod_with_ephemeral("e"), view(OK)),
        (pod_with_ephemeral("e", phase="Failed"), view()),
        (pod_with_ephemeral("e", deleted_grace_s=5), view(RUNNING, stop_s=5.0)),
    ],
    ids=["over", "final", "deleted"],
)
def test_ephemeral_container_is_not_started_in_finished_pod(
    of: pod_types.Pod, main: pod_decisions.ContainerView
) -> None:
    assert pod_decisions.decide(of, {"main": main}, NOW) == []


def test_ephemeral_container_is_stopped_with_the_pod() -> None:
    views = {"main": view(OK), "e": started_view("e")}
    assert pod_decisions.decide(pod_with_ephemeral("e"), views, NOW) == [
        pod_decisions.StopContainer("e", 9.0)
    ]
    views = {"main": view(RUNNING), "e": started_view("e")}
    of = pod_with_ephemeral("e", deleted_grace_s=5)
    assert pod_decisions.decide(of, views, NOW) == [
        stop(5.0),
        pod_decisions.StopContainer("e", 5.0),
    ]


def test_ephemeral_container_without_record_is_not_restarted() -> None:
    status = {"name": "e", "restartCount": 0, "state": {"running": {}}}
    of = pod_with_ephemeral("e", ephemeralContainerStatuses=[status])
    record = pod_decisions.recall_start(of, "e", wall=5.0)
    assert record is not None
    assert (record.id, record.exit_code) == ("u/e/0", shim_container.UNKNOWN)
    waits = {"name": "e", "restartCount": 0, "state": {"waiting": {}}}
    assert (
        pod_decisions.recall_start(
            pod_with_ephemeral("e", ephemeralContainerStatuses=[waits]), "e", wall=5.0
        )
        is None
    )
