"""What the status of a Pod means: each row of the table, and what is odd in statuses."""

from typing import Any, NamedTuple

import pytest

from kilnwork.api import attempts, pod, reasons, task
from kilnwork.executors import port, state_table_types
from kilnwork.executors.pod import observation, states_reference
from kilnwork.kit import clock
from support import pod_statuses as pods

R = reasons.Reason
S = task.State
E = attempts.Ending

SPEC: dict[str, Any] = {
    "containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}],
    "initContainers": [{"name": "first", "resources": {"limits": {"memory": "8Mi"}}}],
}
KILL = port.Stop(5.0, R.KILLED)
PREEMPTED = "Preemption of this Pod makes room"
ORPHANED = pods.condition(
    "DisruptionTarget", "True", "DeletionByPodGC", "PodGC: node no longer exists"
)
NODE_GONE = (
    pods.condition("Ready", "False"), pods.condition("ContainersReady", "True"),
)  # fmt: skip


class Case(NamedTuple):
    """A Pod, the row of the table that it is of, and what the message must have."""

    row: tuple[task.State, reasons.Reason]
    seen: pod.Pod | None
    says: str = ""
    stop: port.Stop | None = None
    proof: bool = True


CASES = {
    "no node": Case(
        (S.STAGING, R.UNSCHEDULABLE),
        pods.made(
            "Pending",
            node="",
            conditions=[
                pods.condition(
                    "PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 cpu"
                )
            ],
        ),
        "0/3 nodes are available: 3 cpu",
    ),
    "image": Case(
        (S.STAGING, R.IMAGE_PULL),
        pods.made("Pending", pods.waiting("ImagePullBackOff", "Back-off pulling image x")),
        "Back-off pulling image x",
    ),
    "image name": Case(
        (S.STAGING, R.IMAGE_PULL),
        pods.made("Pending", pods.waiting("InvalidImageName", "bad")),
        "InvalidImageName: bad",
    ),
    "config": Case(
        (S.STAGING, R.CONTAINER_NOT_STARTED),
        pods.made("Pending", pods.waiting("CreateContainerConfigError", 'secret "s" not found')),
        'secret "s" not found',
    ),
    "creating": Case(
        (S.STAGING, R.STARTING),
        pods.made("Pending", pods.waiting("ContainerCreating")),
        "is being started",
    ),
    "no status yet": Case((S.STAGING, R.STARTING), pods.made("Pending", node="")),
    "init containers": Case(
        (S.STAGING, R.STARTING),
        pods.made(
            "Pending",
            pods.waiting("PodInitializing"),
            initContainerStatuses=[pods.running("first")],
        ),
    ),
    "node lost unstarted": Case(
        (S.STAGING, R.NODE_LOST), pods.made("Unknown"), "does not hear of node n1"
    ),
    "running": Case((S.RUNNING, R.STARTED), pods.made("Running", pods.running())),
    "one of two runs": Case(
        (S.RUNNING, R.STARTED),
        pods.made("Pending", pods.running(), pods.waiting("ContainerCreating")),
    ),
    "one of two is over": Case(
        (S.RUNNING, R.STARTED), pods.made("Running", pods.ended(1), pods.running("side"))
    ),
    "being deleted": Case(
        (S.RUNNING, R.STARTED), pods.made("Running", pods.running(), deleted=pods.FINISHED)
    ),
    "no times": Case(
        (S.RUNNING, R.STARTED), pods.made("Running", pods.running(since=pods.NO_TIME))
    ),
    "crash loop": Case(
        (S.RUNNING, R.STARTED),
        pods.made(
            "Running", pods.waiting("CrashLoopBackOff", "back-off", last=pods.ended(3), restarts=2)
        ),
        "exit code 3",
    ),
    "node lost": Case(
        (S.RUNNING, R.NODE_LOST),
        pods.made("Running", pods.running(), conditions=NODE_GONE),
        "does not hear of node n1",
    ),
    "unknown": Case((S.RUNNING, R.NODE_LOST), pods.made("Unknown", pods.running())),
    "succeeded": Case((S.SUCCESS, R.SUCCEEDED), pods.made("Succeeded", pods.ended(0))),
    "out of memory once": Case(
        (S.SUCCESS, R.SUCCEEDED),
        pods.made(
            "Succeeded",
            {
                **pods.ended(0),
                "lastState": pods.ended(137, reason="OOMKilled")["state"],
                "restartCount": 1,
            },
        ),
    ),
    "tidied away after success": Case(
        (S.SUCCESS, R.SUCCEEDED), pods.made("Succeeded", pods.ended(0), deleted=pods.FINISHED)
    ),
    "exit 3": Case(
        (S.FAILED, R.NON_ZERO_EXIT),
        pods.made("Failed", pods.ended(3, reason="Error", message="oh no")),
        "container main exited 3: oh no",
    ),
    "init container": Case(
        (S.FAILED, R.NON_ZERO_EXIT),
        pods.made(
            "Failed",
            pods.waiting("PodInitializing"),
            initContainerStatuses=[pods.ended(2, "first")],
        ),
        "container first exited 2",
    ),
    "tidied away after failure": Case(
        (S.FAILED, R.NON_ZERO_EXIT),
        pods.made("Failed", pods.ended(3), deleted="2026-01-01T00:01:00Z", grace=30),
    ),
    "exit 75": Case(
        (S.FAILED, R.RETRY_REQUESTED), pods.made("Failed", pods.ended(75)), "exited 75"
    ),
    "out of memory": Case(
        (S.FAILED, R.OUT_OF_MEMORY),
        pods.made("Failed", pods.ended(137, reason="OOMKilled")),
        "limit of 64Mi",
    ),
    "init out of memory": Case(
        (S.FAILED, R.OUT_OF_MEMORY),
        pods.made("Failed", initContainerStatuses=[pods.ended(137, "first", reason="OOMKilled")]),
        "limit of 8Mi",
    ),
    "no program": Case(
        (S.FAILED, R.COMMAND_NOT_FOUND),
        pods.made(
            "Failed",
            pods.ended(128, reason="StartError", message="no such file", startedAt=pods.NO_TIME),
        ),
        "cannot run: no such file",
    ),
    "deadline": Case(
        (S.FAILED, R.DEADLINE_EXCEEDED),
        pods.made("Failed", reason="DeadlineExceeded", message="Pod was active too long"),
        "active too long",
    ),
    "deadline with code": Case(
        (S.FAILED, R.DEADLINE_EXCEEDED),
        pods.made("Failed", pods.ended(143), reason="DeadlineExceeded", message="too long"),
        "too long",
    ),
    "nothing said": Case((S.FAILED, R.POD_FAILED), pods.made("Failed")),
    "no terminated state": Case(
        (S.FAILED, R.POD_FAILED),
        pods.made("Failed", pods.waiting("ContainerCreating"), reason="Odd", message="who knows"),
        "Odd: who knows",
    ),
    "evicted": Case(
        (S.PENDING, R.EVICTED),
        pods.made("Failed", pods.ended(137), reason="Evicted", message="low on memory"),
        "low on memory",
    ),
    "drained": Case(
        (S.PENDING, R.EVICTED),
        pods.made(
            "Failed",
            pods.ended(143),
            conditions=[pods.condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "x")],
            deleted=pods.FINISHED,
        ),
        "EvictionByEvictionAPI",
    ),
    "preempted by the scheduler": Case(
        (S.PENDING, R.PREEMPTED),
        pods.made(
            "Failed",
            pods.ended(143),
            conditions=[
                pods.condition("DisruptionTarget", "True", "PreemptionByScheduler", PREEMPTED)
            ],
        ),
        PREEMPTED,
    ),
    "preempted by the kubelet": Case(
        (S.PENDING, R.PREEMPTED), pods.made("Failed", reason="Preempting", message="critical Pod")
    ),
    "shutdown": Case(
        (S.PENDING, R.NODE_LOST),
        pods.made("Failed", pods.ended(137), reason="Terminated", message="node shutdown"),
        "node shutdown",
    ),
    "node deleted": Case(
        (S.PENDING, R.NODE_LOST),
        pods.made("Failed", pods.running(), conditions=[ORPHANED]),
        "Pod t-1-1 on node n1: DeletionByPodGC: PodGC: node no longer exists",
    ),
    "node deleted while it is killed": Case(
        (S.KILLED, R.UNCONFIRMED),
        pods.made("Failed", pods.running(), conditions=[ORPHANED], deleted=pods.FINISHED, grace=0),
        "node no longer exists",
        stop=KILL,
    ),
    "refused": Case(
        (S.PENDING, R.NODE_REFUSED),
        pods.made("Failed", reason="OutOfcpu", message="needs 4, has 2"),
        "node n1 refused Pod t-1-1: OutOfcpu: needs 4, has 2",
    ),
    "refused by affinity": Case(
        (S.PENDING, R.NODE_REFUSED), pods.made("Failed", reason="NodeAffinity", message="no")
    ),
    "SIGKILL": Case(
        (S.PENDING, R.PROCESS_KILLED),
        pods.made("Failed", pods.ended(137, reason="Error")),
        "signal 9",
    ),
    "an end that was not seen": Case(
        (S.PENDING, R.PROCESS_KILLED),
        pods.made("Failed", pods.ended(137, reason="ContainerStatusUnknown", message="lost")),
        "container main ended, and its end was not seen: lost",
    ),
    "deleted by a stranger": Case(
        (S.PENDING, R.POD_LOST),
        pods.made("Failed", pods.ended(143), deleted="2026-01-01T00:00:40Z", grace=30),
        "Pod t-1-1 was deleted by another client",
    ),
    "deleted unscheduled": Case(
        (S.PENDING, R.POD_LOST),
        pods.made("Pending", node="", deleted=pods.FINISHED),
        "was deleted by another client",
    ),
    "gone": Case((S.PENDING, R.POD_LOST), None, "was deleted before its end was seen"),
    "being killed": Case(
        (S.KILLING, R.KILLED),
        pods.made("Running", pods.running(), deleted=pods.FINISHED, grace=30),
        stop=KILL,
    ),
    "killed": Case(
        (S.KILLED, R.KILLED),
        pods.made("Failed", pods.ended(143), deleted=pods.FINISHED, grace=5),
        stop=KILL,
    ),
    "killed with 0": Case(
        (S.KILLED, R.KILLED),
        pods.made("Succeeded", pods.ended(0), deleted=pods.FINISHED, grace=5),
        stop=KILL,
    ),
    "killed before a container ran": Case(
        (S.KILLED, R.KILLED),
        pods.made(
            "Failed",
            pods.ended(
                137,
                reason="ContainerStatusUnknown",
                message="could not be located",
                startedAt=None,
                finishedAt=None,
            ),
            deleted=pods.FINISHED,
        ),
        stop=KILL,
    ),
    "killed unscheduled": Case(
        (S.KILLED, R.KILLED), pods.made("Pending", node="", deleted=pods.FINISHED), stop=KILL
    ),
    "killed and gone": Case((S.KILLED, R.KILLED), None, "is gone", stop=KILL),
    "removed by force": Case(
        (S.KILLED, R.UNCONFIRMED), None, "removed by force", stop=KILL, proof=False
    ),
    "end before the kill": Case(
        (S.SUCCESS, R.SUCCEEDED), pods.made("Succeeded", pods.ended(0)), stop=KILL
    ),
    "failure before the kill": Case(
        (S.FAILED, R.NON_ZERO_EXIT), pods.made("Failed", pods.ended(1)), stop=KILL
    ),
}


