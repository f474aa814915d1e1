"""Tables: the cells that kubectl shows."""

from typing import Any

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.controlplane.apiserver import tables
from kilnwork.kit import clock
from support import served_kinds

NOW = 1_700_000_000.0
Json = dict[str, Any]


def ago(seconds: float) -> str:
    return clock.rfc3339(NOW - seconds)


def metadata(name: str = "x", *, age_s: float = 90) -> Json:
    return {"name": name, "namespace": "default", "creationTimestamp": ago(age_s)}


def cells(kind: api_resources.Resource, obj: Json) -> dict[str, Any]:
    """Cells by column, of which there must be as many."""
    table = tables.render(served_kinds.kind_of(kind), [obj], now=NOW)
    names = [c["name"] for c in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


def test_task_shows_state_and_hides_reason() -> None:
    obj = {
        "metadata": metadata(),
        "spec": {"clusterName": "counter", "suspend": True},
        "status": {"state": "Running", "attempts": 2, "reason": "Started", "podName": "w-0"},
    }
    assert cells(kinds.TASKS, obj) == {
        "Name": "x",
        "State": "Running",
        "Attempts": 2,
        "Suspend": True,
        "Reason": "Started",
        "Cluster": "counter",
        "Worker": "w-0",
        "Age": "90s",
    }
    hidden = [c.name for c in served_kinds.kind_of(kinds.TASKS).columns if c.priority]
    assert hidden == ["Reason", "Cluster", "Worker"]


def test_new_task_has_empty_cells() -> None:
    found = cells(kinds.TASKS, {"metadata": metadata(), "spec": {}})
    assert found["State"] is None
    assert found["Attempts"] is None


def test_cluster_shows_the_reason_of_its_condition() -> None:
    conditions = [
        {"type": "Other", "reason": "No"},
        {"type": "Available", "reason": "ServiceAccountMissing"},
    ]
    obj = {
        "metadata": metadata(),
        "spec": {"replicas": 3},
        "status": {"readyReplicas": 1, "slots": {"total": 2, "busy": 0}, "conditions": conditions},
    }
    found = cells(kinds.TASK_CLUSTERS, obj)
    assert (found["Replicas"], found["Ready"], found["Slots"], found["Busy"]) == (3, 1, 2, 0)
    assert found["Reason"] == "ServiceAccountMissing"


def test_config_shows_all_its_expressions() -> None:
    def shown(**cron: Any) -> Any:
        spec = {"schedule": {"cron": cron}}
        return cells(kinds.JOB_CONFIGS, {"metadata": metadata(), "spec": spec})["Cron"]

    assert shown(expression="H 2 * * *") == "H 2 * * *"
    assert shown(expressions=["@daily", "@hourly"]) == '["@daily","@hourly"]'
    assert shown() is None


def test_every_kind_has_a_cell_for_every_column() -> None:
    for served in served_kinds.SERVED:
        table = tables.render(served, [{"metadata": metadata()}], now=NOW)
        assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])


def pod(state: Json, *, phase: str = "Running", **status: Any) -> Json:
    container = {"name": "main", "state": state, "restartCount": 0, **status}
    return {
        "metadata": metadata(),
        "spec": {"containers": [{"name": "main"}], "nodeName": "local"},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"running": {}}, "Running"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "CrashLoopBackOff"),
        ({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Completed"),
        ({"terminated": {"exitCode": 3}}, "ExitCode:3"),
        ({"terminated": {"exitCode": 137, "signal": 9}}, "Signal:9"),
    ],
)
def test_pod_status_comes_from_its_container(state: Json, shown: str) -> None:
    assert cells(api_resources.PODS, pod(state))["Status"] == shown


def test_pod_counts_ready_containers_and_restarts() -> None:
    last = {"terminated": {"exitCode": 1, "finishedAt": ago(300)}}
    found = cells(
        api_resources.PODS, pod({"running": {}}, ready=True, restartCount=4, lastState=last)
    )
    assert found["Ready"] == "1/1"
    assert found["Restarts"] == "4 (5m ago)"
    assert found["Node"] == "local"
    assert found["IP"] == "<none>"


def test_deleted_pod_is_terminating_until_finished() -> None:
    running = pod({"running": {}})
    running["metadata"]["deletionTimestamp"] = ago(1)
    assert cells(api_resources.PODS, running)["Status"] == "Terminating"
    over = pod({"terminated": {"exitCode": 0, "reason": "Completed"}}, phase="Succeeded")
    over["metadata"]["deletionTimestamp"] = ago(1)
    assert cells(api_resources.PODS, over)["Status"] == "Completed"


def test_pod_without_status_is_shown() -> None:
    found = cells(api_resources.PODS, {"metadata": metadata(), "spec": {}})
    assert (found["Ready"], found["Restarts"]) == ("0/0", "0")


def test_node_cells() -> None:
    obj = {
        "metadata": {**metadata(), "labels": {"node-role.kubernetes.io/local": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    }
    found = cells(api_resources.NODES, obj)
    assert found["Status"] == "Ready,SchedulingDisabled"
    assert (found["Roles"], found["Version"], found["Internal-IP"]) == ("local", "v1", "127.0.0.1")
    assert cells(api_resources.NODES, {"metadata": metadata()})["Status"] == "Unknown"


def test_kube_event_cells() -> None:
    obj = {
        "metadata": metadata(),
        "involvedObject": {"kind": "Task", "name": "t"},
        "type": "Warning",
        "reason": "Failed",
        "message": "it failed\n",
        "count": 3,
        "firstTimestamp": ago(600),
        "lastTimestamp": ago(5),
        "source": {"component": "kilnwork"},
    }
    found = cells(api_resources.EVENTS, obj)
    assert (found["Last Seen"], found["First Seen"]) == ("5s", "10m")
    assert (found["Object"], found["Message"], found["Count"]) == ("task/t", "it failed", 3)


def test_role_binding_lists_its_subjects() -> None:
    obj = {
        "metadata": metadata(),
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "a", "namespace": "n"},
            {"kind": "User", "name": "u"},
        ],
    }
    found = cells(api_resources.ROLE_BINDINGS, obj)
    assert (found["Role"], found["Users"], found["ServiceAccounts"]) == ("Role/r", "u", "n/a")


def test_rows_contain_the_requested_part_of_the_object() -> None:
    obj = {"metadata": metadata(), "data": {"a": "b"}}
    served = served_kinds.kind_of(api_resources.CONFIG_MAPS)

    def row(include: str) -> Json:
        found: Json = tables.render(served, [obj], now=NOW, include=include)["rows"][0]
        return found

    assert row("None")["object"] is None
    assert row("Metadata")["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in row("Metadata")["object"]
    assert row("Object")["object"] == obj


def test_later_items_of_a_watch_have_no_columns() -> None:
    table = tables.render(served_kinds.kind_of(api_resources.PODS), [], now=NOW, columns=False)
    assert table["columnDefinitions"] == []
    assert table["rows"] == []
