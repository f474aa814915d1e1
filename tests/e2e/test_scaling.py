"""TaskClusters that grow and shrink while they work: nothing is lost, nothing runs twice for it."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from kilnwork.cli import exits
from support import up as up_support
from support import waiting

pytestmark = pytest.mark.timeout(120)

CLUSTER = """
apiVersion: kilnwork.dev/v1alpha1
kind: TaskCluster
metadata: {name: THIS}
spec: {replicas: 2, slotsPerWorker: 1}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.Up]:
    """One for all: every test has a TaskCluster of its own."""
    with up_support.serving(tmp_path_factory.mktemp("up")) as server:
        yield server


@pytest.fixture
def name(up: up_support.Up, request: pytest.FixtureRequest) -> Iterator[str]:
    """A TaskCluster of two workers with one slot each, which are connected."""
    found = str(request.node.name).removeprefix("test_").replace("_", "-")[:30].strip("-")
    up.kiln("apply", "-f", "-", stdin=CLUSTER.replace("THIS", found))
    up.kiln("wait", f"taskcluster/{found}", "--for=condition=Ready", "--timeout", "60s")
    yield found
    up.kiln("delete", f"taskcluster/{found}", "--no-wait", "--ignore-not-found")


def _run(up: up_support.Up, cluster: str, task: str, seconds: float) -> None:
    up.kiln("run", "--cluster", cluster, "--name", task, "--", "sleep", str(seconds))


def _status(up: up_support.Up, task: str) -> dict[str, Any]:
    status: dict[str, Any] = up.get("tasks", task).get("status") or {}
    return status


def _runs(up: up_support.Up, *tasks: str) -> None:
    waiting.wait_until(
        lambda: all(_status(up, task).get("state") == "Running" for task in tasks),
        what=f"{tasks} run",
    )


def test_busy_workers_finish_what_they_have(up: up_support.Up, name: str) -> None:
    short, long = f"{name}-short", f"{name}-long"
    _run(up, name, short, 4)
    _run(up, name, long, 8)
    _runs(up, short, long)
    said = up.kiln("scale", name, "--replicas", "0").stdout
    assert said == f"taskcluster/{name}: 0 workers asked for, had 2\n"
    later = f"{name}-later"
    _run(up, name, later, 0)
    done = up.kiln("scale", name, "--replicas", "0", "--wait", "--timeout", "60s")
    assert done.stdout.endswith(f"taskcluster/{name}: 0 workers connected\n")
    for task in (short, long):
        status = _status(up, task)
        assert (status["state"], status["attempts"], status.get("losses", 0)) == ("Success", 1, 0)
    assert _status(up, later)["state"] == "Pending"
    up.kiln("scale", f"ktc/{name}", "--replicas", "1", "--wait", "--timeout", "60s")
    up.kiln("wait", later, "--timeout", "30s")
    assert _status(up, later)["attempts"] == 1


def test_the_idle_worker_goes_first(up: up_support.Up, name: str) -> None:
    task = f"{name}-task"
    _run(up, name, task, 6)
    _runs(up, task)
    holder = _status(up, task)["podName"]
    up.kiln("scale", name, "--replicas", "1", "--wait", "--timeout", "30s")
    assert _status(up, task)["state"] == "Running", "nobody waited for it"
    pods = json.loads(up.kiln("get", "pods", "-o", "json").stdout)["items"]
    left = [p for p in pods if p["metadata"]["name"].startswith(f"{name}-")]
    here = [p["metadata"]["name"] for p in left if "deletionTimestamp" not in p["metadata"]]
    assert here == [holder]
    up.kiln("wait", task, "--timeout", "30s")
    assert _status(up, task)["attempts"] == 1


def test_what_waits_says_why_and_who_asks_in_vain_what_there_is(
    up: up_support.Up, name: str
) -> None:
    task = f"{name}-task"
    _run(up, name, task, 5)
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


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_kubectl_and_autoscalers_see_a_scale(up: up_support.Up, name: str) -> None:
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
