"""What the node does next, for every state of a Pod and its container."""

import math
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.node import container, lifecycle, pods

NOW = lifecycle.DecisionTime(10.0, 1_700_000_000.0)
RUNNING = container.ContainerRecord("u/main/0", "/f", pid=5, started_at=100.0)
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
) -> pods.Pod:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "uid": "u"}
    if deleted_grace_s is not None:
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z"
        metadata["deletionGracePeriodSeconds"] = deleted_grace_s
    containers = [{"name": f"main{n or ''}", "command": ["x"]} for n in range(count)]
    spec = {"containers": containers, "restartPolicy": policy, "terminationGracePeriodSeconds": 9}
    obj = {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}
    return msgspec.convert(obj, pods.Pod)


def start(number: int) -> lifecycle.StartContainer:
    return lifecycle.StartContainer("main", number)


def wait(seconds: float) -> lifecycle.WaitToStart:
    return lifecycle.WaitToStart("main", seconds)


def stop(grace_s: float) -> lifecycle.StopContainer:
    return lifecycle.StopContainer("main", grace_s)


def view(last: container.ContainerRecord | None = None, **more: Any) -> lifecycle.ContainerView:
    return lifecycle.ContainerView(last=last, **more)


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
        (pod(deleted_grace_s=5), view(), lifecycle.RemovePod()),
        (pod(deleted_grace_s=5), view(RUNNING), stop(5.0)),
        (pod(deleted_grace_s=5), view(RUNNING, stop_s=5.0), REST),
        (pod(deleted_grace_s=1), view(RUNNING, stop_s=5.0), stop(1.0)),
        (pod(deleted_grace_s=5), view(OK), lifecycle.RemovePod()),
        (pod(deleted_grace_s=0), view(OK), REST),
    ],
)
def test_decisions(of: pods.Pod, known: lifecycle.ContainerView, decision: object) -> None:
    expected = [] if decision is REST else [decision]
    assert lifecycle.decide(of, {"main": known}, NOW) == expected


@pytest.mark.parametrize(
    ("known", "decision"),
    [
        (view(), REST),
        (view(RUNNING), stop(3.0)),
        (view(RUNNING, stop_s=3.0), REST),
        (view(BAD), REST),
    ],
)
def test_a_leaving_node_stops_and_starts_nothing(
    known: lifecycle.ContainerView, decision: object
) -> None:
    leaving = NOW._replace(leaving_s=3.0)
    expected = [] if decision is REST else [decision]
    assert lifecycle.decide(pod("Always"), {"main": known}, leaving) == expected


def shown(**state: Any) -> pods.Pod:
    return pod(containerStatuses=[{"name": "main", "restartCount": 4, **state}])


def test_what_the_status_says_is_recalled_when_records_are_lost() -> None:
    terminated = {"exitCode": 3, "finishedAt": "2023-11-14T22:13:20Z"}
    ended = lifecycle.recall_start(shown(state={"terminated": terminated}), "main", wall=5.0)
    assert ended is not None
    assert (ended.number, ended.exit_code, ended.finished_at) == (4, 3, 1_700_000_000.0)
    crashed = shown(state={"waiting": {}}, lastState={"terminated": terminated})
    assert lifecycle.recall_start(crashed, "main", wall=5.0) == ended
    waiting = shown(state={"waiting": {}}, lastState={})
    assert lifecycle.recall_start(waiting, "main", wall=5.0) is None


def test_what_ran_when_records_were_lost_has_failed_and_is_not_run_twice() -> None:
    of = shown(state={"running": {}})
    lost = lifecycle.recall_start(of, "main", wall=5.0)
    assert lost is not None
    assert (lost.exit_code, lost.reason) == (137, "ContainerStatusUnknown")
    assert lifecycle.decide(of, {"main": view(lost)}, NOW) == []


