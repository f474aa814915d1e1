"""Tasks that are Workflows, with the real Argo on a kubelet; `make test-peers` runs them."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hack import peers
from hack.image import worker as image

from support import argo_replay, kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(300)

GROUP = "/apis/argoproj.io/v1alpha1"
TASKS = "/apis/kilnwork.dev/v1alpha1"
UNTIL_TERM = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
GREETING = {
    "parameters": [
        {"name": "greeting", "globalName": "greeting", "valueFrom": {"path": "/tmp/greeting"}}
    ]
}


def run(script: str, *, name: str = "main", **more: Any) -> dict[str, Any]:
    """Return a template of a Workflow that runs a shell script."""
    command = ["sh", "-c", script]
    return {"name": name, "container": {"image": image.name(), "command": command}, **more}


class World:
    """A manager, Argo's workflow-controller, and a namespace whose Pods may report to it."""

    def __init__(self, kube: kube_cluster.Kube, node: str) -> None:
        self.kube = kube
        self.manager = kube_manager.Manager(kube, kube_manager.on_real_node(node))
        self.namespace = kube_servers.fresh_name("argo")
        self._here = f"--namespace={self.namespace}"

    def install(self) -> None:
        """Install all but the workflow-controller."""
        for crd in sorted((peers.directory() / "crds").glob("argoproj.io_*.yaml")):
            self.kube.kubectl("apply", "--server-side", "-f", str(crd))
        self.kube.kubectl("create", "namespace", "argo")
        self.kube.kubectl(
            "create", "configmap", "workflow-controller-configmap", "--namespace=argo"
        )
        self.manager.install()
        self.kube.kubectl("create", "namespace", self.namespace)
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        waiting.wait_until(
            lambda: self.kube.http.get(account).status == 200, what="the default account"
        )
        results = "--resource=workflowtaskresults.argoproj.io"
        self.kube.kubectl("create", "role", "steps", "--verb=create,patch", results, self._here)
        steps = f"--serviceaccount={self.namespace}:default"
        self.kube.kubectl("create", "rolebinding", "steps", "--role=steps", steps, self._here)

    def controller(self, log: Path) -> subprocess.Popen[bytes]:
        """Start a workflow-controller."""
        argv = [
            str(peers.directory() / "workflow-controller"),
            *("--kubeconfig", str(self.kube.kubeconfig), "--namespace", "argo"),
            *("--executor-image", peers.IMAGE, "--executor-image-pull-policy", "IfNotPresent"),
        ]
        environment = {**self.kube.environment, "LEADER_ELECTION_DISABLE": "true"}
        with log.open("ab") as out:
            return subprocess.Popen(argv, stdout=out, stderr=out, env=environment)

    def task(self, name: str, *templates: dict[str, Any], grace_s: float = 60, **flow: Any) -> None:
        """Create a Task that is a Workflow of these templates; the first is its entry point."""
        spec = {
            "entrypoint": templates[0]["name"],
            "templates": list(templates),
            "podSpecPatch": '{"terminationGracePeriodSeconds": 5}',
            **flow,
        }
        task = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"workflow": {"spec": spec}, "timeouts": {"killGraceSeconds": grace_s}},
        }
        self.kube.apply(task, namespace=self.namespace)

    def hera_task(self, name: str) -> None:
        """Create a Task of a Workflow of Hera, in an image that this node has."""
        text = json.dumps(argo_replay.hera_workflows()[name]).replace("python:3.11", image.name())
        task = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"workflow": json.loads(text)},
        }
        self.kube.apply(task, namespace=self.namespace)

    def wait_for_state(self, name: str, state: str, reason: str) -> dict[str, Any]:
        """Wait for a state and a reason; return the status."""
        last: dict[str, Any] = {}

        def look() -> dict[str, Any]:
            last.update(self.manager.task(name, self.namespace).get("status") or {})
            return last if (last.get("state"), last.get("reason")) == (state, reason) else {}

        try:
            return waiting.wait_until(look, what=f"{name} is {state}/{reason}", timeout_s=150)
        except AssertionError as error:
            pods = self.kube.kubectl("get", "pods", "-o", "wide", self._here)
            raise AssertionError(f"{error}\n{last}\n{pods}") from error

    def kill(self, name: str) -> None:
        path = f"{TASKS}/namespaces/{self.namespace}/tasks/{name}"
        self.kube.http.patch(path, {"spec": {"killTimestamp": "2020-01-01T00:00:00Z"}}).ok()

    def workflow(self, task: str) -> dict[str, Any]:
        """Return the newest Workflow of a Task."""
        found = self.kube.get("workflows.argoproj.io", self._here)["items"]
        found.sort(key=lambda one: one["metadata"]["creationTimestamp"])
        mine = [one for one in found if one["metadata"]["name"].startswith(f"{task}-")]
        return dict(mine[-1])

    def step(self, task: str, name: str) -> dict[str, Any]:
        """Wait until a step of a Task's Workflow runs."""

        def look() -> dict[str, Any]:
            nodes = (self.workflow(task).get("status") or {}).get("nodes") or {}
            found = [n for n in nodes.values() if name in (n["displayName"], n.get("templateName"))]
            return next((dict(n) for n in found if n["phase"] == "Running"), {})

        return waiting.wait_until(look, what=f"step {name} of {task} runs", timeout_s=100)

    def running_pods(self, task: str) -> list[str]:
        found = self.kube.get("pods", self._here)["items"]
        over = ("Succeeded", "Failed")
        names = [one["metadata"]["name"] for one in found if one["status"]["phase"] not in over]
        return [name for name in names if name.startswith(f"{task}-")]


