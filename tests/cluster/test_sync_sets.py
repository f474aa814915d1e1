"""SyncSets and DataPonds on two kubelets: agents, gates, data on nodes, flows, with backend `pods`.

"Statement N" in docstrings: one of what a SyncSet promises (docs/decisions/0043-sync-sets.md).
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kilnwork as kiln
from kilnwork import testing
from support import (
    kube_cluster,
    kube_sets,
    remote_driver,
)

pytestmark = pytest.mark.timeout(240)


ACCOUNT_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@pytest.fixture(scope="module")
def world(kube: kube_cluster.Kube, real_node: str) -> Iterator[kube_sets.World]:
    with kube_sets.running(kube, real_node) as made:
        made.make_pond("lake")
        # A session has a cluster for its own calls.
        made.kube.apply(made.manager.cluster("default", namespace=made.namespace, replicas=0))
        yield made


@pytest.fixture
def name(world: kube_sets.World) -> Iterator[str]:
    """Return the name of a SyncSet, or a prefix of several, which are deleted afterwards."""
    with kube_sets.deleted_afterwards(world) as made:
        yield made


@pytest.mark.parametrize("order", ["lead", "follow"])
def test_flow_starts_when_all_workers_are_placed_and_have_their_data(
    world: kube_sets.World, name: str, order: str
) -> None:
    """Statements 2, 3 and 6: workers placed and data delivered, in both orders; an object of the
    set.
    """
    marker = f"{name}-settings"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": marker}, "data": {}}
    world.source.files = kube_sets.content(
        10 if order == "lead" else 20
    )  # a digest that no node has
    world.source.hold()
    made = kube_sets.sync_set(name, order=order, cpu="700m")
    made["spec"]["resources"]["objects"] = [config]
    world.kube.apply(made, namespace=world.namespace)
    world.wait(
        lambda: (
            world.condition("syncset", name, "DataReady")["reason"] == "Fetching"
            or world.condition("syncset", name, "GangReady")["reason"] == "WaitingForData"
        ),
        "it waits for data of one node",
    )
    if order == "follow":
        world.wait(
            lambda: world.condition("syncset", name, "GangReady")["status"] == "True",
            "the gang is bound first",
        )
    found = world.status(name)
    assert world.condition("syncset", name, "FlowRunning")["status"] == "False"
    assert world.condition("syncset", name, "DataReady")["status"] == "False"
    bound = [one for one in world.pods(name) if one["spec"].get("nodeName")]
    assert len(bound) == (0 if order == "lead" else 4), found
    world.source.free.set()
    found = world.phase(name, "Succeeded")
    lines = 10 if order == "lead" else 20
    value = found["result"]["value"]
    assert value["parts"] == [lines + number for number in range(8)]
    assert value["digest"] == found["snapshots"]["trades"]["digest"]
    assert (found["dataReady"], found["gang"], found["progress"]) == ("2/2", "4/4", "9/9")
    assert world.get("configmap", marker)["metadata"]["ownerReferences"][0]["name"] == name
    world.delete(name)
    gone = f"/api/v1/namespaces/{world.namespace}/configmaps/{marker}"
    world.wait(lambda: world.kube.http.get(gone).status == 404, "its object is gone")


def test_deleted_worker_is_replaced_and_reads_the_pinned_data(
    world: kube_sets.World, name: str
) -> None:
    """Statement 4: the source changes during the run and a worker is replaced: all read one
    digest.
    """
    gate = f"{world.source.uri}gates/{name}"
    world.source.files = kube_sets.content(30)
    world.start(name, flow=kube_sets.flow(first=f"wget -q -O /dev/null {gate}"))
    world.wait(
        lambda: (
            world.status(name).get("flow", {}).get("steps", {}).get("price", {}).get("running") == 4
        ),
        "every worker has a shard",
    )
    pinned = world.status(name)["snapshots"]["trades"]["digest"]
    world.source.files = kube_sets.content(500)
    victim = world.pods(name)[0]["metadata"]
    world.kube.kubectl("delete", "pod", victim["name"], f"--namespace={world.namespace}")
    world.wait(
        lambda: (
            len(
                [
                    one
                    for one in world.pods(name)
                    if one["spec"].get("nodeName") and one["metadata"]["uid"] != victim["uid"]
                ]
            )
            == 4
        ),
        "another has its place",
    )
    world.source.gates[name].set()
    found = world.phase(name, "Succeeded")
    assert found["result"]["value"]["parts"] == [30 + number for number in range(8)]
    assert found["snapshots"]["trades"]["digest"] == pinned


def test_changed_number_of_workers_divides_the_data_without_moving_it(
    world: kube_sets.World, name: str
) -> None:
    """Statement 5: as many shards as workers; what nodes have is not fetched again."""
    world.source.files = kube_sets.content(40)
    made = kube_sets.sync_set(name, order="follow", cpu="700m")
    made["spec"]["data"]["snapshots"][0]["shard"] = {"by": "files", "group": "worker"}
    world.kube.apply(made, namespace=world.namespace)
    first = world.phase(name, "Succeeded")["result"]["value"]
    assert len(first["parts"]) == 4
    sent = world.source.sent()
    made["spec"]["generation"] = 2
    made["spec"]["resources"]["groups"][0]["replicas"] = 2
    world.kube.apply(made, namespace=world.namespace)
    second = world.phase(name, "Succeeded", generation=2)["result"]["value"]
    assert len(second["parts"]) == 2
    assert sum(first["parts"]) == sum(second["parts"]) == sum(40 + n for n in range(8))
    assert first["digest"] == second["digest"]
    assert world.source.sent() == sent


def test_workers_added_during_the_flow_share_unread_data(world: kube_sets.World, name: str) -> None:
    """Statement 5, within a generation: new workers start with the same data."""
    world.source.files = kube_sets.content(50)
    made = kube_sets.sync_set(name, order="follow", cpu="700m")
    made["spec"]["data"]["snapshots"][0]["shard"] = {"by": "files", "group": "worker"}
    group = made["spec"]["resources"]["groups"][0]
    group |= {"replicas": 2, "min": 2, "elastic": {"max": 4}}
    waits = ["sh", "-c", f"wget -q -O /dev/null {world.source.uri}gates/{name}"]
    made["spec"]["flow"]["do"].insert(0, {"waits": {"command": waits}})
    world.kube.apply(made, namespace=world.namespace)
    world.phase(name, "Running")
    digest = world.status(name)["snapshots"]["trades"]["digest"]
    group["replicas"] = 4
    world.kube.apply(made, namespace=world.namespace)
    world.wait(
        lambda: (
            world.status(name)["snapshots"]["trades"]["shards"] == 4
            and world.status(name)["gang"] == "4/4"
        ),
        "four workers and four shards",
    )
    world.source.gates[name].set()
    value = world.phase(name, "Succeeded")["result"]["value"]
    assert len(value["parts"]) == 4
    assert sum(value["parts"]) == sum(50 + number for number in range(8))
    assert value["digest"] == digest


def test_gang_that_does_not_fit_holds_nothing_and_names_the_lack(
    world: kube_sets.World, name: str
) -> None:
    world.start(name, cpu="1200m")  # one fits on each node
    world.wait(
        lambda: world.condition("syncset", name, "GangReady")["reason"] == "WaitingForRoom",
        "it is reported",
    )
    message = world.condition("syncset", name, "GangReady")["message"]
    assert "2 workers have no node in group worker: each needs cpu 1.2" in message
    assert "0/2 nodes are available" in message
    for node in world.kube.real_nodes():
        assert f"node {node} cpu " in message
    pods = world.pods(name)
    assert len(pods) == 4
    assert not any(one["spec"].get("nodeName") for one in pods)
    assert message in world.kube.kiln("why", f"syncset/{name}", "-n", world.namespace).stdout


def test_deleted_set_leaves_nothing(world: kube_sets.World, name: str) -> None:
    gate = f"{world.source.uri}gates/{name}"
    world.start(name, flow=kube_sets.flow(first=f"wget -q -O /dev/null {gate}"))
    world.phase(name, "Running")
    assert len(world.runs(name)) == 2
    world.delete(name)
    http, kinds = world.kube.http, f"/apis/kilnwork.dev/v1alpha1/namespaces/{world.namespace}"
    selected = f"labelSelector=kilnwork.dev/set%3D{name}"

    def left() -> list[Any]:
        clusters = http.get(f"{kinds}/taskclusters?{selected}").json["items"]
        pods = http.get(f"/api/v1/namespaces/{world.namespace}/pods?{selected}").json["items"]
        return [*clusters, *pods, *world.runs(name)]

    world.wait(lambda: not left(), "workers and data are gone")
    why = world.kube.kiln("data", "-n", world.namespace, check=False)
    assert name not in why.stdout
    assert world.manager.refusals() == []


def test_nodes_get_only_the_shards_of_their_workers(world: kube_sets.World, name: str) -> None:
    """`deliver: shard`: each shard is read on a node that holds it."""
    world.source.files = kube_sets.content(60)
    made = kube_sets.sync_set(name, order="lead", cpu="700m")
    gate = f"{world.source.uri}gates/{name}"
    made["spec"]["flow"] = kube_sets.flow(first=f"wget -q -O /dev/null {gate}")
    made["spec"]["data"]["snapshots"][0]["deliver"] = "shard"
    before = world.source.sent()
    world.kube.apply(made, namespace=world.namespace)
    world.phase(name, "Running")
    placed = world.snapshot_files(name)
    assert sorted(map(len, placed.values())) == [4, 4]
    assert set().union(*placed.values()) == set(kube_sets.FILES)
    assert world.source.sent() - before == 8 + 4  # one node has pinned all, the other got its half
    reported = [one["metadata"]["annotations"]["kilnwork.dev/portions"] for one in world.pods(name)]
    assert sorted(reported) == ["0", "1", "2", "3"]
    world.source.gates[name].set()
    value = world.phase(name, "Succeeded")["result"]["value"]
    assert value["parts"] == [60 + number for number in range(8)]
    listed = world.kube.kiln("tasks", "-n", world.namespace, "-o", "json").stdout
    nodes = {one["name"]: one.get("nodeName") for one in json.loads(listed)["items"]}
    for number in range(8):
        assert f"trades/{number}.csv" in placed[nodes[f"{name}-g1-price-{number}"]]


def test_shards_of_a_deleted_worker_are_read_by_its_replacement(
    world: kube_sets.World, name: str
) -> None:
    """With `deliver: shard`, while no other worker has room for more."""
    world.source.files = kube_sets.content(70)
    made = kube_sets.sync_set(name, order="follow", cpu="700m")
    gate = f"{world.source.uri}gates/{name}"
    made["spec"]["flow"] = kube_sets.flow(first=f"wget -q -O /dev/null {gate}")
    made["spec"]["data"]["snapshots"][0]["deliver"] = "shard"
    world.kube.apply(made, namespace=world.namespace)
    world.phase(name, "Running")
    victim = world.pods(name)[0]["metadata"]
    portions = victim["annotations"]["kilnwork.dev/portions"]
    world.kube.kubectl("delete", "pod", victim["name"], f"--namespace={world.namespace}")

    def replaced() -> bool:
        return any(
            one["metadata"]["annotations"].get("kilnwork.dev/portions") == portions
            and one["metadata"]["uid"] != victim["uid"]
            for one in world.pods(name)
        )

    world.wait(replaced, "another has its share")
    world.source.gates[name].set()
    value = world.phase(name, "Succeeded")["result"]["value"]
    assert value["parts"] == [70 + number for number in range(8)]


def test_nodes_get_files_from_each_other_before_the_source(
    world: kube_sets.World, name: str
) -> None:
    """From Pod to Pod, on two nodes: the source sends each file once."""
    world.make_pond("shared", from_peers=True)
    world.source.files = kube_sets.content(80)
    made = kube_sets.sync_set(name, order="lead", cpu="700m")
    made["spec"]["data"]["pond"]["name"] = "shared"
    before = world.source.gets.copy()
    world.kube.apply(made, namespace=world.namespace)
    value = world.phase(name, "Succeeded")["result"]["value"]
    assert value["parts"] == [80 + number for number in range(8)]
    sent = world.source.gets - before
    assert {path for _, path in sent} == set(kube_sets.FILES)
    assert sent.total() == len(kube_sets.FILES), sent
    output = world.kube.kiln("data", "shared", "-n", world.namespace, "-o", "json").stdout
    counters = [one["counters"] for one in json.loads(output)["ponds"]["shared"]]
    assert sum(one.get("fetchedPeers", 0) for one in counters) == sum(
        map(len, world.source.files.values())
    )


def test_flow_result_is_equal_in_one_process_and_in_the_cluster(
    world: kube_sets.World, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Statement 7: the functions are sent along; results are byte-equal except the order of
    members, which the API server chooses.
    """
    world.source.files = kube_sets.content(90)
    monkeypatch.setenv("KUBECONFIG", str(world.kube.kubeconfig))
    remote_driver.hide_server(monkeypatch, tmp_path / "home")
    with kiln.SyncSet(name, pond="lake", backend="pods") as declared:
        template = kube_sets.template("700m")
        declared.group("worker", replicas=4, template=template)
        trades = declared.data(
            "trades", source="web", paths=kube_sets.FILES, shards=5, by="range", deliver="shard"
        )
        counted = declared.each(trades, lines_of)
        declared.join(counted, summed)
    for path, content in world.source.files.items():
        file = tmp_path / "data" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    here = testing.run_set(declared, data={"trades": tmp_path / "data"})
    with kiln.connect(namespace=world.namespace):
        run = declared.submit()
        there = run.result(timeout=kube_sets.PATIENCE_S)
    encode = msgspec.json.Encoder(order="sorted").encode
    assert encode(there) == encode(here.value)
    rows = sum(90 + number - 1 for number in range(8))  # the first of each file is a header
    assert there["lines"] == rows
    assert {key: one.succeeded for key, one in run.steps().items()} == {
        key: one.succeeded for key, one in here.steps.items()
    }