def test_the_first_restart_is_at_once_and_later_ones_wait_longer() -> None:
    known, waits = view(RUNNING), []
    for _ in range(9):
        known = lifecycle.after_end(known, BAD, now=1000.0)
        waits.append(known.start_at - 1000.0)
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_long_run_resets_the_count() -> None:
    long = BAD._replace(finished_at=100.0 + lifecycle.STEADY_S)
    assert lifecycle.after_end(view(RUNNING, row=7), long, now=0.0).row == 1


def several(policy: str = "Never", *, deleted_grace_s: int | None = None) -> pods.Pod:
    made = pod(policy, deleted_grace_s=deleted_grace_s)
    inits = [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}, {"name": "last"}]
    spec = {
        "initContainers": inits,
        "containers": [{"name": "a"}, {"name": "b"}],
        "restartPolicy": policy,
        "terminationGracePeriodSeconds": 9,
    }
    return msgspec.structs.replace(made, spec=msgspec.convert(spec, pods.PodSpec))


def decided(of: pods.Pod, **views: lifecycle.ContainerView) -> list[lifecycle.Decision]:
    return lifecycle.decide(of, views, NOW)


def test_init_containers_run_one_after_the_other_and_sidecars_stay() -> None:
    of = several()
    done, runs = view(OK), view(RUNNING)
    assert decided(of) == [lifecycle.StartContainer("first", 0)]
    assert decided(of, first=runs) == []
    assert decided(of, first=done) == [lifecycle.StartContainer("side", 0)]
    unstarted = view(RUNNING, started=False)
    assert decided(of, first=done, side=unstarted) == []
    assert decided(of, first=done, side=runs) == [lifecycle.StartContainer("last", 0)]
    both = [lifecycle.StartContainer("a", 0), lifecycle.StartContainer("b", 0)]
    assert decided(of, first=done, side=runs, last=done) == both
    assert decided(of, first=done, side=runs, last=done, a=runs, b=done) == []


def test_an_init_container_that_fails_is_repeated_or_fails_the_pod() -> None:
    again = [lifecycle.StartContainer("first", 1)]
    assert decided(several("Always"), first=view(BAD)) == again
    assert decided(several("OnFailure"), first=view(BAD)) == again
    assert decided(several("Never"), first=view(BAD)) == []
    assert lifecycle.only_sidecars_left(several("Never"), {"first": view(BAD)})


def test_a_sidecar_is_restarted_whatever_the_policy() -> None:
    views = {"first": view(OK), "side": view(BAD), "last": view(OK), "a": view(RUNNING)}
    wanted = [lifecycle.StartContainer("side", 1), lifecycle.StartContainer("b", 0)]
    assert decided(several(), **views) == wanted


def test_sidecars_end_when_the_others_have() -> None:
    views = {"first": view(OK), "side": view(RUNNING), "last": view(OK), "a": view(OK)}
    assert decided(several(), **views, b=view(BAD)) == [lifecycle.StopContainer("side", 9.0)]
    hasty = msgspec.structs.replace(several().spec, termination_grace_period_seconds=0)
    of = msgspec.structs.replace(several(), spec=hasty)
    assert decided(of, **views, b=view(BAD)) == [lifecycle.StopContainer("side", 2.0)]
    deleted = several(deleted_grace_s=5)
    assert decided(deleted, **views, b=view(RUNNING)) == [lifecycle.StopContainer("b", 5.0)]
    assert decided(deleted, **views, b=view(OK)) == [lifecycle.StopContainer("side", 2.0)]


def test_a_container_whose_probes_failed_is_stopped_once_and_starts_again() -> None:
    of = pod("OnFailure")
    failing = view(RUNNING, failing=True)
    assert decided(of, main=failing) == [stop(9.0)]
    assert decided(of, main=failing._replace(stop_s=9.0)) == []
    assert decided(of, main=view(OK, failing=True)) == [start(1)]
    assert decided(pod("Never"), main=view(OK, failing=True)) == []


def test_a_pod_past_its_deadline_is_stopped() -> None:
    of = pod(startTime="2023-11-14T22:13:00Z")
    late = msgspec.structs.replace(
        of, spec=msgspec.structs.replace(of.spec, active_deadline_seconds=10)
    )
    assert decided(late, main=view(RUNNING)) == [stop(9.0)]
    assert decided(late, main=view(BAD)) == []
    assert lifecycle.deadline_left_s(late, NOW.wall) == -10.0


