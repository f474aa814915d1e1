"""SyncSets and DataPonds on two kubelets: agents, gates, data on nodes, flows, with backend `pods`.

"Statement N" in docstrings: one of what a SyncSet promises (docs/decisions/0043-sync-sets.md).
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import held_source, kube_cluster, kube_manager, kube_servers, waiting

pytestmark = pytest.mark.timeout(240)

FILES = [f"trades/{number}.csv" for number in range(8)]
FINAL = {"Succeeded", "Failed", "Killed", "AdmissionError"}
PATIENCE_S = 90.0


def content(lines: int) -> dict[str, bytes]:
    return {path: b"x\n" * (lines + number) for number, path in enumerate(FILES)}


class World:
    """A manager, a namespace with DataPond `lake`, and its source."""

    def __init__(self, manager: kube_manager.Manager, source: held_source.HeldSource) -> None:
        self.manager = manager
        self.kube = manager.kube
        self.source = source
        self.namespace = kube_servers.fresh_name("sets")

    def make_pond(self) -> None:
        self.kube.apply(
            {
                "apiVersion": "kilnwork.dev/v1alpha1",
                "kind": "DataPond",
                "metadata": {"name": "lake"},
                "spec": {
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "fetch": {"fromPeers": False},
                    "sources": [{"name": "web", "uri": self.source.uri}],
                },
            },
            namespace=self.namespace,
        )

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return dict(self.kube.get(kind, name, f"--namespace={self.namespace}"))

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.get("syncset", name).get("status") or {})

    def condition(self, kind: str, name: str, what: str) -> dict[str, str]:
        found = (self.get(kind, name).get("status") or {}).get("conditions", ())
        return next((c for c in found if c["type"] == what), {"status": "", "reason": ""})

    def wait(self, what: Callable[[], Any], text: str, *, timeout_s: float = PATIENCE_S) -> Any:
        try:
            return waiting.wait_until(what, what=text, timeout_s=timeout_s, every_s=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.described()}") from error

    def described(self) -> str:
        here = f"--namespace={self.namespace}"
        said = self.kube.kubectl("get", "kss,kpond", here, "-o", "yaml")[-6000:]
        said += self.kube.kubectl("describe", "pods", here)[-5000:]
        for one in self.kube.get("pods", here)["items"]:
            try:
                said += self.kube.kubectl("logs", here, one["metadata"]["name"])[-1000:]
            except Exception as error:  # noqa: BLE001 - it may have no container yet
                said += f"{error}\n"
        return said + self.manager.log()[-4000:]

    def phase(self, name: str, wanted: str, *, generation: int = 1) -> dict[str, Any]:
        def reached() -> dict[str, Any]:
            found = self.status(name)
            if found.get("generation") != generation:
                return {}
            phase = found.get("phase")
            if phase in FINAL and phase != wanted:
                raise AssertionError(f"{json.dumps(found, indent=1)}\n{self.described()}")
            return found if phase == wanted else {}

        return dict(self.wait(reached, f"{name} is {wanted}"))

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Workers of a set that are not on their way out."""
        label = f"--selector=kilnwork.dev/set={name}"
        found = self.kube.get("pods", f"--namespace={self.namespace}", label)["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def runs(self, name: str) -> list[str]:
        """Directories with data of a set, of all nodes."""
        nodes = [self.kube.folder / node / "host" for node in self.kube.real_nodes()]
        below = f"ponds/{self.namespace}/lake/runs/{self.namespace}"
        found = [list((node / below).glob(f"{name}-g*")) for node in nodes]
        return [str(path) for paths in found for path in paths]

    def start(self, name: str, *, order: str = "follow", cpu: str = "700m", **spec: Any) -> None:
        self.kube.apply(sync_set(name, order=order, cpu=cpu, **spec), namespace=self.namespace)

    def delete(self, name: str) -> None:
        self.kube.kubectl("delete", "syncset", name, f"--namespace={self.namespace}")


def sync_set(name: str, *, order: str, cpu: str, **spec: Any) -> dict[str, Any]:
    """Four workers that fill two nodes; eight shards."""
    worker = {
        "name": "worker",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [worker]}}
    group = {"name": "worker", "replicas": 4, "near": ["trades"], "template": template}
    trades = {
        "name": "trades",
        "from": {"source": "web", "paths": FILES},
        "shard": {"by": "files", "count": 8},
    }
    made = {
        "backend": "pods",
        "resources": {"groups": [group], "gang": {"waitSeconds": 60}},
        "data": {"snapshots": [trades], "pond": {"name": "lake", "order": order}},
        "flow": flow(),
        **spec,
    }
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "SyncSet",
        "metadata": {"name": name},
        "spec": made,
    }


