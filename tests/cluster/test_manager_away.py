"""The manager is replaced, drained from its node, down for a while, doubled: no task is affected.

The tasks run through all of that, and end when the test releases them.
"""

import dataclasses
import threading
from collections.abc import Iterator

import pytest

from support import kube_cluster, kube_load, kube_manager, waiting

pytestmark = pytest.mark.timeout(420)

AWAY_S = 45.0
_STATEFUL_SET = "statefulset/kilnwork-manager"
_SECOND = "kilnwork-manager-1"
_HERE = f"--namespace={kube_manager.NAMESPACE}"


@pytest.fixture(scope="module")
def manager(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_manager.Manager]:
    """Run a manager with a volume on either node; its workers run on the other one."""
    del real_node
    nodes = kube.real_nodes()
    if len(nodes) < 2:
        pytest.skip("needs two nodes: python -m hack.kube run --nodes 2")
    home = kube_manager.Home(options=("--pull-policy", "IfNotPresent"))
    made = kube_manager.Manager(kube, home)
    try:
        made.install()
        other = next(name for name in nodes if name != _node(kube))
        spec = kube_manager.on_real_node(other).spec
        made.home = dataclasses.replace(home, spec=spec)
        yield made
    finally:
        for name in nodes:
            kube.kubectl("uncordon", name)
        made.remove()


def test_tasks_run_on_through_a_rollout_a_drain_and_an_absence(
    kube: kube_cluster.Kube, manager: kube_manager.Manager, namespace: str
) -> None:
    load = kube_load.Load(manager, namespace)
    load.prepare(workers=2, slots=4)
    pods = load.pods()
    load.start(8, seconds=None)
    load.wait_running(8)

    kube.kubectl("rollout", "restart", _STATEFUL_SET, _HERE)
    kube.kubectl("rollout", "status", _STATEFUL_SET, _HERE, "--timeout=60s", timeout_s=70)
    _wait_back(load)

    left = _node(kube)
    kube.kubectl("drain", left, "--ignore-daemonsets", "--delete-emptydir-data", timeout_s=90)
    manager.wait_ready()
    assert _node(kube) != left
    _wait_back(load)
    kube.kubectl("uncordon", left)

    kube.kubectl("scale", _STATEFUL_SET, _HERE, "--replicas=0")
    waiting.wait_until(lambda: not _pods(kube), what="the manager is gone", timeout_s=60)
    assert not threading.Event().wait(AWAY_S)
    kube.kubectl("scale", _STATEFUL_SET, _HERE, "--replicas=1")
    manager.wait_ready()
    _wait_back(load)

    load.release()
    load.check()
    assert load.pods() == pods


def test_second_manager_does_not_lead_with_another_journal(
    kube: kube_cluster.Kube, manager: kube_manager.Manager, namespace: str
) -> None:
    load = kube_load.Load(manager, namespace)
    load.prepare(workers=2)
    load.start(4, seconds=None)
    load.wait_running(4)
    kube.kubectl("scale", _STATEFUL_SET, _HERE, "--replicas=2")
    try:
        waiting.wait_until(lambda: _refusals(kube), what="the second says why", timeout_s=60)
        before = kube.get("pod", kube_manager.POD, _HERE)["metadata"]["uid"]
        kube.kubectl("delete", "pod", kube_manager.POD, _HERE)
        waiting.wait_until(lambda: _uid(kube) not in ("", before), what="the next Pod is there")
        manager.wait_ready()
        _wait_back(load)
        assert _holder(kube).startswith(f"{kube_manager.POD}_")
        assert not _is_ready(kube, _SECOND)
        assert "a new, empty one" in _refusals(kube)[0]
        load.release()
        load.check()
    finally:
        kube.kubectl("scale", _STATEFUL_SET, _HERE, "--replicas=1")


def _refusals(kube: kube_cluster.Kube) -> list[str]:
    """Return the messages of kube events about the Lease."""
    selector = "--field-selector=reason=AnotherJournal,involvedObject.kind=Lease"
    return [event["message"] for event in kube.get("events", _HERE, selector)["items"]]


def _holder(kube: kube_cluster.Kube) -> str:
    return str(kube.get("lease", "kilnwork-manager", _HERE)["spec"]["holderIdentity"])


def _uid(kube: kube_cluster.Kube) -> str:
    """Return the uid of the manager's Pod; "" while there is none."""
    path = f"/api/v1/namespaces/{kube_manager.NAMESPACE}/pods/{kube_manager.POD}"
    response = kube.http.get(path)
    return str(response.json["metadata"]["uid"]) if response.status == 200 else ""


def _is_ready(kube: kube_cluster.Kube, name: str) -> bool:
    conditions = kube.get("pod", name, _HERE)["status"]["conditions"]
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


def _wait_back(load: kube_load.Load) -> None:
    """Wait until both workers are connected again."""
    waiting.wait_until(lambda: load.ready_workers() == 2, what="the workers are back", timeout_s=60)


def _node(kube: kube_cluster.Kube) -> str:
    found = kube.get("pod", kube_manager.POD, _HERE)["spec"]["nodeName"]
    return str(found)


def _pods(kube: kube_cluster.Kube) -> list[str]:
    return [pod["metadata"]["name"] for pod in kube.get("pods", _HERE)["items"]]
