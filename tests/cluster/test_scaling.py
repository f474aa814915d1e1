"""TaskClusters on the real API server grow, shrink, change and are deleted while they work.

Nothing is lost, nothing runs twice, and no task is charged for it.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support import kube_cluster, kube_load, kube_manager, waiting

pytestmark = pytest.mark.timeout(240)

NAME = kube_load.CLUSTER


@pytest.fixture(scope="module")
def manager(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_manager.Manager]:
    """Run a manager as a Pod on the node with a kubelet."""
    with kube_manager.installed(kube, kube_manager.on_real_node(real_node)) as made:
        yield made


@pytest.fixture
def load(manager: kube_manager.Manager, namespace: str) -> kube_load.Load:
    """Run three connected workers with one slot each."""
    found = kube_load.Load(manager, namespace)
    found.prepare(workers=3, slots=1)
    return found


def _cluster(kube: kube_cluster.Kube, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = kube.get("taskcluster", NAME, f"--namespace={namespace}")
    return found


def _scale(kube: kube_cluster.Kube, namespace: str, replicas: int) -> None:
    kube.kubectl("scale", f"taskcluster/{NAME}", f"--replicas={replicas}", "-n", namespace)


def _wait_workers(load: kube_load.Load, count: int) -> None:
    waiting.wait_until(
        lambda: (load.ready_workers(), len(load.pods())) == (count, count),
        what=f"{count} workers",
        timeout_s=90,
    )


def test_cluster_grows_and_shrinks_under_load(
    kube: kube_cluster.Kube, load: kube_load.Load
) -> None:
    load.start(24, seconds=1)
    load.wait_running(3)
    for replicas in (1, 4, 2, 3, 1):
        _scale(kube, load.namespace, replicas)
        begun = len(load.notes())
        load.start(2, seconds=1)  # a slow machine may have begun all the others by now
        load.wait_running(begun + 2)
    load.check()
    _wait_workers(load, 1)


def test_changed_template_reaches_all_workers_under_load(
    kube: kube_cluster.Kube, load: kube_load.Load
) -> None:
    before = set(load.pods())
    load.start(12, seconds=1)
    load.wait_running(3)
    change = json.dumps({"spec": {"slotsPerWorker": 2}})
    kube.kubectl(
        *("patch", "taskcluster", NAME, "--type=merge", "-p", change, "-n", load.namespace)
    )
    load.check()
    waiting.wait_until(
        lambda: _cluster(kube, load.namespace)["status"]["slots"]["total"] == 6,
        what="all workers are new",
        timeout_s=120,
    )
    assert before.isdisjoint(load.pods()) or len(load.pods()) == 3
    load.start(6, seconds=0.2)
    load.check()


def test_deleted_cluster_drains(kube: kube_cluster.Kube, load: kube_load.Load) -> None:
    load.start(3, seconds=8)
    load.wait_running(3)
    kube.kubectl("delete", "taskcluster", NAME, "--wait=false", "-n", load.namespace)
    load.check()
    waiting.wait_until(
        lambda: kube.get("taskclusters", f"--namespace={load.namespace}")["items"] == [],
        what="it is gone",
        timeout_s=60,
    )
    waiting.wait_until(lambda: load.pods() == [], what="its Pods are gone", timeout_s=60)


def test_autoscaler_reads_its_scale(kube: kube_cluster.Kube, load: kube_load.Load) -> None:
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{load.namespace}/taskclusters/{NAME}/scale"
    scale = json.loads(kube.kubectl("get", "--raw", path))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    selector = scale["status"]["selector"]
    selected = kube.get("pods", f"--namespace={load.namespace}", f"--selector={selector}")
    assert len(selected["items"]) == 3
    target = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "TaskCluster", "name": NAME}
    half = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    kube.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "load", "namespace": load.namespace},
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": 1,
                "maxReplicas": 2,
                "metrics": [{"type": "Resource", "resource": half}],
            },
        }
    )
    _wait_workers(load, 2)  # its maximum, which needs no metrics
