"""A worker with a memory limit on a kubelet's node: its container has a cgroup that holds it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.api import manager_access as names
from support import kube_cluster, kube_manager, kube_servers, waiting
from support import remote_driver as far

pytestmark = pytest.mark.timeout(300)

LIMIT_MIB = 400


@pytest.fixture(scope="module")
def limited(kube: kube_cluster.Kube, real_node: str) -> Iterator[str]:
    """Create a namespace with a cluster of one worker with two slots, limited to LIMIT_MIB."""
    manager = kube_manager.Manager(kube, kube_manager.on_real_node(real_node))
    manager.install()
    name = kube_servers.fresh_name("memory")
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    manager.allow_drivers(name)
    worker = {"name": "worker", "resources": {"limits": {"memory": f"{LIMIT_MIB}Mi"}}}
    template = {"spec": {"nodeName": real_node, "containers": [worker]}}
    manager.start_cluster("default", namespace=name, slotsPerWorker=2, template=template)
    yield name
    kube.http.delete(f"/api/v1/namespaces/{name}")
    manager.remove()


@kiln.task
def eat(mib: int) -> int:
    """Use so much memory, in steps of 10 MiB."""
    held = [bytearray(b"x" * (10 << 20)) for _ in range(mib // 10)]
    return len(held)


def test_largest_task_fails_and_the_worker_stays(
    kube: kube_cluster.Kube, limited: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    monkeypatch.delenv(names.NAMESPACE_VARIABLE, raising=False)
    far.hide_server(monkeypatch, tmp_path)
    with kiln.connect(namespace=limited):
        assert eat.submit(50).result(timeout=60) == 5
        with pytest.raises(kiln.TaskFailed, match=f"{LIMIT_MIB} MiB") as caught:
            eat.submit(LIMIT_MIB + 200).result(timeout=60)
        assert caught.value.reason == "OutOfMemory"
        assert eat.submit(50).result(timeout=60) == 5
    (pod,) = kube.get("pods", f"--namespace={limited}")["items"]
    assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]
