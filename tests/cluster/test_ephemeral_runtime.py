"""Tasks as ephemeral containers of worker Pods on a kubelet's node."""

from collections.abc import Iterator
from typing import Any

import pytest

from kilnwork.executors.ephemeral import limits
from support import kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(600)

MOST = 30
TASKS = 150
CHILD = (
    "import http.client, os, socket;"
    'link = http.client.HTTPConnection("task");'
    "link.sock = socket.socket(socket.AF_UNIX);"
    'link.sock.connect(os.environ["KILN_SOCKET"]);'
    'link.request("POST", "/progress", body=\'{"fraction": 0.5}\');'
    "assert link.getresponse().status == 204;"
    'assert not os.path.exists("/var/run/secrets/kubernetes.io");'
    'open(os.environ["KILN_OUTPUT"], "w").write(open(os.environ["KILN_INPUT"]).read())'
)


class World:
    """A manager, and a namespace with a TaskCluster of two workers."""

    def __init__(self, kube: kube_cluster.Kube, node: str) -> None:
        self.kube = kube
        self.manager = kube_manager.Manager(kube, kube_manager.on_real_node(node))
        self.namespace = kube_servers.fresh_name("eph")

    def task(self, name: str, *command: str, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"clusterName": "eph", "command": list(command), **spec},
        }

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kube.apply(*objects, namespace=self.namespace)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.manager.task(name, self.namespace).get("status", {})
        return found

    def ended(self, name: str) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = self.status(name)
            return found if "finishTime" in found else {}

        try:
            return waiting.wait_until(look, what=f"{name} is over", timeout_s=100)
        except AssertionError as error:
            details = self.kube.kubectl("describe", "pods", f"--namespace={self.namespace}")
            raise AssertionError(
                f"{error}\n{self.status(name)}\n{details[-6000:]}\n{self.manager.log()[-2000:]}"
            ) from error

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.kube.get("pods", f"--namespace={self.namespace}")[
            "items"
        ]
        return found


@pytest.fixture(scope="module")
def world(kube: kube_cluster.Kube, real_node: str) -> Iterator[World]:
    made = World(kube, real_node)
    made.manager.install()
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": made.namespace}}).ok()
    account = f"/api/v1/namespaces/{made.namespace}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    made.manager.allow_drivers(made.namespace)
    cluster = made.manager.cluster(
        "eph", namespace=made.namespace, replicas=2, slotsPerWorker=4, runtime="EphemeralContainers"
    )
    template = cluster["spec"].setdefault("template", {})
    annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
    annotations[limits.CONTAINERS_ANNOTATION] = str(MOST)
    kube.apply(cluster, namespace=made.namespace)
    made.manager.wait_available("eph", namespace=made.namespace)
    yield made
    kube.http.delete(f"/api/v1/namespaces/{made.namespace}")
    made.manager.remove()


def test_container_has_input_socket_and_result(world: World) -> None:
    data = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "TaskObject"}
    thing = {**data, "metadata": {"name": "numbers"}, "data": {"first": 22}}
    task = world.task("all", "python3", "-c", CHILD, inputs=[{"name": "n", "object": "numbers"}])
    world.apply(thing, task)
    after = world.ended("all")
    assert (after["state"], after["reason"]) == ("Success", "Succeeded"), after
    assert after["result"]["value"] == {"n": {"first": 22}}
    assert world.manager.refusals() == []


@pytest.mark.parametrize("trap", ["exit 0", ""])
def test_kill_is_confirmed(world: World, trap: str) -> None:
    name = "gentle" if trap else "stubborn"
    script = f"trap '{trap}' TERM; while :; do sleep 0.1; done"
    world.apply(world.task(name, "sh", "-c", script, timeouts={"killGraceSeconds": 1}))
    waiting.wait_until(
        lambda: world.status(name).get("state") == "Running", what="it runs", timeout_s=60
    )
    world.kube.kiln("cancel", name, "-n", world.namespace)
    after = world.ended(name)
    assert (after["state"], after["reason"]) == ("Killed", "Killed"), after


def test_many_tasks_go_through_pods_that_are_replaced(world: World) -> None:
    world.apply(*(world.task(f"n{number}", "true") for number in range(TASKS)))
    most: dict[str, int] = {}

    def done() -> bool:
        for pod in world.pods():
            count = len(pod["spec"].get("ephemeralContainers", ()))
            uid = pod["metadata"]["uid"]
            most[uid] = max(count, most.get(uid, 0))
        tasks = world.kube.get("tasks", f"--namespace={world.namespace}")["items"]
        return all("finishTime" in t.get("status", {}) for t in tasks)

    waiting.wait_until(done, what="all are over", timeout_s=400)
    tasks = world.kube.get("tasks", f"--namespace={world.namespace}")["items"]
    many = [t["status"] for t in tasks if t["metadata"]["name"].startswith("n")]
    ends = {(s["state"], s["attempts"], s.get("losses", 0)) for s in many}
    assert ends == {("Success", 1, 0)}
    assert max(most.values()) < 3 * MOST, most
    assert len(most) >= TASKS // (3 * MOST) + 2, most
