"""The `image` of a Task on a kubelet's node, where images are really pulled and run."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hack.image import worker as image

from support import kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(300)

OTHER = "localhost/another-image:1"
"""A name that the worker's image gets on the node: nothing else could be pulled here."""
ABSENT = "localhost/absent-image:1"
UNTIL_OPEN = 'while [ -z "$(cat /tmp/gate 2> /dev/null)" ]; do sleep 0.2; done'

REPORT = """
import json, os, sys
given = json.load(open(os.environ["KILN_INPUT"]))
open(os.environ["KILN_OUTPUT"], "w").write(json.dumps([given, os.environ["WORD"], sys.argv[1]]))
"""


class World:
    """A manager, and a namespace with a TaskCluster of one worker."""

    def __init__(self, kube: kube_cluster.Kube, node: str) -> None:
        self.kube = kube
        self.node = node
        self.manager = kube_manager.Manager(kube, kube_manager.on_real_node(node))
        self.namespace = kube_servers.fresh_name("images")

    def task(self, name: str, *command: str, **spec: Any) -> None:
        made = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"command": list(command), **spec},
        }
        self.kube.apply(made, namespace=self.namespace)

    def kiln(self, *arguments: str) -> str:
        return self.kube.kiln(*arguments, "-n", self.namespace).stdout

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.manager.task(name, self.namespace).get("status", {})
        return found

    def wait_for_state(self, name: str, state: str, reason: str) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = self.status(name)
            return found if (found.get("state"), found.get("reason")) == (state, reason) else {}

        try:
            return waiting.wait_until(look, what=f"{name} is {state}/{reason}", timeout_s=120)
        except AssertionError as error:
            details = self.kube.kubectl("describe", "pods", f"--namespace={self.namespace}")
            raise AssertionError(
                f"{error}\n{self.status(name)}\n{details[-5000:]}\n{self.manager.log()[-2000:]}"
            ) from error

    def pod(self, name: str) -> dict[str, Any]:
        """Return the Pod of the newest attempt of a task."""
        found: dict[str, Any] = self.kube.get(
            "pod", self.status(name)["podName"], f"--namespace={self.namespace}"
        )
        return found

    def open(self, name: str) -> None:
        """Release a task that waits."""
        self.kube.kubectl(
            "exec", self.status(name)["podName"], f"--namespace={self.namespace}", "-c", "main",
            "--", "sh", "-c", "echo open > /tmp/gate",
        )  # fmt: skip


@pytest.fixture(scope="module")
def world(kube: kube_cluster.Kube, real_node: str) -> Iterator[World]:
    socket = kube.directory / real_node / "c.sock"
    tag = ["ctr", f"--address={socket}", "--namespace=k8s.io", "images", "tag", "--force"]
    subprocess.run([*tag, image.name(), OTHER], check=True, capture_output=True)
    made = World(kube, real_node)
    made.manager.install()
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": made.namespace}}).ok()
    account = f"/api/v1/namespaces/{made.namespace}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="the default account")
    made.manager.allow_drivers(made.namespace)
    made.manager.start_cluster("default", namespace=made.namespace)
    yield made
    kube.http.delete(f"/api/v1/namespaces/{made.namespace}")
    made.manager.remove()


def test_task_with_another_image_gets_its_own_pod(world: World) -> None:
    data = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "TaskObject"}
    world.kube.apply(
        {**data, "metadata": {"name": "numbers"}, "data": [1, 2]}, namespace=world.namespace
    )
    world.task(
        "other", "python3", "-c", REPORT,
        image=OTHER,
        args=["$(WORD) ${task.name} $$"],
        env=[{"name": "WORD", "value": "$HOME"}],
        inputs=[{"name": "n", "object": "numbers"}],
    )  # fmt: skip
    after = world.wait_for_state("other", "Success", "Succeeded")
    assert after["result"]["value"] == [{"n": [1, 2]}, "$HOME", "$(WORD) ${task.name} $$"]
    assert "ImageIgnored" not in {c["type"] for c in after["conditions"]}
    pod = world.pod("other")
    [container] = pod["spec"]["containers"]
    assert (container["image"], pod["spec"]["nodeName"]) == (OTHER, world.node)
    assert pod["spec"]["nodeSelector"] == world.manager.home.spec["nodeSelector"]
    assert world.manager.task("other", world.namespace)["spec"]["image"] == OTHER
    assert world.manager.refusals() == []


def test_task_with_the_worker_image_runs_on_a_worker(world: World) -> None:
    world.task("same", "true", image=image.name())
    after = world.wait_for_state("same", "Success", "Succeeded")
    labels = world.pod("same")["metadata"]["labels"]
    assert "kilnwork.dev/executor" not in labels, after


def test_unpullable_image_is_named_until_the_timeout(world: World) -> None:
    world.task("absent", "true", image=ABSENT, timeouts={"pendingSeconds": 60})
    waits = world.wait_for_state("absent", "Staging", "ImagePull")
    assert ABSENT in waits["message"], waits
    assert f"is Staging (ImagePull): {waits['message']}"[:60] in world.kiln("why", "absent")
    after = world.wait_for_state("absent", "Failed", "PendingTimedOut")
    assert ABSENT in after["message"], after
    assert ABSENT in world.kiln("why", "absent")


def test_output_is_streamed_and_kept(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    world.task("prints", "sh", "-c", f"echo one; {UNTIL_OPEN}; echo two", image=OTHER)
    world.wait_for_state("prints", "Running", "Started")
    with out.open("wb") as file:
        follower = subprocess.Popen(
            [kube_cluster.KILN, "logs", "-f", "prints", "-n", world.namespace],
            stdout=file,
            env=world.kube.environment,
        )
    try:
        waiting.wait_until(
            lambda: out.read_text() == "one\n", what="the first line is there", timeout_s=60
        )
        assert world.kiln("logs", "prints") == "one\n"
        name = world.status("prints")["podName"]
        world.open("prints")
        assert follower.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            follower.kill()
        follower.wait()
    assert out.read_text() == "one\ntwo\n"
    world.kube.kubectl("delete", "pod", name, f"--namespace={world.namespace}")
    assert world.kiln("logs", "prints") == "one\ntwo\n"


def test_missing_right_to_logs_is_reported_without_affecting_outcomes(world: World) -> None:
    """The right to logs is revoked, and granted again."""
    role = json.loads(world.kube.kubectl("get", "clusterrole", "kilnwork-manager", "-o", "json"))
    less = {**role, "rules": [r for r in role["rules"] if "pods/log" not in r.get("resources", ())]}
    assert less["rules"] != role["rules"]
    world.task("unread", "sh", "-c", f"echo one; {UNTIL_OPEN}", image=OTHER)
    world.wait_for_state("unread", "Running", "Started")
    for field in ("resourceVersion", "uid", "managedFields", "creationTimestamp"):
        less["metadata"].pop(field, None)
    world.kube.apply(less)
    try:

        def refused() -> bool:
            done = world.kube.kiln("logs", "unread", "-n", world.namespace, check=False)
            return "pods/log" in done.stderr and done.returncode != 0

        waiting.wait_until(refused, what="the right is said to be missing", timeout_s=15)
        world.open("unread")
        world.wait_for_state("unread", "Success", "Succeeded")
    finally:
        world.kube.apply({**less, "rules": role["rules"]})