def growing(*names: str, **more: Any) -> pods.Pod:
    """A Pod with these ephemeral containers."""
    of = pod(**more)
    added = tuple(pods.EphemeralContainer(name=name, command=("x",)) for name in names)
    spec = msgspec.structs.replace(of.spec, ephemeral_containers=added)
    return msgspec.structs.replace(of, spec=spec)


def started(name: str, *, exit_code: int | None = None) -> lifecycle.ContainerView:
    return lifecycle.ContainerView(last=RUNNING._replace(id=f"u/{name}/0", exit_code=exit_code))


def test_an_ephemeral_container_is_started_once() -> None:
    main = {"main": view(RUNNING)}
    assert lifecycle.decide(growing("e"), main, NOW) == [lifecycle.StartContainer("e", 0)]
    for code in (None, 0, 1):
        views = main | {"e": started("e", exit_code=code)}
        assert lifecycle.decide(growing("e"), views, NOW) == []
    never = lifecycle.ContainerView(start_at=math.inf, reason="r", message="it cannot run here")
    assert lifecycle.decide(growing("e", "f"), main | {"e": never}, NOW) == [
        lifecycle.StartContainer("f", 0)
    ]


def test_hundreds_of_ephemeral_containers_are_started_by_and_by() -> None:
    names = [f"e{number}" for number in range(100)]
    decided = lifecycle.decide(growing(*names), {"main": view(RUNNING)}, NOW)
    first = names[: lifecycle.MAX_EPHEMERAL_STARTS]
    assert decided == [
        *(lifecycle.StartContainer(name, 0) for name in first),
        lifecycle.StartMore(),
    ]


def test_ephemeral_containers_that_wait_hold_up_no_others() -> None:
    names = [f"e{number}" for number in range(20)]
    waits = lifecycle.ContainerView(reason="r", message="a ConfigMap is missing")
    views = {"main": view(RUNNING), **dict.fromkeys(names[:-1], waits)}
    decided = lifecycle.decide(growing(*names), views, NOW)
    assert decided[0] == lifecycle.StartContainer("e19", 0)
    assert lifecycle.StartMore() not in decided
    assert len(decided) == len(names)


@pytest.mark.parametrize(
    ("of", "main"),
    [
        (growing("e"), view(OK)),
        (growing("e", phase="Failed"), view()),
        (growing("e", deleted_grace_s=5), view(RUNNING, stop_s=5.0)),
    ],
    ids=["over", "final", "deleted"],
)
def test_no_ephemeral_container_starts_in_a_pod_that_is_over(
    of: pods.Pod, main: lifecycle.ContainerView
) -> None:
    assert lifecycle.decide(of, {"main": main}, NOW) == []


def test_an_ephemeral_container_ends_when_the_others_have_or_with_them() -> None:
    views = {"main": view(OK), "e": started("e")}
    assert lifecycle.decide(growing("e"), views, NOW) == [lifecycle.StopContainer("e", 9.0)]
    views = {"main": view(RUNNING), "e": started("e")}
    of = growing("e", deleted_grace_s=5)
    assert lifecycle.decide(of, views, NOW) == [stop(5.0), lifecycle.StopContainer("e", 5.0)]


def test_an_ephemeral_container_that_no_shim_remembers_is_lost_not_started() -> None:
    status = {"name": "e", "restartCount": 0, "state": {"running": {}}}
    of = growing("e", ephemeralContainerStatuses=[status])
    record = lifecycle.recall_start(of, "e", wall=5.0)
    assert record is not None
    assert (record.id, record.exit_code) == ("u/e/0", container.UNKNOWN)
    waits = {"name": "e", "restartCount": 0, "state": {"waiting": {}}}
    assert (
        lifecycle.recall_start(growing("e", ephemeralContainerStatuses=[waits]), "e", wall=5.0)
        is None
    )
