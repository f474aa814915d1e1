"""Pods as `kubectl get pods` shows them: a word for what they do, and how often they restarted."""

import re
from typing import Any

import pytest

from support import kube_servers
from support.kube_tables import cells, table

PODS = "/api/v1/namespaces/{}/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": name_, "image": "localhost/none:1"} for name_ in ("main", "side")]
    kept = {"containers": containers, "schedulerName": "unknown"}
    return {"metadata": {"name": name}, "spec": {**kept, **spec}}


def running(name: str, **more: Any) -> dict[str, Any]:
    state = {"running": {"startedAt": "2020-01-01T00:00:00Z"}}
    return status(name, state, ready=True, started=True, **more)


def status(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    given = {"name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return {**given, "state": state, **more}


def ended(name: str, code: int, **more: Any) -> dict[str, Any]:
    return status(name, {"terminated": {"exitCode": code, **more}})


def waiting(name: str, reason: str) -> dict[str, Any]:
    return status(name, {"waiting": {"reason": reason}})


LAST = {"terminated": {"exitCode": 1, "finishedAt": "2020-01-01T00:00:00Z"}}
READY = [{"type": "Ready", "status": "True"}]
INITIALIZED = [{"type": "Initialized", "status": "True"}]
SIDECAR = {"name": "first", "image": "i", "restartPolicy": "Always"}
INITS = [{"name": "first", "image": "i"}, {"name": "second", "image": "i"}]


@pytest.mark.parametrize(
    ("inits", "given", "expected"),
    [
        ([], {"phase": "Pending"}, ("0/2", "Pending")),
        ([], {"phase": "Failed", "reason": "Evicted"}, ("0/2", "Evicted")),
        (
            [],
            {"phase": "Running", "containerStatuses": [running("main"), running("side")]},
            ("2/2", "Running"),
        ),
        (
            [],
            {"phase": "Running", "containerStatuses": [running("main"), ended("side", 0)]},
            ("1/2", "ExitCode:0"),
        ),
        (
            [],
            {
                "phase": "Running",
                "containerStatuses": [running("main"), ended("side", 0, reason="Completed")],
            },
            ("1/2", "NotReady"),
        ),
        (
            [],
            {
                "phase": "Running",
                "conditions": READY,
                "containerStatuses": [running("main"), ended("side", 0, reason="Completed")],
            },
            ("1/2", "Running"),
        ),
        (
            [],
            {"phase": "Failed", "containerStatuses": [ended("main", 1, reason="Error")]},
            ("0/2", "Error"),
        ),
        (
            [],
            {"phase": "Failed", "containerStatuses": [ended("main", 137, signal=9)]},
            ("0/2", "Signal:9"),
        ),
        (
            [],
            {
                "phase": "Pending",
                "containerStatuses": [waiting("main", "ImagePullBackOff")],
            },
            ("0/2", "ImagePullBackOff"),
        ),
        (
            [],
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
                ],
            },
            ("0/2", "SchedulingGated"),
        ),
        (
            INITS,
            {"phase": "Pending", "initContainerStatuses": [running("first")]},
            ("0/2", "Init:0/2"),
        ),
        (
            INITS,
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    ended("first", 0, reason="Completed"),
                    waiting("second", "PodInitializing"),
                ],
            },
            ("0/2", "Init:1/2"),
        ),
        (
            INITS,
            {
                "phase": "Pending",
                "initContainerStatuses": [waiting("first", "CrashLoopBackOff")],
            },
            ("0/2", "Init:CrashLoopBackOff"),
        ),
        (
            INITS,
            {"phase": "Failed", "initContainerStatuses": [ended("first", 3)]},
            ("0/2", "Init:ExitCode:3"),
        ),
        (
            [SIDECAR],
            {
                "phase": "Running",
                "conditions": INITIALIZED,
                "initContainerStatuses": [running("first")],
                "containerStatuses": [running("main"), running("side")],
            },
            ("3/3", "Running"),
        ),
    ],
)
def test_status_cell_of_pods(
    admin: kube_servers.Http,
    namespace: str,
    inits: list[dict[str, Any]],
    given: dict[str, Any],
    expected: tuple[str, str],
) -> None:
    """In one word: the phase, or what is wrong with which container."""
    path = PODS.format(namespace)
    admin.post(path, pod("p", initContainers=inits)).ok()
    admin.patch(f"{path}/p/status", {"status": given}).ok()
    name, ready, word, restarts, *_ = cells(table(admin, path), "p")
    assert (name, ready, word, restarts) == ("p", *expected, "0")


def test_restarts_address_and_gate_cells_of_pods(admin: kube_servers.Http, namespace: str) -> None:
    """How often and when last; where; which gates are open."""
    path = PODS.format(namespace)
    admin.post(path, pod("p", readinessGates=[{"conditionType": "x.y/z"}])).ok()
    first = running("main", restartCount=2, lastState=LAST)
    given = {
        "phase": "Running",
        "podIP": "192.0.2.7",
        "podIPs": [{"ip": "192.0.2.7"}],
        "conditions": [{"type": "x.y/z", "status": "True"}],
        "containerStatuses": [first, running("side", restartCount=1)],
    }
    admin.patch(f"{path}/p/status", {"status": given}).ok()
    shown = cells(table(admin, path), "p")
    assert re.fullmatch(r"3 \(\d+y(\d+d)? ago\)", shown[3])
    assert shown[5:] == ["192.0.2.7", "<none>", "<none>", "1/1"]


def test_rows_of_finished_pods_have_completed_condition(
    admin: kube_servers.Http, namespace: str
) -> None:
    path = PODS.format(namespace)
    admin.post(path, pod("p")).ok()
    assert "conditions" not in table(admin, path)["rows"][0]
    admin.patch(f"{path}/p/status", {"status": {"phase": "Succeeded"}}).ok()
    assert table(admin, path)["rows"][0]["conditions"] == [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ]