def flow(*, first: str = "true") -> dict[str, Any]:
    """Lines of each shard, one after the other has waited for `first`."""
    lines = f"{first}; cd $KILN_DATA/trades && cat $({PATHS}) | wc -l > $KILN_OUTPUT"
    return {
        "do": [
            {"price": {"each": "shard", "of": "data.trades", "command": ["sh", "-c", lines]}},
            {
                "total": {
                    "join": "price",
                    "command": ["sh", "-c", "cat $KILN_INPUT > $KILN_OUTPUT"],
                    "with": {"parts": "${ price.results }", "digest": "${ data.trades.digest }"},
                }
            },
        ]
    }


PATHS = (
    "python3 -c 'import json, os; "
    'print(*(f["path"] for f in json.load(open(os.environ["KILN_INPUT"]))["shard"]["files"]))\''
)


@pytest.fixture(scope="module")
def world(kube: kube_cluster.Kube, real_node: str) -> Iterator[World]:
    if len(kube.real_nodes()) < 2:
        pytest.skip("needs two nodes: python -m hack.kube run --nodes 2")
    with (
        held_source.HeldSource(kube.address, content(10)) as source,
        kube_manager.installed(kube, kube_manager.on_real_node(real_node, "--ponds")) as manager,
    ):
        made = World(manager, source)
        kube.http.post("/api/v1/namespaces", {"metadata": {"name": made.namespace}}).ok()
        account = f"/api/v1/namespaces/{made.namespace}/serviceaccounts/default"
        waiting.wait_until(lambda: kube.http.get(account).status == 200, what="default account")
        made.make_pond()
        made.wait(
            lambda: made.condition("datapond", "lake", "Ready")["status"] == "True",
            "each node has an agent",
        )
        yield made
        kube.http.delete(f"/api/v1/namespaces/{made.namespace}")


@pytest.fixture
def name(world: World) -> Iterator[str]:
    """Of a SyncSet, which is deleted afterwards, so that the next one has room."""
    made = kube_servers.fresh_name("s")
    yield made
    world.source.free.set()
    world.kube.kubectl(
        "delete", "syncset", made, "--ignore-not-found", f"--namespace={world.namespace}"
    )
    world.wait(lambda: not world.pods(made), "its room is free")


@pytest.mark.parametrize("order", ["lead", "follow"])
def test_flow_starts_when_all_are_placed_and_all_their_nodes_have_the_data(
    world: World, name: str, order: str
) -> None:
    """Statements 2, 3 and 6: placed and the data there, in both orders; an object of the set."""
    marker = f"{name}-settings"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": marker}, "data": {}}
    world.source.files = content(10 if order == "lead" else 20)  # a digest that no node has
    world.source.hold()
    made = sync_set(name, order=order, cpu="700m")
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


def test_worker_that_is_deleted_is_replaced_and_all_read_what_was_pinned(
    world: World, name: str
) -> None:
    """Statement 4: the source changes while it runs, a worker comes later: one digest for all."""
    gate = f"{world.source.uri}gates/{name}"
    world.source.files = content(30)
    world.start(name, flow=flow(first=f"wget -q -O /dev/null {gate}"))
    world.wait(
        lambda: (
            world.status(name).get("flow", {}).get("steps", {}).get("price", {}).get("running") == 4
        ),
        "every worker has a shard",
    )
    pinned = world.status(name)["snapshots"]["trades"]["digest"]
    world.source.files = content(500)
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


def test_other_number_of_workers_parts_the_data_anew_and_moves_none(
    world: World, name: str
) -> None:
    """Statement 5: as many shards as workers; what nodes have is not fetched again."""
    world.source.files = content(40)
    made = sync_set(name, order="follow", cpu="700m")
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


def test_gang_that_does_not_fit_holds_nothing_and_says_who_lacks_what(
    world: World, name: str
) -> None:
    world.start(name, cpu="1200m")  # one fits on each node
    world.wait(
        lambda: world.condition("syncset", name, "GangReady")["reason"] == "WaitingForRoom",
        "it is told",
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


def test_deleted_set_leaves_nothing(world: World, name: str) -> None:
    gate = f"{world.source.uri}gates/{name}"
    world.start(name, flow=flow(first=f"wget -q -O /dev/null {gate}"))
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