def test_gang_of_higher_priority_is_placed_first(world: kube_sets.World, name: str) -> None:
    """Another gang would fit beside the running one: it names the gang that it waits for, and is
    placed after it.
    """
    runs, high, low = f"{name}-runs", f"{name}-high", f"{name}-low"

    def start(which: str, *, replicas: int, **spec: Any) -> None:
        flow = {"do": [{"x": {"command": ["sh", "-c", world.waits_at(which)]}}]}
        made = kube_sets.sync_set(which, order="follow", cpu="700m", flow=flow, data={}, **spec)
        group = made["spec"]["resources"]["groups"][0]
        group["replicas"] = replicas
        del group["near"]
        world.kube.apply(made, namespace=world.namespace)

    def gang(which: str) -> dict[str, str]:
        return world.condition("syncset", which, "GangReady")

    start(runs, replicas=3)
    world.phase(runs, "Running")
    start(high, replicas=4, priority=5)
    world.wait(lambda: "worker" in gang(high).get("message", ""), "there is no room for it")
    start(low, replicas=1)
    behind = (
        f"SyncSet {world.namespace}/{high} of priority 5 waits for its turn before this one of "
        "priority 0"
    )
    world.wait(lambda: gang(low).get("message") == behind, "it waits behind the other")
    world.source.gates[runs].set()
    world.phase(runs, "Succeeded")
    world.phase(high, "Running")
    assert not [one for one in world.pods(low) if one["spec"].get("nodeName")]
    world.source.gates[high].set()
    world.source.gates[low].set()
    world.phase(low, "Succeeded")