@pytest.fixture(scope="module")
def world(
    kube: kube_cluster.Kube, real_node: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    made = World(kube, real_node)
    made.install()
    log = Path(os.environ["KILN_ARGO"]) / "workflow-controller.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    controller = made.controller(log)
    try:
        yield made
    finally:
        kube.http.delete(f"/api/v1/namespaces/{made.namespace}")
        controller.terminate()
        controller.wait(30)
        made.manager.remove()


def test_outputs_are_the_result_and_argo_retries_within_an_attempt(world: World) -> None:
    world.task("good", run("echo hello ${task.name} > /tmp/greeting", outputs=GREETING))
    world.task("again", run("test {{retries}} = 1", retryStrategy={"limit": "2"}))
    assert world.wait_for_state("good", "Success", "Succeeded")["result"]["value"] == {
        "greeting": "hello good"
    }
    assert world.wait_for_state("again", "Success", "Succeeded")["attempts"] == 1


def test_workflows_of_hera_run_unchanged(world: World) -> None:
    for name, greeted in (("steps", "hello 6"), ("diamond", "hello Ada")):
        world.hera_task(name)
        result = world.wait_for_state(name, "Success", "Succeeded")["result"]["value"]
        assert result == {"greeting": greeted}


def test_failure_has_the_exit_code_of_its_step(world: World) -> None:
    world.task("bad", run("exit 3"))
    status = world.wait_for_state("bad", "Failed", "WorkflowFailed")
    assert status["exitCode"] == 3


def test_suspended_workflow_is_shown_and_resumes(world: World) -> None:
    steps = {"name": "main", "steps": [[{"name": "approve", "template": "wait"}]]}
    world.task("asks", steps, {"name": "wait", "suspend": {}})
    message = world.wait_for_state("asks", "Running", "Suspended")["message"]
    assert "step approve waits to be resumed" in message
    node = world.step("asks", "approve")
    resumed = {node["id"]: {"phase": "Succeeded", "finishedAt": node["startedAt"]}}
    name = world.workflow("asks")["metadata"]["name"]
    path = f"{GROUP}/namespaces/{world.namespace}/workflows/{name}"
    world.kube.http.patch(path, {"status": {"nodes": resumed}}).ok()
    world.wait_for_state("asks", "Success", "Succeeded")


def test_kill_stops_the_workflow_and_runs_its_exit_handler(world: World) -> None:
    world.task("long", run(UNTIL_TERM), run("true", name="last"), onExit="last")
    world.step("long", "main")
    world.wait_for_state("long", "Running", "Started")
    world.kill("long")
    world.wait_for_state("long", "Killed", "Killed")
    assert world.running_pods("long") == []
    flow = world.workflow("long")
    assert flow["spec"]["shutdown"] == "Stop"
    nodes = {one.get("templateName"): one["phase"] for one in flow["status"]["nodes"].values()}
    assert nodes["last"] == "Succeeded"


def test_workflow_that_does_not_stop_is_terminated_after_the_grace(world: World) -> None:
    waits = {"name": "last", "suspend": {}}
    world.task("stuck", run(UNTIL_TERM), waits, onExit="last", grace_s=8)
    world.step("stuck", "main")
    world.kill("stuck")
    world.wait_for_state("stuck", "Killed", "Killed")
    assert world.running_pods("stuck") == []
    assert world.workflow("stuck")["spec"]["shutdown"] == "Terminate"


def test_deleted_workflow_is_a_loss(world: World) -> None:
    world.task("gone", run(f"test ${{task.attempt}} = 2 || ({UNTIL_TERM})"))
    world.step("gone", "main")
    name = world.workflow("gone")["metadata"]["name"]
    world.kube.kubectl("delete", "workflow", name, "--wait=false", f"--namespace={world.namespace}")
    status = world.wait_for_state("gone", "Success", "Succeeded")
    assert (status["attempts"], status["losses"]) == (2, 1)


def test_manager_was_refused_no_request(world: World) -> None:
    assert world.manager.refusals() == []
