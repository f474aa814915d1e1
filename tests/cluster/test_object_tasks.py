"""Tasks that are objects on the real Kubernetes: batch Jobs, with the installed rights."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hack.image import worker as image

from support import kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(300)

RESULT = {
    "successCondition": {"jsonPath": '.status.conditions[?@.type == "Complete"].status'},
    "failureCondition": {"jsonPath": '.status.conditions[?@.type == "Failed"].status'},
    "runningCondition": {"jsonPath": ".status.ready", "operator": "Gt", "value": 0},
    "jsonPath": ".status.succeeded",
}


class World:
    """A manager whose tasks may create batch Jobs, and a namespace."""

    def __init__(self, kube: kube_cluster.Kube, node: str) -> None:
        self.kube = kube
        self.node = node
        options = ("--allow-kind", "jobs.batch", "--allow-impersonation")
        self.manager = kube_manager.Manager(kube, kube_manager.on_real_node(node, *options))
        self.namespace = kube_servers.fresh_name("objects")

    def job(self, name: str, script: str, **given: Any) -> None:
        """Create a Task that is a batch Job."""
        container = {"name": "main", "image": image.name(), "command": ["sh", "-c", script]}
        pod = {
            "nodeName": self.node,
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
        }
        manifest = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "${task.name}-job"},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        }
        resource = {"manifest": json.dumps(manifest), "result": RESULT, **given}
        task = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"customResource": resource, "timeouts": {"killGraceSeconds": 60}},
        }
        self.kube.apply(task, namespace=self.namespace)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.manager.task(name, self.namespace).get("status", {})
        return found

    def wait_for_state(self, name: str, state: str, reason: str) -> dict[str, Any]:
        """Wait for a state and a reason."""

        def look() -> dict[str, Any]:
            found = self.status(name)
            return found if (found.get("state"), found.get("reason")) == (state, reason) else {}

        try:
            return waiting.wait_until(look, what=f"{name} is {state}/{reason}", timeout_s=120)
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{self.status(name)}\n{self.manager.log()[-3000:]}"
            ) from error

    def pods(self) -> list[str]:
        found = self.kube.get("pods", f"--namespace={self.namespace}")
        return [one["metadata"]["name"] for one in found["items"]]


@pytest.fixture(scope="module")
def world(kube: kube_cluster.Kube, real_node: str) -> Iterator[World]:
    made = World(kube, real_node)
    made.manager.install()
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": made.namespace}}).ok()
    account = f"/api/v1/namespaces/{made.namespace}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    yield made
    kube.http.delete(f"/api/v1/namespaces/{made.namespace}")
    made.manager.remove()


def test_batch_job_is_a_task_with_a_result(world: World) -> None:
    world.job("good", "sleep 1")
    status = world.wait_for_state("good", "Success", "Succeeded")
    assert status["result"]["value"] == 1
    world.job("bad", "exit 3")
    assert "has failed" in world.wait_for_state("bad", "Failed", "ObjectFailed")["message"]
    assert world.manager.refusals() == []


def test_batch_job_is_killed_when_its_pods_are_gone(world: World) -> None:
    world.job("long", "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done")
    world.wait_for_state("long", "Running", "Started")
    [pod] = [one for one in world.pods() if one.startswith("long")]
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{world.namespace}/tasks/long"
    world.kube.http.patch(path, {"spec": {"killTimestamp": "2020-01-01T00:00:00Z"}}).ok()
    status = world.wait_for_state("long", "Killed", "Killed")
    stopped = next(one for one in status["conditions"] if one["type"] == "Stopped")
    assert stopped["status"] == "True"
    assert pod not in world.pods()


def test_account_creates_what_it_is_allowed_to(world: World) -> None:
    here = f"--namespace={world.namespace}"
    world.kube.kubectl("create", "serviceaccount", "author", here)
    world.kube.kubectl(
        "annotate", "serviceaccount", "author", "kilnwork.dev/impersonate=true", here
    )
    world.job("mine", "true", serviceAccountName="author")
    message = world.wait_for_state("mine", "Staging", "ExecutorUnavailable")["message"]
    assert f'User "system:serviceaccount:{world.namespace}:author" cannot create' in message
    world.kube.kubectl("create", "role", "author", "--verb=create", "--resource=jobs.batch", here)
    account = f"--serviceaccount={world.namespace}:author"
    world.kube.kubectl("create", "rolebinding", "author", "--role=author", account, here)
    world.wait_for_state("mine", "Success", "Succeeded")


def test_object_forbidden_to_the_manager_fails_at_once(world: World) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap"}
    task = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "other"},
        "spec": {"customResource": {"manifest": manifest, "result": RESULT}},
    }
    world.kube.apply(task, namespace=world.namespace)
    message = world.wait_for_state("other", "Failed", "AdmissionError")["message"]
    assert "tasks may not make configmaps" in message
