"""The counter of examples/01-counter on a node of ours in a real cluster: 51 Tasks in a chain."""

import subprocess
import sys

import pytest

from support import kube_manager

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def counter(manager: kube_manager.Manager, namespace: str) -> str:
    """Create a namespace with the counter's TaskCluster and connected workers."""
    manager.kube.apply(*manager.counter_objects(namespace), namespace=namespace)
    manager.allow_drivers(namespace)
    manager.wait_available("counter", namespace=namespace)
    return namespace


def verify(manager: kube_manager.Manager, namespace: str, *arguments: str) -> str:
    """Return the output of verify.py, run with a context that names the namespace."""
    kubeconfig = manager.kube.directory / f"{namespace}.kubeconfig"
    kubeconfig.write_bytes(manager.kube.kubeconfig.read_bytes())
    manager.kube.kubectl(
        "config",
        f"--kubeconfig={kubeconfig}",
        "set-context",
        "--current",
        f"--namespace={namespace}",
    )
    done = subprocess.run(
        [sys.executable, "verify.py", *arguments],
        cwd=kube_manager.COUNTER,
        env={**manager.kube.environment, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{manager.described()}"
    return done.stdout


def test_every_task_spawns_the_next_until_the_limit(
    manager: kube_manager.Manager, counter: str
) -> None:
    before, written = manager.refused_requests(), _statuses(manager)
    start = (kube_manager.COUNTER / "start.yaml").read_text()
    manager.kube.kubectl("apply", f"--namespace={counter}", "-f", "-", stdin=start)
    assert "51 tasks succeeded and the count is 50" in verify(manager, counter)
    assert "reached 50" in manager.kube.kiln("logs", "task-50", "-n", counter).stdout
    workers = manager.kube.get("pods", f"--namespace={counter}")["items"]
    logs = [
        manager.kube.kubectl("logs", f"--namespace={counter}", pod["metadata"]["name"])
        for pod in workers
    ]
    assert sum("reached 50" in log for log in logs) == 1
    assert manager.refusals() == []
    assert manager.refused_requests() == before
    assert 51 <= _statuses(manager) - written <= 2 * 51


def _statuses(manager: kube_manager.Manager) -> int:
    """Return the number of status writes of Tasks so far."""
    return manager.requests("tasks", subresource="status", verb="PUT|PATCH", code="200")


@pytest.mark.curl
def test_curl_counter_makes_no_objects(manager: kube_manager.Manager, counter: str) -> None:
    manager.kube.kiln(
        *("run", "-n", counter, "--cluster", "counter", "--name", "curl-counter"),
        *("--", "sh", "start.sh"),
    )
    assert "51 tasks succeeded and the count is 50" in verify(manager, counter, "--spawned")
    declared = manager.kube.get("tasks", f"--namespace={counter}")["items"]
    assert [task["metadata"]["name"] for task in declared] == ["curl-counter"]
