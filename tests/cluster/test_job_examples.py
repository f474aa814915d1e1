"""The examples of Jobs and SyncSets on the real Kubernetes: each `run.sh` unchanged, workers on
kubelets.

They run one after the other in one namespace, which their kubeconfig names, as a user's would.
Their own checks are in their scripts; `tests/e2e/test_examples.py` runs them on `kiln up`. SyncSet
examples are copies whose groups have what `kiln up` does not need: requests of their Pods, and
their programs, which are in no image.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import kube_cluster, kube_manager, kube_servers, pages, waiting

pytestmark = pytest.mark.timeout(300)

EXAMPLES = pages.ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("2*/run.sh"))
SETS = sorted(path.parent.name for path in EXAMPLES.glob("4*/run.sh"))
ALLOWED = ("--allow-kind", "jobs.kilnwork.dev")
"""For 27-pipeline, whose finalizer is a Job."""
KINDS = ("tasks", "taskobjects", "jobs", "jobconfigs", "syncsets", "dataponds")


class World:
    """A manager whose tasks may create Jobs, and a namespace with a worker of two slots."""

    def __init__(self, manager: kube_manager.Manager, namespace: str, kubeconfig: Path) -> None:
        self.manager = manager
        self._namespace = namespace
        self._kubeconfig = kubeconfig

    def run(self, script: Path, *, directory: Path, **more: str) -> str:
        """Run an example as its README says, to its good end; return its output."""
        environment = {**self.manager.kube.environment, "KUBECONFIG": str(self._kubeconfig), **more}
        done = subprocess.run(
            [str(script)], capture_output=True, text=True, env=environment, cwd=directory,
            timeout=100, check=False,
        )  # fmt: skip
        if done.returncode:
            details = f"{done.stdout}{done.stderr}\n{self.manager.log()[-3000:]}"
            raise AssertionError(f"{script}: {done.returncode}\n{details}")
        return done.stdout

    def left(self) -> dict[str, list[str]]:
        """Return the names of our objects in the namespace, except the cluster and its worker."""
        found = {}
        for plural in KINDS:
            path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{self._namespace}/{plural}"
            items = self.manager.kube.http.get(path).ok()["items"]
            found[plural] = [one["metadata"]["name"] for one in items]
        return found


@pytest.fixture(scope="module")
def world(
    kube: kube_cluster.Kube, real_node: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    namespace = kube_servers.fresh_name("examples")
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).ok()
    kubeconfig = tmp_path_factory.mktemp("user") / "kubeconfig"
    kubeconfig.write_text(json.dumps(_in_namespace(kube.kubeconfig, namespace)))
    home = kube_manager.on_real_node(real_node, "--storage", "emptyDir", "--ponds", *ALLOWED)
    with kube_manager.installed(kube, home) as manager:
        manager.allow_drivers(namespace)
        manager.start_cluster("default", namespace=namespace, slotsPerWorker=2)
        yield World(manager, namespace, kubeconfig)
        kube.http.delete(f"/api/v1/namespaces/{namespace}")


def _in_namespace(kubeconfig: Path, namespace: str) -> dict[str, Any]:
    """Return the same kubeconfig with a context that names a namespace."""
    document: dict[str, Any] = json.loads(kubeconfig.read_text())
    for context in document["contexts"]:
        context["context"]["namespace"] = namespace
    return document


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.parent.name)
def test_example_runs_and_leaves_nothing(world: World, script: Path, tmp_path: Path) -> None:
    assert world.run(script, directory=tmp_path).endswith("ok\n")
    assert list(tmp_path.iterdir()) == []
    waiting.wait_until(
        lambda: not any(world.left().values()), what="its objects are gone", timeout_s=60
    )


@pytest.mark.parametrize("example", SETS)
def test_sync_set_example_runs_and_leaves_nothing(
    world: World, example: str, tmp_path: Path
) -> None:
    copy = tmp_path / "examples"
    for name in {example, "40-syncset"}:  # with the data of all
        shutil.copytree(EXAMPLES / name, copy / name)
    for file in [*(copy / example).glob("*.yaml"), *(copy / example).glob("*.py")]:
        change = _in_yaml if file.suffix == ".yaml" else _in_python
        file.write_text(change(file.read_text(), _template(tmp_path)))
    home = tmp_path / "home"
    home.mkdir()
    details = world.run(
        copy / example / "run.sh", directory=tmp_path, TMPDIR=str(tmp_path), HOME=str(home)
    )
    assert details.endswith("ok\n")
    waiting.wait_until(
        lambda: not any(world.left().values()), what="its objects are gone", timeout_s=60
    )


def _template(directory: Path) -> dict[str, Any]:
    """Return a template of workers that mount a directory of the machine at its own path."""
    worker = {
        "name": "worker",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "programs", "mountPath": str(directory), "readOnly": True}],
    }
    volume = {"name": "programs", "hostPath": {"path": str(directory)}}
    return {"spec": {"containers": [worker], "volumes": [volume]}}


def _in_yaml(text: str, template: dict[str, Any]) -> str:
    documents = list(yaml.safe_load_all(text))
    for one in documents:
        if one["kind"] == "SyncSet":
            for group in one["spec"]["resources"]["groups"]:
                group["template"] = template
    return yaml.safe_dump_all(documents, sort_keys=False)


def _in_python(text: str, template: dict[str, Any]) -> str:
    given = f"template={template!r}"
    text = text.replace("ss.controller()", f"ss.controller({given})")
    return text.replace('ss.group("worker", ', f'ss.group("worker", {given}, ')


def test_manager_has_the_rights_that_it_needs(world: World) -> None:
    assert world.manager.refusals() == []
