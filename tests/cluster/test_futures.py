"""The futures examples as drivers outside the cluster, with only a kubeconfig."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from support import kube_manager, kube_servers, pages, waiting

pytestmark = pytest.mark.timeout(180)

EXAMPLES = sorted(pages.ROOT.glob("examples/0[2-6]*/*.py"))


@pytest.fixture(scope="module")
def kubeconfig(manager: kube_manager.Manager) -> Iterator[str]:
    """Return a kubeconfig whose namespace has drivers and a TaskCluster `default` with two
    workers.
    """
    kube, namespace = manager.kube, kube_servers.fresh_name("futures")
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).ok()
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    manager.allow_drivers(namespace)
    manager.start_cluster("default", namespace=namespace, replicas=2, slotsPerWorker=2)
    path = kube.directory / f"{namespace}.kubeconfig"
    path.write_bytes(kube.kubeconfig.read_bytes())
    here = f"--namespace={namespace}"
    kube.kubectl("config", f"--kubeconfig={path}", "set-context", "--current", here)
    yield str(path)
    kube.http.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_example_runs_as_on_a_laptop(
    manager: kube_manager.Manager, kubeconfig: str, example: str
) -> None:
    before = _tasks_made(manager)
    done = subprocess.run(
        [sys.executable, str(example), "--connect"],
        env={**manager.kube.environment, "KUBECONFIG": kubeconfig},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{manager.described()}"
    assert _tasks_made(manager) == before, "a spawned task costs no object"


def _tasks_made(manager: kube_manager.Manager) -> int:
    """Return the number of requests that wrote Tasks so far."""
    return manager.requests("tasks", verb="POST|PUT|PATCH")
