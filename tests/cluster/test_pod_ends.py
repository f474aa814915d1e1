"""Pod tasks on a kubelet: their ends for every cause, and what is kept of their Pods."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hack.image import worker

from support import kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(300)

KIND = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "Task"}
ON_SIGTERM = "trap 'exit 7' TERM; echo up; while :; do sleep 0.2; done"


class Team:
    """A namespace in which Tasks become Pods of one node."""

    def __init__(self, kube: kube_cluster.Kube, node: str, namespace: str) -> None:
        self.kube = kube
        self.node = node
        self.namespace = namespace

    def run(self, name: str, script: str, *, main: Any = None, pod: Any = None, **spec: Any) -> str:
        """Declare a Task whose Pod runs a shell script; return its name."""
        container = {"name": "main", "image": worker.name(), "command": ["sh", "-c", script]}
        body = {
            "containers": [{**container, **(main or {})}],
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "automountServiceAccountToken": False,
            **(pod or {}),
        }
        spec = {"pod": {"spec": body}, "timeouts": {"killGraceSeconds": 3}, **spec}
        self.kube.apply(
            {**KIND, "metadata": {"name": name}, "spec": spec}, namespace=self.namespace
        )
        return name

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a Task."""
        found = self.kube.get("tasks.kilnwork.dev", name, f"--namespace={self.namespace}")
        status: dict[str, Any] = found.get("status") or {}
        return status

    def wait_for_state(self, name: str, state: str, reason: str | None = None) -> dict[str, Any]:
        """Wait until a Task has this state and reason; return its status."""
        last: dict[str, Any] = {}

        def look() -> bool:
            nonlocal last
            last = self.status(name)
            return last.get("state") == state and reason in (None, last.get("reason"))

        try:
            waiting.wait_until(look, what=f"{state}/{reason}", timeout_s=60, every_s=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {last}") from None
        return last

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return the Pods of a Task, the newest last."""
        here = f"--namespace={self.namespace}"
        found = self.kube.get("pods", here)["items"]
        mine = [p for p in found if p["metadata"]["annotations"].get("kilnwork.dev/task") == name]
        return sorted(mine, key=lambda pod: int(pod["metadata"]["labels"]["kilnwork.dev/attempt"]))

    def logs(self, name: str) -> str:
        """Return the stored output."""
        return self.kube.kiln("logs", name, "-n", self.namespace).stdout


@pytest.fixture(scope="module")
def manager_on_node(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_manager.Manager]:
    manager = kube_manager.Manager(kube, kube_manager.on_real_node(real_node))
    manager.install()
    yield manager
    manager.remove()


@pytest.fixture(scope="module")
def team(
    kube: kube_cluster.Kube, real_node: str, manager_on_node: kube_manager.Manager
) -> Iterator[Team]:
    name = kube_servers.fresh_name("pods")
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    manager_on_node.allow_drivers(name)
    yield Team(kube, real_node, name)
    kube.http.delete(f"/api/v1/namespaces/{name}")


def test_pod_task_succeeds_and_its_output_outlives_its_pod(team: Team) -> None:
    name = team.run("ok", "echo attempt $KILN_ATTEMPT of $TASK_NAME")
    status = team.wait_for_state(name, "Success", "Succeeded")
    assert status["nodeName"] == team.node
    [pod] = team.pods(name)
    assert status["podName"] == pod["metadata"]["name"]
    assert "finalizers" not in pod["metadata"]
    team.kube.kubectl("delete", "pod", status["podName"], f"--namespace={team.namespace}")
    assert team.logs(name) == "attempt 1 of ok\n"
    team.kube.kubectl("delete", "task", name, f"--namespace={team.namespace}")


def test_failure_is_tried_again_in_another_pod(team: Team) -> None:
    retry = {"maxAttempts": 2, "delaySeconds": 0.1}
    name = team.run("fails", "exit $((KILN_ATTEMPT + 2))", retry=retry)
    status = team.wait_for_state(name, "Failed", "NonZeroExit")
    assert (status["attempts"], status["exitCode"]) == (2, 4)
    codes = [
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        for pod in team.pods(name)
    ]
    assert codes == [3, 4]


def test_kill_is_confirmed_by_the_kubelet(team: Team) -> None:
    name = team.run("killed", ON_SIGTERM)
    team.wait_for_state(name, "Running", "Started")
    team.kube.kiln("cancel", name, "-n", team.namespace)
    status = team.wait_for_state(name, "Killed")
    stopped = {c["type"]: c["status"] for c in status["conditions"]}["Stopped"]
    assert stopped == "True"
    waiting.wait_until(lambda: not team.pods(name), what="its Pod is gone")


def test_evicted_pod_is_a_loss(team: Team) -> None:
    name = team.run("evicted", f'[ "$KILN_ATTEMPT" = 2 ] && exit 0; {ON_SIGTERM}')
    first = team.wait_for_state(name, "Running", "Started")["podName"]
    path = f"/api/v1/namespaces/{team.namespace}/pods/{first}/eviction"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": first},
        "deleteOptions": {"gracePeriodSeconds": 2},
    }
    team.kube.http.post(path, eviction).ok()
    status = team.wait_for_state(name, "Success")
    assert (status["attempts"], status["losses"]) == (2, 1)

    def events() -> list[dict[str, Any]]:
        found = team.kube.get("events", f"--namespace={team.namespace}")["items"]
        mine = [e for e in found if e["involvedObject"]["name"] == name]
        return [e for e in mine if "Evicted" in e["message"]]

    [event] = waiting.wait_until(events, what="the loss is reported")  # by a write of its own
    assert "EvictionByEvictionAPI" in event["message"]


def test_exceeded_memory_limit_is_a_failure_with_its_cause(team: Team) -> None:
    eat = "python3 -c 'x = bytearray(200 << 20); print(len(x))'"
    name = team.run("eats", eat, main={"resources": {"limits": {"memory": "50Mi"}}})
    status = team.wait_for_state(name, "Failed", "OutOfMemory")
    assert "50Mi" in status["message"]


def test_missing_image_times_out_with_its_cause(team: Team) -> None:
    image = {"image": "localhost/nothing:1", "imagePullPolicy": "Never"}
    name = team.run(
        "no-image", "true", main=image, timeouts={"pendingSeconds": 30, "killGraceSeconds": 3}
    )
    team.wait_for_state(name, "Staging", "ImagePull")
    status = team.wait_for_state(name, "Failed", "PendingTimedOut")
    assert "ImagePull" in status["message"]


def test_task_shows_the_reason_of_the_scheduler(team: Team) -> None:
    name = team.run("nowhere", "true", pod={"nodeSelector": {"no": "node"}})
    status = team.wait_for_state(name, "Staging", "Unschedulable")
    assert "nodes are available" in status["message"]
    team.kube.kiln("cancel", name, "-n", team.namespace)
    team.wait_for_state(name, "Killed")


def test_task_waits_for_a_quota(team: Team) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"count/configmaps": "100", "requests.cpu": "1m"}},
    }
    team.kube.apply(quota, namespace=team.namespace)
    here = f"--namespace={team.namespace}"
    waiting.wait_until(
        lambda: team.kube.get("quota", "none", here).get("status"), what="the quota counts"
    )
    try:
        name = team.run("quota", "true", main={"resources": {"requests": {"cpu": "5m"}}})
        assert "exceeded quota" in team.wait_for_state(name, "Staging", "QuotaExceeded")["message"]
    finally:
        team.kube.kubectl("delete", "resourcequota", "none", here)
    team.wait_for_state(name, "Success")


def test_pod_refused_by_admission_fails_with_its_message(team: Team) -> None:
    bad = {"volumes": [{"name": "x", "configMap": {}}]}
    name = team.run("invalid", "true", pod=bad)
    assert "volumes" in team.wait_for_state(name, "Failed", "AdmissionError")["message"]


def test_deleted_task_removes_its_pod(team: Team) -> None:
    name = team.run("deleted", ON_SIGTERM)
    team.wait_for_state(name, "Running", "Started")
    team.kube.kubectl("delete", "task", name, f"--namespace={team.namespace}")
    waiting.wait_until(lambda: not team.pods(name), what="its Pod is gone")


def test_manager_that_is_killed_starts_nothing_twice(
    team: Team, manager_on_node: kube_manager.Manager
) -> None:
    name = team.run("adopted", "echo once; sleep 8")
    before = team.wait_for_state(name, "Running", "Started")
    pod = f"--namespace={kube_manager.NAMESPACE}"
    team.kube.kubectl("delete", "pod", kube_manager.POD, pod, "--grace-period=0", "--force")
    time.sleep(1)  # its end is not waited for: another one begins meanwhile
    manager_on_node.wait_ready()
    status = team.wait_for_state(name, "Success")
    assert (status["attempts"], status["podName"]) == (1, before["podName"])
    assert status.get("losses", 0) == 0
    assert len(team.pods(name)) == 1
    assert team.logs(name) == "once\n"
    assert manager_on_node.refusals() == []
