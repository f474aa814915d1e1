"""Gangs on a real API server, with nodes that exist only as objects and workers played by the test.

For the contract tests of backends and tests of SyncSets. The server's own scheduler binds Pods to
nodes; `connect` connects the workers of bound Pods.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

from kilnwork.api import api_resources, kinds
from kilnwork.controllers import reconciler_context
from kilnwork.controllers.gangs import pods_backend, port, processes_backend
from kilnwork.kit import clock
from kilnwork.kube import client, errors
from support import controller_world, waiting


class ShiftedClock:
    """A clock that is some seconds ahead."""

    def __init__(self, by_s: float = 0.0) -> None:
        self.by_s = by_s
        self._system = clock.SystemClock()

    def wall(self) -> float:
        return self._system.wall() + self.by_s

    def monotonic(self) -> float:
        return self._system.monotonic()


def template(cpu: str = "1") -> dict[str, Any]:
    """Return a worker template that requests CPUs."""
    requests = {"cpu": cpu, "memory": "64Mi"}
    return {"spec": {"containers": [{"name": "worker", "resources": {"requests": requests}}]}}


def group(name: str = "worker", replicas: int = 2, cpu: str = "1", **more: Any) -> port.GroupSpec:
    """Return a group of workers; all are needed unless `min` is given."""
    return port.GroupSpec(
        name=name,
        cluster=f"risk-g1-{name}",
        replicas=replicas,
        min=more.pop("min", replicas),
        template=template(cpu),
        **more,
    )


def spec(uid: str, *groups: port.GroupSpec, **more: Any) -> port.GangSpec:
    """Return a gang of SyncSet `risk`."""
    return port.GangSpec(
        namespace=controller_world.NS,
        name="risk",
        uid=uid,
        generation=1,
        groups=groups or (group(),),
        wait_s=more.pop("wait_s", 60.0),
        requeue=more.pop("requeue", True),
        **more,
    )


class CrashingClient:
    """Client of managers that crash right after a request: once after each write."""

    def __init__(self, kube: client.Client) -> None:
        self._kube = kube
        self.died: set[tuple[str, str]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    async def create(self, kind: api_resources.Resource, obj: dict[str, Any], *more: Any) -> Any:
        return self._die(
            "create", obj["metadata"]["name"], await self._kube.create(kind, obj, *more)
        )

    async def merge_patch(self, kind: api_resources.Resource, name: str, *more: Any) -> Any:
        return self._die("patch", name, await self._kube.merge_patch(kind, name, *more))

    async def delete(
        self, kind: api_resources.Resource, name: str, *more: Any, **options: Any
    ) -> Any:
        return self._die("delete", name, await self._kube.delete(kind, name, *more, **options))

    def _die(self, verb: str, name: str, response: Any) -> Any:
        if (verb, name) in self.died:
            return response
        self.died.add((verb, name))
        raise ManagerDied(f"{verb} {name}")


class ManagerDied(Exception):
    """Raised in place of the crash of the manager in the middle of a pass."""


class GangWorld:
    """One API server with TaskClusters, and a backend of each kind."""

    def __init__(self, world: controller_world.World) -> None:
        self.world = world
        self.kube = world.kube
        self.uid = ""
        """Of SyncSet `risk`."""

    async def start(self) -> None:
        """Create the SyncSet that owns the groups; without it the garbage collector would remove
        them.
        """
        groups = [{"name": "worker"}]
        spec = {"resources": {"groups": groups}, "flow": {"do": [{"x": {"command": ["true"]}}]}}
        made = await self.kube.create(
            kinds.SYNC_SETS,
            controller_world.body(kinds.SYNC_SETS, "risk", spec=spec),
            controller_world.NS,
        )
        self.uid = made["metadata"]["uid"]

    def spec(self, *groups: port.GroupSpec, **more: Any) -> port.GangSpec:
        """Return a gang of the SyncSet."""
        return spec(self.uid, *groups, **more)

    def backend(
        self, kind: str, time: clock.Clock | None = None, *, kube: Any = None
    ) -> port.Backend:
        """Return a new backend, as in a manager that has just started."""
        context = reconciler_context.ReconcilerContext(
            kube or self.kube,
            self.world.controllers.caches,
            lambda *_: None,
            time or clock.SystemClock(),
        )
        made = (
            processes_backend.LocalBackend(context)
            if kind == "local"
            else pods_backend.PodsBackend(context)
        )
        made.use(self.world.hub)
        return made

    async def node(self, name: str, cpu: str = "4", **labels: str) -> None:
        """Create a ready Node."""
        marks = {"kubernetes.io/hostname": f"host-{name}", **labels}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": marks},
        }
        await self.kube.create(api_resources.NODES, body)
        status = {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.kube.merge_patch(
            api_resources.NODES, name, {"status": status}, subresource="status"
        )

    async def pods(self) -> dict[str, dict[str, Any]]:
        return await self.world.pods()

    async def bound(self) -> dict[str, str]:
        """Return the node of each bound Pod."""
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in (await self.pods()).items()
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        }

    async def connect(self, names: Iterable[str] | None = None) -> None:
        """Connect the workers of all bound Pods, or of these."""
        by_cluster: dict[str, list[Any]] = {}
        for name, pod in (await self.pods()).items():
            if pod["spec"].get("nodeName") and (names is None or name in names):
                cluster = pod["metadata"]["annotations"]["kilnwork.dev/cluster"]
                by_cluster.setdefault(cluster, []).append(controller_world.worker(pod))
        for cluster, workers in by_cluster.items():
            self.world.hub.publish_cluster((controller_world.NS, cluster), *workers)

    async def end_pods(self) -> bool:
        """Remove terminating Pods as kubelets would; return True if there was none."""
        leaving = [p for p in (await self.pods()).values() if _is_leaving(p)]
        for pod in leaving:
            name = pod["metadata"]["name"]
            with contextlib.suppress(errors.NotFound):
                await self.kube.delete(api_resources.PODS, name, controller_world.NS, grace_s=0)
        return not leaving

    async def clusters(self) -> list[str]:
        listed = await self.kube.list(kinds.TASK_CLUSTERS, controller_world.NS, type=dict)
        return sorted(c["metadata"]["name"] for c in listed.items)

    async def until(
        self, backend: port.Backend, wanted: port.GangSpec, holds: Any, *, what: str
    ) -> port.GangState:
        """Request the gang until its state satisfies `holds`."""

        async def asked() -> port.GangState | None:
            state = await backend.ensure(wanted)
            found = holds(state)
            if not isinstance(found, bool):
                found = await found
            return state if found else None

        found = await waiting.wait_until_async(asked, what=what)
        assert found is not None
        return found


def _is_leaving(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]
