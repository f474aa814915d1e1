"""Subject of the executor contract for executor `ephemeral`: containers in the Pod of a real
worker, on our node.

The worker is a separate process that outlives the manager and connects to each new one. A container
cannot be deleted; to remove one, a test deletes its Pod. Then a new Pod is created, and the
dispatcher is notified as by the controller of TaskClusters.
"""

import contextlib
import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import api_resources, meta, pod, task_cluster
from kilnwork.api import task as api_task
from kilnwork.controllers import worker_pods
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.executors import port
from kilnwork.executors.ephemeral import executor as ephemeral_executor
from kilnwork.executors.ephemeral import template
from kilnwork.kit import ids
from kilnwork.kube import cache, client, errors, reflector
from kilnwork.worker import orphans
from support import embedded_server, executor_subjects, executor_world, waiting

NS = executor_world.NS
CLUSTER = "eph"
_OURS = ",".join(f"{key}={value}" for key, value in worker_pods.MANAGED.items())
_STRATEGIC = "application/strategic-merge-patch+json"


class EphemeralSubject(executor_world.Subject):
    """One worker Pod at a time, with one slot for each of a few attempts."""

    creates, deletes, releases = "PATCH ephemeralcontainers", "", ""
    without = ("Staging", "Starting", "")
    graceful_counts = False  # its worker drains
    options = hubs.HubOptions(lease_s=15.0, renew_s=1.0)

    def __init__(self, admin: client.Client, channel: Path) -> None:
        self._admin = admin
        self._absent = False
        self._manager: executor_subjects.SteppingClient | None = None
        self._names = itertools.count()
        self._worker: dict[str, Any] = {}
        self._gone: list[str] = []
        settings = worker_pods.WorkerPodSettings(
            channel=f"unix:{channel}",
            worker_command=(sys.executable, "-m", "kilnwork.worker"),
            worker_image="label",
        )
        self._cluster = task_cluster.TaskCluster(
            metadata=meta.ObjectMeta(name=CLUSTER, namespace=NS),
            spec=task_cluster.TaskClusterSpec(
                slots_per_worker=4, runtime=task_cluster.Runtime.EPHEMERAL_CONTAINERS
            ),
        )
        self._template = worker_pods.template(self._cluster, settings, secret_uid="")

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        return api_task.TaskSpec(cluster_name=CLUSTER, command=("sh", "-c", script), **more)

    def too_large(self, script: str, **more: Any) -> api_task.TaskSpec:
        writes = 'head -c 70000 /dev/zero | tr "\\0" 1 > "$KILN_OUTPUT"'
        return self.spec(f"{script} {writes}", **more)

    def life(self, steps: executor_world.Steps) -> executor_world.Life:
        known: cache.Cache[pod.Pod] = cache.Cache()
        kube = executor_subjects.SteppingClient(self._admin.config, user_agent="manager")
        kube.steps, kube.absent = steps, self._absent
        self._manager = kube
        made = ephemeral_executor.EphemeralExecutor(kube, known)
        assert self.hub is not None
        made.use(self.hub.containers.kill)
        scope = reflector.Scope(label_selector=_OURS)
        pods = reflector.Reflector(
            kube, api_resources.PODS, pod.Pod, known, made.changed, scope=scope
        )

        async def follow() -> None:
            async with kube:
                await pods.run()

        return executor_world.Life(made, follow())

    async def begin(self) -> None:
        """Create the channel Secret and the first worker."""
        secret = worker_pods.make_secret(self._cluster, "secret")
        del secret["metadata"]["ownerReferences"]
        await self._admin.create(api_resources.SECRETS, secret, NS)
        await self._new_worker()

    async def joined(self, hub: hubs.Hub) -> None:
        """Report deleted Pods to the new dispatcher, and wait until the worker is connected."""
        await super().joined(hub)
        for uid in self._gone:
            await self._wait_until_disconnected(hub, uid)
        self._gone.clear()
        await self._is_there(hub)

    def place(self) -> port.WorkerPod:
        metadata = self._worker["metadata"]
        return port.WorkerPod(pod=metadata["name"], pod_uid=metadata["uid"])

    async def objects(self) -> list[str]:
        """Return the names of unfinished containers, including those of terminating Pods."""
        listed = await self._admin.list(api_resources.PODS, NS, type=dict)
        return sorted(name for found in listed.items for name in _living(found))

    async def held(self) -> list[str]:
        return []

    async def remove(self, name: str, *, by_force: bool) -> None:
        """Delete the Pod of a container and create another one."""
        metadata = self._worker["metadata"]
        if self.hub is not None and not by_force:
            await self.hub.drain(NS, CLUSTER, frozenset({metadata["uid"]}))
        grace = 0 if by_force else None
        await self._admin.delete(api_resources.PODS, metadata["name"], NS, grace_s=grace)
        await self._new_worker()
        await self._is_gone(metadata["name"])
        if self.hub is None:
            self._gone.append(metadata["uid"])
        else:
            await self._wait_until_disconnected(self.hub, metadata["uid"])

    async def create_late(self, attempt: port.Attempt) -> None:
        path = f"{api_resources.PODS.base(NS)}/{self.place().pod}"
        seen = await self._admin.get(api_resources.PODS, self.place().pod, NS, type=pod.Pod)
        ref = attempt.ref
        environment = (  # as its worker has requested
            ("KILN_TASK_ID", ids.task_text(ref.task)),
            ("KILN_RUN", str(ref.run)),
            ("KILN_ATTEMPT", str(ref.attempt)),
            (orphans.MARKER, str(ref)),
        )
        place = msgspec.structs.replace(self.place(), environment=environment)
        made = template.container(attempt, place, seen)
        body = msgspec.json.encode({"spec": {"ephemeralContainers": [made]}})
        path = f"{path}/ephemeralcontainers"
        await self._admin.raw("PATCH", path, body=body, content_type=_STRATEGIC)

    async def occupy(self, attempt: port.Attempt) -> str:
        name = template.container_name(attempt.ref)
        made = {"name": name, "image": "label", "command": ["sleep", "300"]}
        body = msgspec.json.encode({"spec": {"ephemeralContainers": [made]}})
        path = f"{api_resources.PODS.base(NS)}/{self.place().pod}/ephemeralcontainers"
        await self._admin.raw("PATCH", path, body=body, content_type=_STRATEGIC)
        return name

    async def is_unchanged(self, name: str) -> bool:
        return name in await self.objects()

    async def absent(self, *, now: bool) -> None:
        self._absent = now
        assert self._manager is not None
        self._manager.absent = now

    async def _new_worker(self) -> None:
        body = worker_pods.with_name(self._template, f"{CLUSTER}-{next(self._names)}")
        metadata = {k: v for k, v in body["metadata"].items() if k != "ownerReferences"}
        self._worker = await self._admin.create(
            api_resources.PODS, {**body, "metadata": metadata}, NS
        )

    async def _is_there(self, hub: hubs.Hub) -> None:
        uid = self._worker["metadata"]["uid"]

        def look() -> bool:
            view = hub.cluster(NS, CLUSTER)
            return view is not None and any(one.pod_uid == uid for one in view.workers)

        await waiting.wait_until_async(look, what="the worker is connected")

    async def _wait_until_disconnected(self, hub: hubs.Hub, uid: str) -> None:
        """Wait while a worker is connected whose Pod is gone."""

        async def look() -> bool:
            await hub.worker_gone(uid)
            view = hub.cluster(NS, CLUSTER)
            return view is None or all(one.pod_uid != uid for one in view.workers)

        await waiting.wait_until_async(look, what="the worker is disconnected")

    async def _is_gone(self, name: str) -> None:
        async def look() -> bool:
            try:
                await self._admin.get(api_resources.PODS, name, NS)
            except errors.NotFound:
                return True
            return False

        await waiting.wait_until_async(look, what=f"{name} is gone")


def _living(found: dict[str, Any]) -> list[str]:
    statuses = found["status"].get("ephemeralContainerStatuses") or ()
    over = {status["name"] for status in statuses if "terminated" in status["state"]}
    every = [made["name"] for made in found["spec"].get("ephemeralContainers") or ()]
    return [name for name in every if name not in over]


@contextlib.asynccontextmanager
async def on_containers(directory: Path) -> AsyncIterator[EphemeralSubject]:
    """Run executor `ephemeral` on a new control plane, with a node and a worker."""
    async with embedded_server.admin_beside_node(directory, node=True) as admin:
        made = EphemeralSubject(admin, directory / executor_world.SOCKET)
        await made.begin()
        yield made
