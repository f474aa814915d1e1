"""Waiting tasks give the reason, and start as soon as it no longer applies."""

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from kilnwork.kit import clock
from support import up_server as up_support
from support import waiting


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    """Yield a server for all tests of the module: each test uses its own names."""
    with up_support.serving(tmp_path_factory.mktemp("up")) as server:
        yield server


def apply(server: up_support.UpServer, kind: str, name: str, **rest: Any) -> None:
    body = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        **rest,
    }
    server.kiln("apply", "-f", "-", stdin=json.dumps(body))


SOON_S = 5.0
"""A second when nothing else runs; a poller would take longer."""


def status(server: up_support.UpServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get("tasks", name).get("status", {})
    return found


def waits_for(server: up_support.UpServer, name: str, reason: str, missing: str) -> None:
    """Wait until the Task is Pending with this reason and its message names what is missing."""
    waiting.wait_until(
        lambda: status(server, name).get("reason") == reason,
        what=f"{name} says {reason}",
    )
    seen = status(server, name)
    assert seen["state"] == "Pending"
    assert missing in seen["message"]
    assert missing in server.kiln("why", name).stdout


def started(server: up_support.UpServer, name: str) -> float:
    """Return the start of its first attempt in the journal, in seconds with microseconds."""
    http = json.loads((server.data / "endpoints.json").read_text())["http"]
    token = (server.data / "token").read_text().strip()
    request = urllib.request.Request(
        f"{http}/v1/namespaces/default/tasks/{name}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return clock.parse_rfc3339(json.load(response)["startTime"])


def starts_soon(server: up_support.UpServer, name: str, created: float) -> None:
    """Check that it starts soon after `created`, the time when the missing object was there."""
    waiting.wait_until(lambda: status(server, name).get("state") == "Success", what=f"{name} runs")
    assert started(server, name) - created <= SOON_S


def test_missing_object_is_named_and_its_creation_starts_the_task(
    up: up_support.UpServer,
) -> None:
    script = 'cp "$KILN_INPUT" "$KILN_OUTPUT"'
    apply(up, "Task", "copies", spec={"command": ["sh", "-c", script], "inputObject": "points"})
    waits_for(up, "copies", "WaitingForObject", "points")
    apply(up, "TaskObject", "points", data={"points": [[1, 2]]})
    created = time.time()
    starts_soon(up, "copies", created)
    assert status(up, "copies")["result"]["value"] == {"input": {"points": [[1, 2]]}}


def test_missing_cluster_is_named(up: up_support.UpServer) -> None:
    apply(up, "Task", "homeless", spec={"command": ["true"], "clusterName": "later"})
    waits_for(up, "homeless", "WaitingForCluster", "later")
    apply(up, "TaskCluster", "later", spec={"replicas": 1})
    created = time.time()
    starts_soon(up, "homeless", created)


def test_missing_account_is_named(up: up_support.UpServer) -> None:
    apply(up, "TaskCluster", "c", spec={"replicas": 1, "serviceAccountName": "missing-account"})
    apply(up, "Task", "nameless", spec={"command": ["true"], "clusterName": "c"})
    waits_for(up, "nameless", "WaitingForServiceAccount", "missing-account")
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "missing-account"}}
    up.kiln("apply", "-f", "-", stdin=json.dumps(body))
    created = time.time()
    starts_soon(up, "nameless", created)


def test_result_of_another_task_is_an_input(up: up_support.UpServer) -> None:
    inputs = [{"name": "a", "task": "first", "path": "$.value"}]
    command = ["sh", "-c", 'cp "$KILN_INPUT" "$KILN_OUTPUT"']
    apply(up, "Task", "second", spec={"command": command, "inputs": inputs})
    waits_for(up, "second", "WaitingForTask", "first")
    apply(
        up, "Task", "first", spec={"command": ["sh", "-c", 'echo {\\"value\\": 7} > $KILN_OUTPUT']}
    )
    starts_soon(up, "second", time.time())
    assert status(up, "second")["result"]["value"] == {"a": 7}


def test_retries_follow_the_policy_and_are_counted(up: up_support.UpServer) -> None:
    script = 'test "$KILN_ATTEMPT" = 3 || exit 4'
    retry = {"maxAttempts": 3, "delaySeconds": 0.05}
    apply(up, "Task", "flaky", spec={"command": ["sh", "-c", script], "retry": retry})
    up.kiln("wait", "task/flaky", "--for", "state=Success", "--timeout", "20s")
    assert status(up, "flaky")["attempts"] == 3


def test_running_timeout_fails_the_task(up: up_support.UpServer) -> None:
    apply(
        up,
        "Task",
        "endless",
        spec={"command": ["sleep", "60"], "timeouts": {"runningSeconds": 0.5}},
    )
    waiting.wait_until(lambda: status(up, "endless").get("state") == "Failed", what="it fails")
    assert status(up, "endless")["reason"] == "TimedOut"


def test_deleting_a_running_task_ends_its_process(up: up_support.UpServer) -> None:
    up.kiln("run", "--name", "deleted", "--", "sleep", "985")
    waiting.wait_until(lambda: "sleep 985" in " ".join(up.leftovers().values()), what="it runs")
    up.kiln("delete", "task", "deleted")
    waiting.wait_until(
        lambda: "sleep 985" not in " ".join(up.leftovers().values()), what="it is gone"
    )


def test_worker_pod_that_is_deleted_is_replaced_and_its_task_runs_again(
    up: up_support.UpServer,
) -> None:
    script = 'test "$KILN_ATTEMPT" -gt 1 || sleep 60'
    up.kiln("run", "--name", "moved", "--", "sh", "-c", script)
    waiting.wait_until(lambda: status(up, "moved").get("state") == "Running", what="it runs")
    up.kiln("delete", "pod", status(up, "moved")["podName"])
    up.kiln("wait", "task/moved", "--for", "state=Success", "--timeout", "60s")
    assert status(up, "moved")["attempts"] == 2


def test_logs_outlive_the_worker(up: up_support.UpServer) -> None:
    up.kiln("run", "--name", "logged", "--watch", "--", "sh", "-c", "echo one; echo two >&2")
    up.kiln("delete", "pod", status(up, "logged")["podName"])
    assert up.kiln("logs", "logged").stdout == "one\ntwo\n"


def test_deleted_cluster_fails_waiting_tasks(up: up_support.UpServer) -> None:
    apply(up, "TaskCluster", "going", spec={"replicas": 1, "drainSeconds": 1})
    apply(up, "Task", "orphan", spec={"command": ["sleep", "60"], "clusterName": "going"})
    waiting.wait_until(lambda: status(up, "orphan").get("state") == "Running", what="it runs")
    up.kiln("delete", "taskcluster", "going")
    waiting.wait_until(
        lambda: status(up, "orphan").get("state") == "Failed", what="it fails", timeout_s=60
    )
    assert status(up, "orphan")["reason"] == "ClusterDeleted"
