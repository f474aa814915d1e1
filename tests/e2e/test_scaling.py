"""TaskClusters that grow and shrink while they work: no task is lost or runs twice because of
it.
"""

import functools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.cli import exits
from support import up_server as up_support
from support import waiting

pytestmark = pytest.mark.timeout(120)

CLUSTER = """
apiVersion: kilnwork.dev/v1alpha1
kind: TaskCluster
metadata: {name: THIS}
spec: {replicas: 2, slotsPerWorker: 1}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    """Yield a server for all tests of the module: each test has its own TaskCluster."""
    with up_support.serving(tmp_path_factory.mktemp("up")) as server:
        yield server


@pytest.fixture
def name(up: up_support.UpServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the name of a TaskCluster with two connected workers of one slot each."""
    found = str(request.node.name).removeprefix("test_").replace("_", "-")[:30].strip("-")
    up.kiln("apply", "-f", "-", stdin=CLUSTER.replace("THIS", found))
    up.kiln("wait", f"taskcluster/{found}", "--for=condition=Ready", "--timeout", "60s")
    yield found
    up.kiln("delete", f"taskcluster/{found}", "--no-wait", "--ignore-not-found")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Return the file whose creation ends the tasks of `_run`."""
    return tmp_path / "gate"


def _run(up: up_support.UpServer, cluster: str, task: str, gate: Path | None = None) -> None:
    """Create a task that ends when the gate exists, or at once without one."""
    script = "true" if gate is None else f"while [ ! -e {gate} ]; do sleep 0.1; done"
    up.kiln("run", "--cluster", cluster, "--name", task, "--", "sh", "-c", script)


def _status(up: up_support.UpServer, task: str) -> dict[str, Any]:
    status: dict[str, Any] = up.get("tasks", task).get("status") or {}
    return status


def _runs(up: up_support.UpServer, *tasks: str) -> None:
    waiting.wait_until(
        lambda: all(_status(up, task).get("state") == "Running" for task in tasks),
        what=f"{tasks} run",
    )


def _waits(up: up_support.UpServer, task: str) -> None:
    """Wait until the task's state is written: half a second after creation, unless it has
    started.
    """
    waiting.wait_until(
        lambda: _status(up, task).get("state") == "Pending", what=f"{task} is pending"
    )


def test_busy_workers_finish_their_tasks(up: up_support.UpServer, name: str, gate: Path) -> None:
    first, second, later = f"{name}-first", f"{name}-second", f"{name}-later"
    _run(up, name, first, gate)
    _run(up, name, second, gate.with_name("second"))
    _runs(up, first, second)
    said = up.kiln("scale", name, "--replicas", "0").stdout
    assert said == f"taskcluster/{name}: 0 workers asked for, had 2\n"
    _run(up, name, later)
    gate.touch()
    waiting.wait_until(lambda: _status(up, first)["state"] == "Success", what="the first ends")
    waiting.wait_until(lambda: len(_pods(up, name)) == 1, what="its worker goes")
    _waits(up, later)
    assert _status(up, second)["state"] == "Running"
    gate.with_name("second").touch()
    done = up.kiln("scale", name, "--replicas", "0", "--wait", "--timeout", "60s")
    assert done.stdout.endswith(f"taskcluster/{name}: 0 workers connected\n")
    up.kiln("scale", f"ktc/{name}", "--replicas", "1", "--wait", "--timeout", "60s")
    up.kiln("wait", later, "--timeout", "30s")
    for task in (first, second, later):
        status = _status(up, task)
        assert (status["state"], status["attempts"], status.get("losses", 0)) == ("Success", 1, 0)


def _pods(up: up_support.UpServer, cluster: str) -> list[str]:
    """Return the names of the cluster's worker Pods that are not being deleted."""
    items = json.loads(up.kiln("get", "pods", "-o", "json").stdout)["items"]
    found = [p["metadata"] for p in items if p["metadata"]["name"].startswith(f"{cluster}-")]
    return [metadata["name"] for metadata in found if "deletionTimestamp" not in metadata]


def test_idle_worker_goes_first(up: up_support.UpServer, name: str, gate: Path) -> None:
    task = f"{name}-task"
    _run(up, name, task, gate)
    _runs(up, task)
    holder = _status(up, task)["podName"]
    up.kiln("scale", name, "--replicas", "1", "--wait", "--timeout", "30s")
    assert _pods(up, name) == [holder]
    assert _status(up, task)["state"] == "Running", "no worker waited for it"
    gate.touch()
    up.kiln("wait", task, "--timeout", "30s")
    assert _status(up, task)["attempts"] == 1


def test_waiting_tasks_and_missing_clusters_are_explained(
    up: up_support.UpServer, name: str, gate: Path
) -> None:
    task = f"{name}-task"
    _run(up, name, task, gate)
    _runs(up, task)
    up.kiln("scale", name, "--replicas", "0")
    over = up.kiln("scale", name, "--replicas", "0", "--wait", "--timeout", "1s", check=False)
    assert over.returncode == exits.Exit.TIMED_OUT
    assert "waiting for 0 workers of taskcluster/" in over.stderr
    missing = up.kiln("scale", "nosuch", "--replicas", "1", check=False)
    assert missing.returncode == exits.Exit.NOT_FOUND
    assert "there is no TaskCluster nosuch in namespace default; there are: " in missing.stderr
    assert name in missing.stderr
    many = up.kiln("scale", name, "--replicas", "1001", check=False)
    assert many.returncode != 0
    assert "spec.replicas" in many.stderr
    gate.touch()


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_kubectl_and_autoscalers_see_a_scale(up: up_support.UpServer, name: str) -> None:
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/default/taskclusters/{name}/scale"
    scale = json.loads(up.kubectl("get", "--raw", path).stdout)
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
    pods = up.kubectl("get", "pods", "-o", "name", "-l", scale["status"]["selector"]).stdout
    assert len(pods.splitlines()) == 2
    up.kubectl("scale", f"taskcluster/{name}", "--replicas=3")
    waiting.wait_until(
        lambda: up.get("taskclusters", name)["status"]["readyReplicas"] == 3,
        what="a third worker",
        timeout_s=60,
    )


