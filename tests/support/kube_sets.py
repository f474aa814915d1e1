"""SyncSets on two kubelets, with the DataPond of their namespace and its source.

Used by tests/cluster and bench/gangs.py.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support import blocking_source, kube_cluster, kube_manager, kube_servers, waiting

FILES = [f"trades/{number}.csv" for number in range(8)]
FINAL = {"Succeeded", "Failed", "Killed", "AdmissionError"}
PATIENCE_S = 90.0


def content(lines: int) -> dict[str, bytes]:
    return {path: b"x\n" * (lines + number) for number, path in enumerate(FILES)}


class World:
    """A manager, a namespace with DataPond `lake`, and its source."""

    def __init__(
        self, manager: kube_manager.Manager, source: blocking_source.BlockingSource
    ) -> None:
        self.manager = manager
        self.kube = manager.kube
        self.source = source
        self.namespace = kube_servers.fresh_name("sets")

    def make_pond(
        self, name: str, *, from_peers: bool = False, sources: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Create a pond and wait for its agent on each node."""
        self.kube.apply(
            {
                "apiVersion": "kilnwork.dev/v1alpha1",
                "kind": "DataPond",
                "metadata": {"name": name},
                "spec": {
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "fetch": {"fromPeers": from_peers},
                    "sources": [{"name": "web", "uri": self.source.uri}, *sources],
                },
            },
            namespace=self.namespace,
        )
        self.wait(
            lambda: self.condition("datapond", name, "Ready")["status"] == "True",
            f"each node has an agent of {name}",
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
        details = self.kube.kubectl("get", "kss,kpond", here, "-o", "yaml")[-6000:]
        details += self.kube.kubectl("describe", "pods", here)[-5000:]
        for one in self.kube.get("pods", here)["items"]:
            try:
                details += self.kube.kubectl("logs", here, one["metadata"]["name"])[-1000:]
            except Exception as error:  # noqa: BLE001 - it may have no container yet
                details += f"{error}\n"
        return details + self.manager.log()[-4000:]

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
        """Return the worker Pods of a set that are not terminating."""
        label = f"--selector=kilnwork.dev/set={name}"
        found = self.kube.get("pods", f"--namespace={self.namespace}", label)["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def ponds(self, name: str) -> list[Path]:
        """Return the directory of a pond on each node, whether it exists or not."""
        nodes = [self.kube.directory / node / "host" for node in self.kube.real_nodes()]
        return [node / "ponds" / self.namespace / name for node in nodes]

    def runs(self, name: str, *, pond: str = "lake") -> list[str]:
        """Return the data directories of a set on all nodes."""
        below = f"runs/{self.namespace}"
        found = [list((one / below).glob(f"{name}-g*")) for one in self.ponds(pond)]
        return [str(path) for paths in found for path in paths]

    def snapshot_files(self, name: str, snapshot: str = "trades") -> dict[str, set[str]]:
        """Return the files of a snapshot that a set sees, by node."""
        found: dict[str, set[str]] = {}
        for path in map(Path, self.runs(name)):
            node = path.relative_to(self.kube.directory).parts[0]
            top = path / snapshot
            found[node] = {str(p.relative_to(top)) for p in top.rglob("*") if p.is_file()}
        return found

    def start(self, name: str, *, order: str = "follow", cpu: str = "700m", **spec: Any) -> None:
        self.kube.apply(sync_set(name, order=order, cpu=cpu, **spec), namespace=self.namespace)

    def waits_at(self, gate: str) -> str:
        """Return a shell command that ends when that gate of the source is open."""
        return f"wget -q -O /dev/null {self.source.uri}gates/{gate}"

    def delete(self, name: str) -> None:
        self.kube.kubectl("delete", "syncset", name, f"--namespace={self.namespace}")


@contextlib.contextmanager
def running(kube: kube_cluster.Kube, node: str) -> Iterator[World]:
    """Run a manager with ponds on that node, and everything of `World` but the pond."""
    if len(kube.real_nodes()) < 2:
        pytest.skip("needs two nodes: python -m hack.kube run --nodes 2")
    with (
        blocking_source.BlockingSource(kube.address, content(10)) as source,
        kube_manager.installed(kube, kube_manager.on_real_node(node, "--ponds")) as manager,
    ):
        made = World(manager, source)
        kube.http.post("/api/v1/namespaces", {"metadata": {"name": made.namespace}}).ok()
        account = f"/api/v1/namespaces/{made.namespace}/serviceaccounts/default"
        waiting.wait_until(lambda: kube.http.get(account).status == 200, what="default account")
        manager.allow_drivers(made.namespace)
        yield made
        kube.http.delete(f"/api/v1/namespaces/{made.namespace}")


@contextlib.contextmanager
def deleted_afterwards(world: World) -> Iterator[str]:
    """Yield a name prefix; SyncSets with this prefix are deleted afterwards to free their room."""
    made, here = kube_servers.fresh_name("s"), f"--namespace={world.namespace}"
    yield made
    world.source.free.set()
    for gate in list(world.source.gates.values()):
        gate.set()
    names = [one["metadata"]["name"] for one in world.kube.get("syncsets", here)["items"]]
    ours = {made, *(one for one in names if one.startswith(made))}
    world.kube.kubectl("delete", "syncset", "--ignore-not-found", here, *sorted(ours))
    world.wait(lambda: not any(world.pods(one) for one in ours), "their room is free")


def template(cpu: str) -> dict[str, Any]:
    """Return a worker Pod template that requests these CPUs."""
    worker = {
        "name": "worker",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [worker]}}


def sync_set(name: str, *, order: str, cpu: str, **spec: Any) -> dict[str, Any]:
    """Return a set of four workers that fill two nodes, with eight shards."""
    group = {"name": "worker", "replicas": 4, "near": ["trades"], "template": template(cpu)}
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
    """Return a flow that counts the lines of each shard, after one task has waited for `first`."""
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
