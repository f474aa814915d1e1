"""The cells of a Pod in `kubectl get pods`."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import table_pods
from kilnwork.kit import clock

NOW = 1_700_000_000.0
RUNS = {"name": "c", "ready": True, "state": {"running": {}}}
SIDECAR = {"name": "s", "restartPolicy": "Always"}


def pod(status: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c"}], **more.pop("spec", {})}
    metadata = {"creationTimestamp": clock.rfc3339(NOW - 90), **more}
    return {"metadata": metadata, "spec": spec, "status": status}


def cells(status: dict[str, Any], **more: Any) -> list[Any]:
    return table_pods.cells(pod(status, **more), NOW)


def init(**state: Any) -> dict[str, Any]:
    return {"initContainerStatuses": [{"name": "i", "state": state}], "phase": "Pending"}


def container(**state: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "c", "state": state}]}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({}, ""),
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "SchedulingGated",
        ),
        (container(waiting={"reason": "ErrImagePull"}), "ErrImagePull"),
        (container(terminated={"reason": "OOMKilled"}), "OOMKilled"),
        (container(terminated={"signal": 9}), "Signal:9"),
        (container(terminated={"exitCode": 3}), "ExitCode:3"),
        (init(terminated={"exitCode": 0}), "Pending"),
        (init(terminated={"exitCode": 2}), "Init:ExitCode:2"),
        (init(waiting={"reason": "CrashLoopBackOff"}), "Init:CrashLoopBackOff"),
        (init(waiting={"reason": "PodInitializing"}), "Init:0/1"),
        (init(running={}), "Init:0/1"),
    ],
)
def test_status_cell_matches_kubectl(status: dict[str, Any], word: str) -> None:
    assert cells(status, spec={"initContainers": [{"name": "i"}]})[1] == word


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Failed"}, "Failed"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_deleted_pod_is_terminating(status: dict[str, Any], word: str) -> None:
    assert cells(status, deletionTimestamp="t")[1] == word


@pytest.mark.parametrize(("ready", "word"), [("True", "Running"), ("False", "NotReady")])
def test_completed_container_does_not_hide_a_running_one(ready: str, word: str) -> None:
    done = {"name": "d", "state": {"terminated": {"reason": "Completed"}}}
    conditions = [{"type": "Ready", "status": ready}]
    status = {"phase": "Running", "containerStatuses": [done, RUNS], "conditions": conditions}
    assert cells(status)[1] == word


def test_sidecars_count_as_containers() -> None:
    side = {"name": "s", "started": True, "ready": True, "restartCount": 2}
    status = {"initContainerStatuses": [side], "containerStatuses": [RUNS]}
    assert cells(status, spec={"initContainers": [SIDECAR]})[:3:2] == ["2/2", "2"]


def test_restarts_cell_shows_time_of_the_last_one() -> None:
    last = {"terminated": {"finishedAt": clock.rfc3339(NOW - 30)}}
    status = {"containerStatuses": [RUNS | {"restartCount": 3, "lastState": last}]}
    assert cells(status)[2] == "3 (30s ago)"


def test_wide_cells_show_node_and_address() -> None:
    assert cells({})[3:] == ["90s", "<none>", "<none>", "<none>", "<none>"]
    gates = [{"conditionType": "g"}, {"conditionType": "h"}]
    status = {
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.2"}],
        "nominatedNodeName": "n2",
        "conditions": [{"type": "g", "status": "True"}],
    }
    found = cells(status, spec={"nodeName": "n1", "readinessGates": gates})
    assert found[4:] == ["10.0.0.2", "n1", "n2", "1/2"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_row_of_finished_pod_has_completed_condition(phase: str) -> None:
    (found,) = table_pods.conditions(pod({"phase": phase}))
    assert (found["type"], found["reason"]) == ("Completed", phase)
    assert table_pods.conditions(pod({"phase": "Running"})) == []
