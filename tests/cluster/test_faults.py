"""Faults while tasks run on a real kubelet: nothing is lost, nothing runs twice.

Each test starts tasks, breaks one thing, repairs it, and then checks the Tasks and the notes that
their code left (`support.kube_load`). A test that breaks a component of the cluster repairs it
before its end.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from support import kube_cluster, kube_load, kube_manager, kube_servers, process_search, waiting

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def manager(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_manager.Manager]:
    """Run a manager as a Pod on the node with a kubelet."""
    with kube_manager.installed(
        kube, kube_manager.on_real_node(real_node, *kube_manager.SHORT_LEASE)
    ) as made:
        yield made


@pytest.fixture
def load(manager: kube_manager.Manager, namespace: str) -> kube_load.Load:
    """Run two connected workers with two slots each."""
    found = kube_load.Load(manager, namespace)
    found.prepare()
    return found


def test_api_server_absent_for_half_a_minute(kube: kube_cluster.Kube, load: kube_load.Load) -> None:
    pods = load.pods()
    load.start(40, seconds=2)
    load.wait_running(2)
    load.wait_known()
    kube.kill_part("kube-apiserver")
    try:
        before = len(load.notes())
        waiting.wait_until(
            lambda: len(load.notes()) >= 40, what="the dispatcher goes on by itself", timeout_s=90
        )
        assert before < 40
        assert not threading.Event().wait(5)
    finally:
        kube.start_part("kube-apiserver")
    load.check()
    assert load.pods() == pods


def test_history_compacted_behind_the_watches(
    kube: kube_cluster.Kube, load: kube_load.Load
) -> None:
    load.start(10, seconds=1)
    load.wait_running()
    pid = process_search.pid_of_command("kiln", "manager")
    os.kill(pid, signal.SIGSTOP)
    try:
        kube.kill_part("kube-apiserver")
        kube.start_part("kube-apiserver")
        load.start(10, seconds=0.2)
        kube.compact()
    finally:
        with contextlib.suppress(ProcessLookupError):  # one that stood still too long is replaced
            os.kill(pid, signal.SIGCONT)
    load.check()


def test_every_request_of_the_manager_gets_429_for_a_while(
    kube: kube_cluster.Kube, manager: kube_manager.Manager, load: kube_load.Load
) -> None:
    load.start(20, seconds=1)
    load.wait_running()
    with _no_capacity(kube, f"system:serviceaccount:{kube_manager.NAMESPACE}:kilnwork-manager"):
        load.start(10, seconds=0.2)
        waiting.wait_until(lambda: _rejected(kube) > 0, what="a request is rejected")
        assert not threading.Event().wait(8)
    load.check()


@contextlib.contextmanager
def _no_capacity(kube: kube_cluster.Kube, user: str) -> Iterator[None]:
    """Give this user no capacity by priority and fairness: 429 with Retry-After at once."""
    metadata = {"name": "none-at-all"}
    group = "flowcontrol.apiserver.k8s.io/v1"
    level = {
        "apiVersion": group,
        "kind": "PriorityLevelConfiguration",
        "metadata": metadata,
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    namespace, name = user.split(":")[-2:]
    subject = {
        "kind": "ServiceAccount",
        "serviceAccount": {"namespace": namespace, "name": name},
    }
    everything = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "clusterScope": True,
        "namespaces": ["*"],
    }
    schema = {
        "apiVersion": group,
        "kind": "FlowSchema",
        "metadata": metadata,
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": metadata,
            "rules": [{"subjects": [subject], "resourceRules": [everything]}],
        },
    }
    kube.apply(level, schema)
    try:
        yield
    finally:
        kube.kubectl("delete", "flowschema,prioritylevelconfiguration", "none-at-all")


def _rejected(kube: kube_cluster.Kube) -> int:
    needle = "apiserver_flowcontrol_rejected_requests_total{"
    lines = kube.kubectl("get", "--raw", "/metrics").splitlines()
    return sum(
        int(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(needle) and '"none-at-all"' in line
    )


def test_another_client_writes_to_every_task_all_the_time(
    kube: kube_cluster.Kube, load: kube_load.Load
) -> None:
    """Each write of the manager with an older version gets a 409."""
    stop = threading.Event()

    def scribble() -> None:
        path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{load.namespace}/tasks"
        with kube_servers.real(kube.directory).admin() as http:
            number = 0
            while not stop.is_set():
                number += 1
                for name in [f"load-{n}" for n in range(20)]:
                    body = {"metadata": {"annotations": {"scribble": str(number)}}}
                    http.patch(f"{path}/{name}", body)

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        load.start(20, seconds=0.5)
        load.wait_final()
    finally:
        stop.set()
        writer.join()
    load.check()


@pytest.mark.parametrize("way", ["delete", "force", "evict"])
def test_worker_pod_deleted(kube: kube_cluster.Kube, load: kube_load.Load, way: str) -> None:
    load.start(16, seconds=2)
    load.wait_running(3)
    before = load.pod_uids()
    victim = next(iter(before))
    path = f"/api/v1/namespaces/{load.namespace}/pods/{victim}"
    if way == "evict":
        kube.http.post(
            f"{path}/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim}},
        ).ok()
    else:
        grace = {"gracePeriodSeconds": 0} if way == "force" else {}
        kube.http.delete(path, {"kind": "DeleteOptions", "apiVersion": "v1", **grace}).ok()
    load.check(losses=True)

    def replaced() -> bool:
        """True once a new Pod exists, with the same name or another if the ending Pod has it."""
        pods = load.pod_uids()
        return len(pods) == len(before) and before[victim] not in pods.values()

    waiting.wait_until(replaced, what="another worker Pod is there")
    assert set(before.values()) - {before[victim]} <= set(load.pod_uids().values())


def test_manager_killed(
    kube: kube_cluster.Kube, manager: kube_manager.Manager, load: kube_load.Load
) -> None:
    pods = load.pods()
    load.start(24, seconds=2)
    load.wait_running(3)
    os.kill(process_search.pid_of_command("kiln", "manager"), signal.SIGKILL)
    load.start(4, seconds=0.2)
    manager.wait_ready()
    load.check()
    assert load.pods() == pods


def test_namespace_deleted_while_its_tasks_run(
    kube: kube_cluster.Kube, manager: kube_manager.Manager, load: kube_load.Load
) -> None:
    load.start(8, seconds=60)
    load.wait_running(3)
    kube.http.delete(f"/api/v1/namespaces/{load.namespace}").ok()
    waiting.wait_until(
        lambda: kube.http.get(f"/api/v1/namespaces/{load.namespace}").status == 404,
        what="the namespace is gone",
        timeout_s=120,
    )
    assert [line for line in manager.refusals() if "being terminated" not in line] == []


def test_definitions_changed_while_tasks_run(kube: kube_cluster.Kube, load: kube_load.Load) -> None:
    """A changed definition ends every watch of its kind."""
    load.start(16, seconds=1)
    load.wait_running()
    for number, plural in enumerate(("tasks", "taskclusters", "taskobjects")):
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.kilnwork.dev"
        column = {
            "name": f"New-{number}",
            "type": "string",
            "jsonPath": ".metadata.uid",
            "priority": 1,
        }
        where = "/spec/versions/0/additionalPrinterColumns/-"
        change = [{"op": "add", "path": where, "value": column}]
        kube.http.patch(path, change, form=kube_servers.JSON_PATCH).ok()
        load.start(2, seconds=0.2)
    load.check()


def test_node_unreachable_for_a_while(
    kube: kube_cluster.Kube, manager: kube_manager.Manager, namespace: str
) -> None:
    """Its workers stop their tasks before their leases expire; other workers run them again."""
    nodes = kube.real_nodes()
    if len(nodes) < 2:
        pytest.skip("needs two nodes: python -m hack.kube run --nodes 2")
    load = kube_load.Load(manager, namespace)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": kube_load.CLUSTER}},
    }
    load.prepare(nodeSelector={}, topologySpreadConstraints=[spread])
    load.start(16, seconds=3)
    load.wait_running(4)
    with kube.lost(nodes[1]):
        load.check(losses=True)
    waiting.wait_until(lambda: load.ready_workers() == 2, what="its worker is back", timeout_s=60)
