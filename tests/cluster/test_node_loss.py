"""A node with a kubelet is cut off until Kubernetes treats it as lost: NotReady, its Pods evicted.

Its tasks are run elsewhere, each attempt at most once, and every status says why. `make
test-cluster` shortens the grace period of the node controller; with its default of 50 s this takes
longer.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from support import kube_cluster, kube_load, kube_manager, waiting

pytestmark = pytest.mark.timeout(240)

NOTICED_S = 90.0
"""The node controller's grace, at most 50 s, a round of its own (5 s), and a slow machine."""

REPLACED_S = 90.0
"""`worker_pods.LOST_NODE_S`, a new Pod on the other node, and a slow machine."""


@pytest.fixture
def manager(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_manager.Manager]:
    """Run a manager as a Pod on the node that stays."""
    with kube_manager.installed(
        kube, kube_manager.on_real_node(real_node, *kube_manager.SHORT_LEASE)
    ) as made:
        yield made


@pytest.fixture
def load(manager: kube_manager.Manager, namespace: str) -> kube_load.Load:
    """Run a worker with two slots on each of two nodes; both on one when the other is lost."""
    if len(manager.kube.real_nodes()) < 2:
        pytest.skip("needs two nodes: python -m hack.kube run --nodes 2")
    found = kube_load.Load(manager, namespace)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": kube_load.CLUSTER}},
    }
    found.prepare(nodeSelector={}, topologySpreadConstraints=[spread])
    return found


def test_tasks_of_a_lost_node_end_elsewhere(kube: kube_cluster.Kube, load: kube_load.Load) -> None:
    lost = kube.real_nodes()[1]
    victim = _worker_on(kube, load.namespace, lost)
    load.start(12, seconds=3)
    load.wait_running(4)
    # A worker runs tasks before its kubelet reports that its Pod is Ready, and the node controller
    # takes Ready only from what has it: cut off before, the Pod would never name its node.
    waiting.wait_until(lambda: _is_ready(kube, load.namespace, victim), what="its Pod is Ready")
    with kube.lost(lost):
        # First: it is said for `worker_pods.LOST_NODE_S` only, which the tasks may well outlast.
        message = waiting.wait_until(
            lambda: _says(kube, load.namespace, "NodeNotReady"),
            what="the node is named",
            timeout_s=NOTICED_S,
        )
        expected = f"worker {victim} is not connected: its node {lost} is NotReady since 2"
        assert message.startswith(expected)
        load.check(losses=True)
        waiting.wait_until(
            lambda: _losses(kube, load.namespace, f"in Pod {victim} (node {lost})"),
            what="losses are reported",
        )
        waiting.wait_until(
            lambda: _ready_condition(kube, load.namespace)["status"] == "True",
            what="another worker has its place, elsewhere",
            timeout_s=REPLACED_S,
        )
        assert not kube.node_is_ready(lost)
        assert victim in _pods(kube, load.namespace), "Kubernetes keeps it until the node is back"
        load.start(4, seconds=0.2)
        load.check(losses=True)
    waiting.wait_until(
        lambda: victim not in _pods(kube, load.namespace), what="it is gone", timeout_s=60
    )
    load.start(8, seconds=0.5)
    load.check(losses=True)


def _worker_on(kube: kube_cluster.Kube, namespace: str, node: str) -> str:
    found = kube.get("pods", f"--namespace={namespace}", f"--field-selector=spec.nodeName={node}")
    return str(found["items"][0]["metadata"]["name"])


def _is_ready(kube: kube_cluster.Kube, namespace: str, pod: str) -> bool:
    found = kube.get("pod", pod, f"--namespace={namespace}")["status"].get("conditions", ())
    return any((c["type"], c["status"]) == ("Ready", "True") for c in found)


def _losses(kube: kube_cluster.Kube, namespace: str, where: str) -> int:
    """Return the kube events of Tasks about attempts that were lost there."""
    selector = "--field-selector=reason=AttemptLost,involvedObject.kind=Task"
    events = kube.get("events", f"--namespace={namespace}", selector)["items"]
    return sum(where in event["message"] for event in events)


def _pods(kube: kube_cluster.Kube, namespace: str) -> list[str]:
    """Return all Pods, including terminating ones."""
    found = kube.get("pods", f"--namespace={namespace}")["items"]
    return [pod["metadata"]["name"] for pod in found]


def _says(kube: kube_cluster.Kube, namespace: str, reason: str) -> str:
    """Return the message of the TaskCluster's condition with that reason; "" while it has another
    reason.
    """
    condition = _ready_condition(kube, namespace)
    return str(condition["message"]) if condition["reason"] == reason else ""


def _ready_condition(kube: kube_cluster.Kube, namespace: str) -> dict[str, Any]:
    found = kube.get("taskcluster", kube_load.CLUSTER, f"--namespace={namespace}")
    return next(c for c in found["status"]["conditions"] if c["type"] == "Ready")
