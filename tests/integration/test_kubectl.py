"""kubectl against the embedded control plane: the first commands of a Kubernetes user."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster

_MISSING = "kubectl is not on PATH: put a release from https://dl.k8s.io there to run these tests"
pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason=_MISSING),
]

TASK = """
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: task-0}
spec: {clusterName: counter, command: [python3, counter.py], inputObject: input}
---
apiVersion: kilnwork.dev/v1alpha1
kind: TaskObject
metadata: {name: input}
data: {count: "0", limit: "50"}
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  restartPolicy: Never
  containers: [{name: main, image: any, command: [sh, -c, "echo one; echo two"]}]
"""


class Kubectl:
    """Runs kubectl with the kubeconfig of one server and its own home directory."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """Return the exit code and all output."""
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
        )
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 20)
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which must succeed; return its output."""
        code, output = await self.run(*arguments, stdin=stdin)
        assert code == 0, output
        return output

    async def refused(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl, which must fail; return its output."""
        code, output = await self.run(*arguments, stdin=stdin)
        assert code != 0, output
        return output


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[cluster.ControlPlane]:
    settings = cluster.ControlPlaneSettings(
        data_dir=tmp_path / "data",
        port=0,
        workdir=tmp_path,
        node_name="local",
        installed=embedded_crds.EXTENSIONS,
    )
    made = cluster.ControlPlane(settings)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def kubectl(plane: cluster.ControlPlane, tmp_path: Path) -> Kubectl:
    return Kubectl(plane.kubeconfig, tmp_path)


def columns(table: str) -> list[str]:
    return table.splitlines()[0].split()


async def test_kinds_are_found_by_every_name(kubectl: Kubectl) -> None:
    listed = await kubectl("api-resources", "--api-group=kilnwork.dev", "-o", "wide")
    for name in ("tasks", "ktask", "taskobjects", "ktobj", "taskclusters", "ktc", "kiln"):
        assert name in listed
    await kubectl("apply", "-f", "-", stdin=TASK)
    for name in ("task", "tasks", "ktask", "tasks.kilnwork.dev", "tasks.v1alpha1.kilnwork.dev"):
        assert "task-0" in await kubectl("get", name)
    assert "taskobject.kilnwork.dev/input" in await kubectl("get", "kiln")


async def test_tables_have_a_wide_form(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=TASK)
    assert columns(await kubectl("get", "tasks")) == ["NAME", "STATE", "ATTEMPTS", "SUSPEND", "AGE"]
    wide = columns(await kubectl("get", "tasks", "-o", "wide"))
    assert wide == ["NAME", "STATE", "ATTEMPTS", "SUSPEND", "REASON", "CLUSTER", "WORKER", "AGE"]
    assert "Active" in await kubectl("get", "ns", "default")


async def test_apply_reports_created_unchanged_and_errors(kubectl: Kubectl) -> None:
    assert "task.kilnwork.dev/task-0 created" in await kubectl("apply", "-f", "-", stdin=TASK)
    again = await kubectl("apply", "-f", "-", stdin=TASK)
    assert again.count("unchanged") == 2
    changed = TASK.replace('"50"', '"51"')
    assert "field is immutable" in await kubectl.refused("apply", "-f", "-", stdin=changed)
    typo = TASK.replace("command:", "comand:").replace("task-0", "task-1")
    output = await kubectl.refused("apply", "-f", "-", stdin=typo)
    assert 'strict decoding error: unknown field "spec.comand"' in output
    output = await kubectl("apply", "--validate=warn", "-f", "-", stdin=typo)
    assert 'Warning: unknown field "spec.comand"' in output


async def test_explain_knows_our_fields(kubectl: Kubectl) -> None:
    output = await kubectl("explain", "task.spec.inputObject")
    assert "Name of a TaskObject that the task reads" in output
    assert "maxAttempts" in await kubectl("explain", "tasks", "--recursive")
    assert "<[]Container>" in await kubectl("explain", "pod.spec.containers")
    assert 'field "nope" does not exist' in await kubectl.refused("explain", "task.spec.nope")


async def test_pod_is_run_read_and_deleted(plane: cluster.ControlPlane, kubectl: Kubectl) -> None:
    await plane.start_node()
    assert "Ready" in await kubectl("get", "nodes", "-o", "wide")
    await kubectl("apply", "-f", "-", stdin=POD)

    await kubectl("wait", "pod/talker", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=15s")
    assert "Completed" in await kubectl("get", "pod", "talker", "-o", "wide")
    assert await kubectl("logs", "talker") == "one\ntwo\n"
    assert await kubectl("logs", "-f", "talker", "--tail=1") == "two\n"
    assert "container x is not valid" in await kubectl.refused("logs", "talker", "-c", "x")
    assert 'pod "talker" deleted' in await kubectl("delete", "pod", "talker")
    assert "NotFound" in await kubectl.refused("get", "pod", "talker")