def test_driver_has_its_own_worker_and_account(
    world: kube_sets.World, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It runs with the rights of that account; its spawned tasks run on the group, without them."""
    here = f"--namespace={world.namespace}"
    world.kube.kubectl("create", "serviceaccount", "driver", here)
    monkeypatch.setenv("KUBECONFIG", str(world.kube.kubeconfig))
    remote_driver.hide_server(monkeypatch, tmp_path / "home")
    with kiln.SyncSet(name, pond="lake", backend="pods") as declared:
        declared.group("worker", replicas=2, template=kube_sets.template("300m"))
        own = declared.controller(template=kube_sets.template("100m"), service_account="driver")
        declared.call(drive).options(group=own)
    with kiln.connect(namespace=world.namespace):
        found = declared.run(timeout=kube_sets.PATIENCE_S)
    assert found == {
        "driver": {"account": True, "spawns": f"{name}-g1-worker"},
        "who": f"system:serviceaccount:{world.namespace}:driver",
        "spawned": [{"account": False, "spawns": ""}] * 4,
    }
    assert world.status(name)["groups"]["controller"]["desired"] == 1


def lines_of(shard: dict[str, Any]) -> dict[str, Any]:
    """Count the lines of a shard."""
    opened = kiln.Shard(shard)
    return {"id": opened.id, "lines": sum(1 for _ in opened.lines())}


def summed(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the counts up, and return the shards that were counted."""
    return {"lines": sum(one["lines"] for one in results), "ids": [one["id"] for one in results]}


def spawned_on(_: int) -> dict[str, Any]:
    """Return what a task sees of its worker."""
    return {"account": ACCOUNT_FILE.exists(), "spawns": os.environ.get("KILN_SPAWN_CLUSTER", "")}


def drive() -> dict[str, Any]:
    """Spawn tasks, and show the rights of the account by a request to the API server."""
    futures = kiln.task(spawned_on).map(range(4))
    return {"driver": spawned_on(0), "who": whoami(), "spawned": [f.result() for f in futures]}


def whoami() -> str:
    """Return the name of the account whose token the Pod has."""
    import base64  # noqa: PLC0415 - the function is sent by value
    import json  # noqa: PLC0415

    payload = ACCOUNT_FILE.read_text().split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return str(claims["sub"])