def observed(case: Case) -> port.Observation:
    if case.seen is None:
        return observation.gone(pods.NAME, case.stop, proof=case.proof)
    return observation.observe(case.seen, case.stop, spec=SPEC)


def state(seen: port.Observation, stop: port.Stop | None) -> task.State:
    """As the dispatcher takes it."""
    if seen.outcome is None:
        going_on = {port.Phase.STAGING: S.STAGING, port.Phase.RUNNING: S.RUNNING}[seen.phase]
        return going_on if stop is None else S.KILLING
    by_ending = {
        E.SUCCEEDED: S.SUCCESS, E.FAILED: S.FAILED, E.LOST: S.PENDING, E.STOPPED: S.KILLED,
    }  # fmt: skip
    return by_ending[seen.outcome.ending]


@pytest.mark.parametrize("name", CASES)
def test_a_pod_is_judged_as_the_table_says(name: str) -> None:
    case = CASES[name]
    seen = observed(case)
    reason = seen.reason
    if case.stop is not None and seen.outcome is None:
        reason = case.stop.reason  # what the task shows then is the intent
    elif seen.outcome is not None and not seen.outcome.proof:
        reason = R.UNCONFIRMED  # what the dispatcher makes of it
    assert (state(seen, case.stop), reason) == case.row
    assert case.says in seen.message
    assert case.row in {(row.state, row.reason) for row in states_reference.TABLE.rows}


