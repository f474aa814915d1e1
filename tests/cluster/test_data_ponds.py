"""DataPonds on kubelets: agents as root on a node directory, files that Pods read and write, and
data that SyncSets take from other sets and from file jobs.
"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hack.image import worker

from support import kube_cluster, kube_manager, kube_sets, ponds, waiting

pytestmark = pytest.mark.timeout(240)

FILES = {"a.csv": b"1\n2\n", "d/b.csv": b"3\n"}
RECORDS = "".join(f'{{"id": {number}}}\n' for number in range(8))


@pytest.fixture(scope="module")
def world(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_sets.World]:
    """Run a manager as a Pod, with the rights that `kiln install` grants, and a pond."""
    with kube_sets.running(kube, real_node) as made:
        made.kube.apply(made.manager.cluster("default", namespace=made.namespace))
        files = {"name": "jobs", "uri": "kiln:"}
        made.make_pond("lake", from_peers=True, sources=[files])
        yield made


@pytest.fixture
def name(world: kube_sets.World) -> Iterator[str]:
    """Return a name prefix for SyncSets, which are deleted afterwards."""
    with kube_sets.deleted_afterwards(world) as made:
        yield made


def test_snapshot_is_on_every_node_and_visible_to_pods(
    world: kube_sets.World, namespace: str, tmp_path: Path
) -> None:
    """Both nodes share the directory: one agent serves them all."""
    manager, kube, here = world.manager, world.kube, ("-n", namespace)
    manager.allow_drivers(namespace)
    ponds.write_files(tmp_path / "lake", FILES)
    (tmp_path / "lake/d").chmod(0o700)  # the agent reads as root
    pond = tmp_path / "pond"
    kube.apply(_pond(namespace, source=tmp_path / "lake", path=pond))
    kube.kiln("wait", "datapond/lake", *here, "--for", "condition=Ready", "--timeout", "100s")

    output = kube.kiln("data", "lake", *here, "--fetch", "disk", "--lease", "mine").stdout

    nodes = kube.real_nodes()
    assert f"{ponds.manifest_of(FILES).digest} (6 B) is on {len(nodes)} node" in output
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


def test_output_of_two_nodes_is_one_snapshot_for_another_set(
    world: kube_sets.World, name: str
) -> None:
    """Tasks may run as any user; a node keeps its part and fetches the other when it is read."""
    writer, reader = name, f"{name}-reads"
    writes = f"umask 077; {world.waits_at(name)}; cp $KILN_INPUT $KILN_OUTPUTS/$KILN_TASK_ID.json"
    price = {"each": "number", "of": "[0, 1, 2, 3]", "command": ["sh", "-c", writes]}
    made = kube_sets.sync_set(writer, order="follow", cpu="700m", flow={"do": [{"price": price}]})
    made["spec"]["data"] = {"pond": {"name": "lake"}, "outputs": [{"name": "p", "step": "price"}]}
    group = made["spec"]["resources"]["groups"][0]
    del group["near"]
    group["template"]["spec"]["securityContext"] = {"runAsUser": 12345, "runAsNonRoot": True}
    world.kube.apply(made, namespace=world.namespace)
    world.wait(lambda: _running_tasks(world, writer, "price") == 4, "each worker has a task")
    outputs = [one / "outputs" / world.namespace / f"{writer}-g1" for one in world.ponds("lake")]
    for directory in outputs:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o1777
    world.source.gates[name].set()
    written = world.phase(writer, "Succeeded")["outputs"]["p"]
    assert (written["files"], written["nodes"]) == (4, 2)

    source = {"output": {"set": writer, "name": "p"}}
    read = kube_sets.sync_set(reader, order="lead", cpu="700m")
    snapshot = {"name": "trades", "from": source, "shard": {"by": "files"}}
    read["spec"]["data"]["snapshots"] = [snapshot]
    world.kube.apply(read, namespace=world.namespace)
    found = world.phase(reader, "Succeeded")
    assert found["snapshots"]["trades"]["digest"] == written["digest"]
    assert found["dataReady"] == "2/2"
    assert len(found["result"]["value"]["parts"]) == 4

    world.delete(writer)
    world.wait(
        lambda: not any(one.exists() for one in outputs) and not world.runs(writer),
        "the output goes with its set",
    )
    assert world.manager.refusals() == []


def test_results_of_a_file_job_are_data(world: kube_sets.World, name: str) -> None:
    """Agents read them from the manager in the cluster, with the token of their pond."""
    world.manager.wait_available("default", namespace=world.namespace)
    upload = ("upload", "-", "--format", "jsonl", "--mapper", "identity", "--items-per-part", "3")
    job = world.kube.kiln(*upload, "--watch", "-n", world.namespace, stdin=RECORDS).stdout.strip()
    made = kube_sets.sync_set(name, order="lead", cpu="300m")
    source = {"files": job, "path": "parts"}
    snapshot = {"name": "trades", "from": source, "shard": {"by": "files"}}
    made["spec"]["data"]["snapshots"] = [snapshot]
    made["spec"]["resources"]["groups"][0]["replicas"] = 2
    world.kube.apply(made, namespace=world.namespace)
    value = world.phase(name, "Succeeded")["result"]["value"]
    assert value["parts"] == [3, 3, 2]


def test_deleted_pond_leaves_nothing_on_its_nodes(world: kube_sets.World) -> None:
    """Its agents remove what they kept except the directory itself, which is their mount; then the
    agents and the object are removed.
    """
    world.make_pond("gone")
    kept, here = world.ponds("gone"), ("-n", world.namespace)
    asked = ("--fetch", "web", "--path", kube_sets.FILES[0])
    output = world.kube.kiln("data", "gone", *here, *asked, "--lease", "mine").stdout
    assert "is on 2 nodes, held by lease mine" in output
    assert all((one / "blobs").is_dir() for one in kept)
    pond = f"/apis/kilnwork.dev/v1alpha1/namespaces/{world.namespace}/dataponds/gone"
    world.kube.http.delete(pond).ok()
    world.wait(lambda: world.kube.http.get(pond).status == 404, "the object is gone")
    assert [list(one.iterdir()) for one in kept] == [[], []]
    pods = f"/api/v1/namespaces/{world.namespace}/pods"

    def agents() -> list[str]:
        names = [one["metadata"]["name"] for one in world.kube.http.get(pods).json["items"]]
        return [one for one in names if one.startswith("gone-")]

    waiting.wait_until(lambda: not agents(), what="its agents are gone", timeout_s=60)
    assert world.manager.refusals() == []


def _running_tasks(world: kube_sets.World, name: str, step: str) -> int:
    steps = world.status(name).get("flow", {}).get("steps", {})
    return int(steps.get(step, {}).get("running", 0))


def _pond(namespace: str, *, source: Path, path: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "DataPond",
        "metadata": {"name": "lake", "namespace": namespace},
        "spec": {"path": str(path), "sources": [{"name": "disk", "uri": source.as_uri()}]},
    }


def _printed(manager: kube_manager.Manager, namespace: str, *, node: str, run: Path) -> str:
    """Return what a Pod without privileges reads on that node."""
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