def test_deleted_cluster_drains(up: up_support.UpServer, name: str, gate: Path) -> None:
    running, waits = f"{name}-running", f"{name}-waits"
    for task in (f"{running}-0", f"{running}-1"):
        _run(up, name, task, gate)
    _runs(up, f"{running}-0", f"{running}-1")
    _run(up, name, waits)
    up.kiln("delete", f"taskcluster/{name}", "--no-wait")
    waiting.wait_until(
        lambda: _status(up, waits).get("reason") == "ClusterDeleted", what="the queue is closed"
    )
    assert _status(up, f"{running}-0")["state"] == "Running"
    assert "(Draining): it is being deleted" in up.kiln("why", f"taskcluster/{name}").stdout
    gate.touch()
    up.kiln("wait", f"taskcluster/{name}", "--for=delete", "--timeout", "60s")
    for task in (f"{running}-0", f"{running}-1"):
        status = _status(up, task)
        assert (status["state"], status["attempts"]) == ("Success", 1)


def test_drain_timeout_stops_running_tasks(up: up_support.UpServer, name: str, gate: Path) -> None:
    task = f"{name}-task"
    _run(up, name, task, gate)
    _runs(up, task)
    sooner = CLUSTER.replace("THIS", name).replace(
        "slotsPerWorker", "drainSeconds: 2, slotsPerWorker"
    )
    up.kiln("apply", "-f", "-", stdin=sooner)
    up.kiln("delete", f"taskcluster/{name}", "--timeout", "40s")
    waiting.wait_until(
        lambda: _status(up, task).get("reason") == "ClusterDeleted", what="it is stopped"
    )


def test_namespace_that_is_deleted_waits_for_no_drain(up: up_support.UpServer) -> None:
    space = "goes-at-once"
    made = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {space}}}}}"
    up.kiln("apply", "-f", "-", stdin=made)
    here = ("-n", space)
    up.kiln("apply", "-f", "-", *here, stdin=CLUSTER.replace("THIS", "default"))
    up.kiln("wait", "taskcluster/default", "--for=condition=Ready", "--timeout", "60s", *here)
    up.kiln("run", "--name", "long", *here, "--", "sleep", "600")
    up.kiln("wait", "long", "--for=state=Running", "--timeout", "30s", *here)
    up.kiln("delete", f"namespace/{space}", "--timeout", "45s")


def test_outdated_workers_are_replaced_while_the_queue_is_full(
    up: up_support.UpServer, name: str, tmp_path: Path
) -> None:
    """Only the task on the draining worker ends, and others wait all the time."""
    script = f'cd {tmp_path}; echo "${{GREETING-old}}" > "$TASK_NAME"; '
    script += 'while [ ! -e "end-$TASK_NAME" ]; do sleep 0.1; done'
    task = "{{apiVersion: kilnwork.dev/v1alpha1, kind: Task, metadata: {{name: {}}}, spec: {}}}"
    spec = json.dumps({"clusterName": name, "command": ["sh", "-c", script]})
    tasks = [f"{name}-{number}" for number in range(6)]
    up.kiln("apply", "-f", "-", stdin="\n---\n".join(task.format(one, spec) for one in tasks))
    waiting.wait_until(lambda: len(list(tmp_path.iterdir())) == 2, what="two run")
    new = "template: {spec: {containers: [{name: worker, env: [{name: GREETING, value: new}]}]}}"
    changed = CLUSTER.replace("THIS", name).replace("slotsPerWorker", f"{new}, slotsPerWorker")
    up.kiln("apply", "-f", "-", stdin=changed)

    def status() -> Any:
        return up.get("taskclusters", name)["status"]

    def drains(left: int) -> re.Match[str] | None:
        said = up.kiln("why", f"taskcluster/{name}").stdout
        return re.search(rf"{left} of 2 workers outdated .* worker (\S+) goes when its task", said)

    def task_on(worker: str) -> str:
        return next((one for one in tasks if _status(up, one).get("podName") == worker), "")

    for left in (2, 1):
        found = waiting.wait_until(lambda: drains(left), what=f"one drains of {left}")  # noqa: B023
        assert found is not None
        its = waiting.wait_until(functools.partial(task_on, found[1]), what="its task says so")
        (tmp_path / f"end-{its}").touch()

    def are_replaced() -> bool:
        now = status()
        return (now.get("updatedReplicas"), now.get("outdatedReplicas", 0)) == (2, 0)

    waiting.wait_until(are_replaced, what="both are replaced")
    assert status()["queued"] >= 2
    for one in tasks:
        (tmp_path / f"end-{one}").touch()
    up.kiln("wait", *tasks, "--timeout", "60s")
    assert all(_status(up, one)["attempts"] == 1 for one in tasks)
    assert sorted((tmp_path / one).read_text() for one in tasks) == ["new\n"] * 4 + ["old\n"] * 2
