"""Python functions in Pods of their own on a kubelet's node, under the restricted Pod standard."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.api import manager_access as names
from support import kube_cluster, kube_manager, kube_servers, waiting
from support import remote_driver as far

pytestmark = pytest.mark.timeout(300)

PATIENCE_S = 150
ENFORCED = "pod-security.kubernetes.io/enforce=restricted"
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 12345,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
POD = {
    "spec": {
        "automountServiceAccountToken": False,
        "containers": [{"securityContext": RESTRICTED}],
    }
}


@pytest.fixture(scope="module")
def namespace(kube: kube_cluster.Kube, real_node: str) -> Iterator[str]:
    """Create a namespace with a worker, where Pods must be restricted."""
    manager = kube_manager.Manager(kube, kube_manager.on_real_node(real_node))
    manager.install()
    made = kube_servers.fresh_name("calls")
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": made}}).ok()
    account = f"/api/v1/namespaces/{made}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    manager.allow_drivers(made)
    manager.start_cluster("default", namespace=made)
    kube.kubectl("label", "namespace", made, ENFORCED)
    yield made
    kube.http.delete(f"/api/v1/namespaces/{made}")
    manager.remove()


@pytest.fixture(autouse=True)
def environment(kube: kube_cluster.Kube, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Return an environment with only a kubeconfig, on a machine that sees no socket of the
    manager.
    """
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    monkeypatch.delenv(names.NAMESPACE_VARIABLE, raising=False)
    far.hide_server(monkeypatch, tmp_path)


@kiln.task
def double(number: int) -> int:
    return 2 * number


@kiln.task(pod=POD)
def in_a_pod(large: bytes) -> list[Any]:
    """Return facts about the Pod, a child's result from a worker, and a value that does not fit
    into a message.
    """
    child = double.submit(21)
    mounts = os.path.exists("/var/run/secrets/kubernetes.io")  # noqa: PTH110
    return [os.getuid(), mounts, child.result(), len(large), large]


@kiln.task(pod=POD, retries=1, retry_delay=0)
def fail() -> None:
    raise LookupError(f"no, {kiln.context().attempt}")


@kiln.task(pod=POD, kill_grace=20)
def stay() -> None:
    kiln.context().progress(0.5, "stays")
    time.sleep(PATIENCE_S)


def pods(kube: kube_cluster.Kube, namespace: str) -> list[dict[str, Any]]:
    selected = "?labelSelector=kilnwork.dev%2Fexecutor%3Dpod"
    found = kube.http.get(f"/api/v1/namespaces/{namespace}/pods{selected}").ok()
    return list(found["items"])


def test_calls_in_pods_pass_values_children_and_exceptions(
    kube: kube_cluster.Kube, namespace: str
) -> None:
    large = os.urandom(far.LARGE)
    with kiln.connect(namespace=namespace):
        good, bad = in_a_pod.submit(large), fail.submit()
        assert good.result(PATIENCE_S) == [12345, False, 42, len(large), large]
        with pytest.raises(LookupError, match="no, 2"):
            bad.result(PATIENCE_S)
    waiting.wait_until(
        lambda: not pods(kube, namespace), what="no Pod is left", timeout_s=PATIENCE_S
    )


def test_call_in_a_pod_is_cancelled_by_the_end_of_its_pod(
    kube: kube_cluster.Kube, namespace: str
) -> None:
    def runs() -> bool:
        return any(pod["status"]["phase"] == "Running" for pod in pods(kube, namespace))

    with kiln.connect(namespace=namespace):
        future = stay.submit()
        waiting.wait_until(runs, what="its Pod runs", timeout_s=PATIENCE_S)
        future.cancel()
        with pytest.raises(kiln.Cancelled):
            future.result(PATIENCE_S)
    waiting.wait_until(
        lambda: not pods(kube, namespace), what="no Pod is left", timeout_s=PATIENCE_S
    )
