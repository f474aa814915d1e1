"""DataPonds on kubelets: agents as root on a directory of the node, and files that Pods see there.

All nodes of the sandbox share one disk, so one agent serves them all; agents that fetch from each
other are in tests/integration/test_pond_agents.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hack.image import worker

from support import kube_cluster, kube_manager, ponds, waiting

pytestmark = pytest.mark.timeout(240)

FILES = {"a.csv": b"1\n2\n", "d/b.csv": b"3\n"}


@pytest.fixture(scope="module")
def manager(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_manager.Manager]:
    """A manager as a Pod, with the rights that `kiln install` gives it."""
    with kube_manager.installed(kube, kube_manager.on_real_node(real_node, "--ponds")) as made:
        yield made


def test_a_snapshot_is_on_every_node_and_pods_see_it(
    manager: kube_manager.Manager, namespace: str, tmp_path: Path
) -> None:
    kube, here = manager.kube, ("-n", namespace)
    manager.allow_drivers(namespace)
    ponds.write_files(tmp_path / "lake", FILES)
    (tmp_path / "lake/d").chmod(0o700)  # the agent reads what root may
    pond = tmp_path / "pond"
    kube.apply(_pond(namespace, source=tmp_path / "lake", path=pond))
    kube.kiln("wait", "datapond/lake", *here, "--for", "condition=Ready", "--timeout", "100s")

    said = kube.kiln("data", "lake", *here, "--fetch", "disk", "--lease", "mine").stdout

    nodes = kube.real_nodes()
    assert f"{ponds.manifest_of(FILES).digest} (6 B) is on {len(nodes)} node" in said
    run = pond / "runs" / namespace / "user_mine"
    assert ponds.read_files(run / "disk") == FILES
    for node in nodes:
        assert _printed(manager, namespace, node=node, run=run) == "1\n2\n3\n"
    assert manager.refusals() == []

    kube.kiln("data", "lake", *here, "--release", "mine")
    waiting.wait_until(lambda: not run.exists(), what="the run's files are gone")
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{namespace}/dataponds/lake"
    kube.http.delete(path).ok()
    pods = f"/api/v1/namespaces/{namespace}/pods"
    waiting.wait_until(
        lambda: (
            not [
                one
                for one in json.loads(kube.http.get(pods).body)["items"]
                if one["metadata"]["name"].startswith("lake-")
            ]
        ),
        what="the agents are gone",
        timeout_s=60,
    )


def _pond(namespace: str, *, source: Path, path: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "DataPond",
        "metadata": {"name": "lake", "namespace": namespace},
        "spec": {"path": str(path), "sources": [{"name": "disk", "uri": source.as_uri()}]},
    }


def _printed(manager: kube_manager.Manager, namespace: str, *, node: str, run: Path) -> str:
    """What a Pod on that node reads, as nobody in particular."""
    name = f"reads-{node}"
    kube = manager.kube
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "nodeName": node,
                "restartPolicy": "Never",
                "securityContext": {"runAsUser": 12345, "runAsNonRoot": True},
                "volumes": [{"name": "data", "hostPath": {"path": str(run)}}],
                "containers": [
                    {
                        "name": "main",
                        "image": worker.name(),
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", "cat /data/disk/a.csv /data/disk/d/b.csv"],
                        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
                    }
                ],
            },
        }
    )
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    waiting.wait_until(
        lambda: json.loads(kube.http.get(path).body)["status"]["phase"] == "Succeeded",
        what=f"{name} has succeeded",
        timeout_s=60,
    )
    return kube.kubectl("logs", f"--namespace={namespace}", name)
