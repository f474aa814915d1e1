"""Tasks that are Pods on a kubelet's node: the worker contract for an image of any kind."""

from collections.abc import Iterator
from typing import Any

import pytest
from hack.image import worker as image

from support import kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(300)

CALL = """
import http.client, json, os, socket
link = http.client.HTTPConnection("task")
link.sock = socket.socket(socket.AF_UNIX)
link.sock.connect(os.environ["KILN_SOCKET"])
def call(method, path, body=None):
    link.request(method, path, body=None if body is None else json.dumps(body))
    response = link.getresponse()
    body = response.read()
    assert response.status < 300, body
    return json.loads(body or b"null")
"""
MAIN = (
    CALL
    + """
call("POST", "/progress", {"fraction": 0.5, "message": "half"})
child = call("POST", "/tasks", {"spec": {"command": ["sh", "-c", "echo 20 > $KILN_OUTPUT"]}})
result = call("GET", f"/tasks/{child['id']}?wait=100")["result"]
given = json.load(open(os.environ["KILN_INPUT"]))["numbers"]["first"]
assert os.getuid() == 12345 and not os.path.exists("/var/run/secrets")
json.dump([result, given, os.environ["KILN_DIR"]], open(os.environ["KILN_OUTPUT"], "w"))
"""
)
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 12345,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}


class World:
    """A manager, and a namespace with one worker where Pods must be restricted."""

    def __init__(self, kube: kube_cluster.Kube, node: str) -> None:
        self.kube = kube
        self.node = node
        self.manager = kube_manager.Manager(kube, kube_manager.on_real_node(node))
        self.namespace = kube_servers.fresh_name("pods")

    def task(self, name: str, *command: str, **spec: Any) -> None:
        container = {
            "name": "main",
            "image": image.name(),
            "command": list(command),
            "securityContext": RESTRICTED,
        }
        pod = {
            "nodeName": self.node,
            "containers": [container],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 20,
        }
        self.kube.apply(
            {
                "apiVersion": "kilnwork.dev/v1alpha1",
                "kind": "Task",
                "metadata": {"name": name},
                "spec": {"pod": {"spec": pod}, **spec},
            },
            namespace=self.namespace,
        )

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.manager.task(name, self.namespace).get("status", {})
        return found

    def ended(self, name: str, *, timeout_s: float = 120.0) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = self.status(name)
            return found if "finishTime" in found else {}

        try:
            return waiting.wait_until(look, what=f"{name} is over", timeout_s=timeout_s)
        except AssertionError as error:
            output = self.kube.kubectl("describe", "pods", f"--namespace={self.namespace}")
            raise AssertionError(
                f"{error}\n{output[-5000:]}\n{self.manager.log()[-2000:]}"
            ) from error


@pytest.fixture(scope="module")
def world(kube: kube_cluster.Kube, real_node: str) -> Iterator[World]:
    made = World(kube, real_node)
    made.manager.install()
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": made.namespace}}).ok()
    account = f"/api/v1/namespaces/{made.namespace}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    made.manager.allow_drivers(made.namespace)
    made.manager.start_cluster("default", namespace=made.namespace)
    label = [f"{key}={value}" for key, value in ENFORCED.items()]
    kube.kubectl("label", "namespace", made.namespace, *label)
    yield made
    kube.http.delete(f"/api/v1/namespaces/{made.namespace}")
    made.manager.remove()


def test_restricted_pod_has_inputs_children_progress_and_a_result(world: World) -> None:
    data = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "TaskObject"}
    thing = {**data, "metadata": {"name": "numbers"}, "data": {"first": 22}}
    world.kube.apply(thing, namespace=world.namespace)
    world.task("all", "python3", "-c", MAIN, inputs=[{"name": "numbers", "object": "numbers"}])
    after = world.ended("all")
    assert (after["state"], after["reason"]) == ("Success", "Succeeded"), after
    assert after["result"]["value"] == [20, 22, "/var/run/kilnwork"]
    assert after["children"]["succeeded"] == 1
    assert world.manager.refusals() == []


def test_large_result_is_uploaded(world: World) -> None:
    write = 'head -c 3000000 /dev/zero > "$KILN_OUTPUT"'
    world.task("large", "sh", "-c", write, outputType="bytes")
    after = world.ended("large")
    assert (after["state"], after["result"]["sizeBytes"]) == ("Success", 3_000_000), after
    got = world.kube.kiln("result", "large", "-n", world.namespace).stdout
    assert len(got) == 3_000_000


def test_small_result_waits_for_an_absent_manager(world: World) -> None:
    """Its Pod has ended, and the sidecar is gone, before another manager starts."""
    world.task("small", "sh", "-c", "sleep 5; echo '\"kept\"' > $KILN_OUTPUT")
    waiting.wait_until(
        lambda: world.status("small").get("state") == "Running", what="it runs", timeout_s=100
    )
    pod = world.status("small")["podName"]
    scale = ("scale", "statefulset/kilnwork-manager", f"--namespace={kube_manager.NAMESPACE}")
    world.kube.kubectl(*scale, "--replicas=0")
    try:

        def phase() -> bool:
            found = world.kube.get("pod", pod, f"--namespace={world.namespace}")
            return bool(found["status"]["phase"] == "Succeeded")

        waiting.wait_until(phase, what="the Pod is over", timeout_s=100)
    finally:
        world.kube.kubectl(*scale, "--replicas=1")
    world.manager.wait_ready(timeout_s=150)
    after = world.ended("small")
    assert (after["state"], after["attempts"]) == ("Success", 1), after
    assert (after["result"]["value"], after.get("losses", 0)) == ("kept", 0)