def test_each_row_of_the_table_has_a_pod() -> None:
    """Others are judged by the executor (tests/integration/test_pod_tasks.py, names in
    tests/contract), and results by `sidecar` (test_sidecar.py)."""
    elsewhere = ("no Pod", "a Pod that is not ours", "`Succeeded` with", "`Succeeded`, ")
    rows = {r for r in states_reference.TABLE.rows if not r.seen.startswith(elsewhere)}
    judged = {case.row for case in CASES.values()}
    assert [row for row in rows if (row.state, row.reason) not in judged] == []


JUDGED = [
    row
    for row in states_reference.TABLE.rows
    if row.counts and row.seen.startswith(("`Failed`", "deleted"))
]


@pytest.mark.parametrize("row", JUDGED)
def test_end_counts_against_the_budget_of_its_cause(row: state_table_types.Row) -> None:
    endings = {
        seen.outcome.ending: seen.outcome.may_retry
        for case in CASES.values()
        if case.row == (row.state, row.reason) and (seen := observed(case)).outcome is not None
    }
    if row.counts is state_table_types.Counts.LOSS:
        assert endings == {E.LOST: True}
    else:
        assert row.counts is state_table_types.Counts.FAILURE
        assert endings == {E.FAILED: True}


def test_times_are_those_of_the_containers() -> None:
    first = pods.ended(0, "a", startedAt="2026-01-01T00:00:05Z")
    seen = observation.observe(pods.made("Succeeded", first, pods.ended(0, "b")), None, spec=SPEC)
    assert seen.outcome is not None
    assert (seen.outcome.started, seen.outcome.finished) == (
        clock.parse_rfc3339("2026-01-01T00:00:05Z"),
        clock.parse_rfc3339(pods.FINISHED),
    )
    assert seen.node == pods.NODE


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_times_of_1970_are_none(phase: str) -> None:
    unknown = {"startedAt": pods.NO_TIME, "finishedAt": pods.NO_TIME}
    code = 0 if phase == "Succeeded" else 1
    seen = observation.observe(pods.made(phase, pods.ended(code, **unknown)), None, spec=SPEC)
    assert seen.outcome is not None
    assert (seen.outcome.started, seen.outcome.finished) == (None, None)


def test_a_running_pod_without_times_runs_since_it_was_created() -> None:
    seen = observation.observe(
        pods.made("Running", pods.running(since=pods.NO_TIME)), None, spec=SPEC
    )
    assert seen.started == clock.parse_rfc3339(pods.CREATED)


def test_failed_container_takes_precedence_over_ended_ones() -> None:
    both = pods.made("Failed", pods.ended(0), pods.ended(4, "other"))
    seen = observation.observe(both, None, spec=SPEC)
    assert seen.outcome is not None
    assert seen.outcome.exit_code == 4


@pytest.mark.parametrize("spec", [{}, {"containers": [{"name": "main"}]}, {"containers": "odd"}])
def test_without_a_limit_none_is_named(spec: dict[str, object]) -> None:
    assert observation.memory_limit(spec, "main") == ""
