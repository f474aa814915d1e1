"""The local node as a whole: shim, kubelet API, Node and Lease objects, and the loop over its Pods.

Started by `controlplane.cluster` and by `virtual_node`. The node uses the API server over HTTP
only. Containers survive a SIGKILL of this process; the next `LocalNode` on the same directory takes
them over. Linux only.
"""

import asyncio
import contextlib
import logging
import os
import platform
import shutil
import sys
import types
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib import parse

from kilnwork.api import api_resources
from kilnwork.controlplane.node import (
    access,
    account_tokens,
    container_input_types,
    container_preparation,
    exec_link,
    kubelet_api,
    kubelet_streaming,
    log_reader,
    node_drain,
    node_lease,
    pod_reports,
    pod_types,
    reconciler,
    registration,
    shim,
    shim_container,
    shim_supervisor,
    volumes,
)
from kilnwork.kit import asgi, clock, coroutines
from kilnwork.kube import cache, client, controller, events, manager, objects, queue, reflector
from kilnwork.kube import errors as kube_errors

log = logging.getLogger(__name__)

WORKERS = 8
"""Number of Pods that are reconciled in parallel; each mostly waits for the API server."""

STATUS_S = 1.0
"""Maximum seconds that a stopping node waits for the final statuses to be written."""

AWAY_S = 4.0
"""Timeout for marking the node as stopped and releasing its name: three requests to an API server
that may be busy. If they fail, another process must wait much longer for the name."""

_LOOK_S = 0.01


class LocalNodeSettings(NamedTuple):
    """Settings of a node: its name, its directories, its containers and its Node object."""

    name: str
    directory: Path
    """Data directory, in which `pods` and `shim` are created."""
    run_dir: Path
    """Private directory with a short path, for `shim.sock` and the short links to mounts."""
    workdir: Path
    """Working directory of containers that do not name one."""
    certificates: kubelet_api.Certificates
    address: str = "127.0.0.1"
    path: str | None = None
    """PATH of containers; None: the bin directory of this Python, then our own PATH."""
    home: str | None = None
    """HOME of containers; None: our own home directory."""
    patience_s: float = shim.PATIENCE_S
    """Seconds for which containers keep running without a server."""
    labels: Mapping[str, str] = types.MappingProxyType({})
    taints: tuple[registration.NodeTaint, ...] = ()
    mounts_accounts: bool = True
    """See `container_input_types.NodeFacts.mounts_accounts`."""
    port: int = 0
    """Port of the kubelet API; 0: any free one."""
    on_remove: Callable[[], None] = lambda: None
    """Called at each renewal of the Lease while the Node is marked with `registration.REMOVE`."""
    on_taken: Callable[[], None] = lambda: None
    """Called when another process runs the node. Call `stop_without_statuses` then."""
    seizes: bool = False
    """Whether to take the name from its present holder."""


class LocalNode:
    """A node that runs Pods as processes.

    `kube` is its client, with the rights of group `system:nodes`.
    """

    def __init__(
        self, kube: client.Client, settings: LocalNodeSettings, *, time: clock.Clock | None = None
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._removed = False
        self._now = time or clock.SystemClock()
        self._pods = settings.directory / "pods"
        self._links = volumes.links_directory(settings.run_dir, self._pods)
        self._cache: cache.Cache[pod_types.Pod] = cache.Cache()
        self._queue = queue.WorkQueue(time=self._now)
        self._recorder = events.Recorder(
            kube, component="kiln-node", host=settings.name, time=self._now
        )
        self._reconciler = reconciler.Reconciler(self._tools(kube))
        self._shim = shim_supervisor.Supervisor(
            settings.directory / "shim",
            settings.run_dir / "shim.sock",
            on_ended=self._reconciler.on_ended,
            on_opened=self._reconciler.on_opened,
            patience_s=settings.patience_s,
        )
        self._streaming = kubelet_streaming.ExecPaths(
            self._find_running, shim=settings.run_dir / "shim.sock"
        )
        self._server = self._build_server(kube)
        identity = registration.NodeIdentity(
            settings.name,
            settings.address,
            self._server.port,
            labels=settings.labels,
            taints=settings.taints,
            holder=node_lease.holder(settings.directory, platform.node()),
        )
        self._registration = registration.Registration(
            kube,
            identity,
            now=self._now,
            on_remove=settings.on_remove,
            on_back=self._reconciler.enqueue_all,
            on_taken=settings.on_taken,
        )
        self._manager = self._build_manager(kube)
        self._background = coroutines.BackgroundWork("local node")

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def port(self) -> int:
        """Return the port of the kubelet API."""
        return self._server.port

    def _tools(self, kube: client.Client) -> reconciler.ReconcilerParts:
        facts = node_facts(self._settings, kube.config.server)
        shim_socket = self._settings.run_dir / "shim.sock"

        async def run_inside(
            container_id: str, argv: Sequence[str], timeout_s: float
        ) -> tuple[int, bytes]:
            return await exec_link.run(shim_socket, container_id, argv, timeout_s=timeout_s)

        accounts = account_tokens.AccountTokens(
            kube, ca=self._settings.certificates.ca.read_bytes()
        )
        return reconciler.ReconcilerParts(
            cache=self._cache,
            queue=self._queue,
            link=lambda: self._shim.link,
            run_inside=run_inside,
            preparer=container_preparation.FilePreparer(kube, accounts, facts, self._now),
            reporter=pod_reports.PodReporter(kube, self._recorder, facts.address, self._now),
            directory=self._pods,
            links=self._links,
            now=self._now,
        )

    def _build_server(self, kube: client.Client) -> kubelet_api.KubeletServer:
        settings = self._settings
        reviews = access.ApiAccessReviewer(kube, settings.name, now=self._now)
        app = kubelet_api.KubeletApp(
            self._find_log,
            allowed=access.NodeAccess(reviews),
            streaming=self._streaming,
            now=self._now,
        )
        return kubelet_api.KubeletServer(
            app,
            address=settings.address,
            port=settings.port,
            certificates=settings.certificates,
        )

    def _build_manager(self, kube: client.Client) -> manager.Manager:
        built = manager.Manager("local node")
        built.add_service(self._recorder)
        scope = reflector.Scope(field_selector=f"spec.nodeName={self.name}")
        built.add_reflector(
            reflector.Reflector(
                kube,
                api_resources.PODS,
                pod_types.Pod,
                self._cache,
                self._reconciler.on_change,
                scope=scope,
            )
        )
        built.add_controller(
            controller.Controller("pods", self._reconciler.reconcile, self._queue, workers=WORKERS)
        )
        return built

    def reload_certificate(self) -> None:
        """Load the serving certificate again from its files."""
        self._server.reload()

    async def start(self) -> None:
        """Start the node, which is Ready on return.

        Containers of an earlier process are adopted or ended. After a failure, only the shim with
        its containers keeps running.
        """
        try:
            await self._start()
        except BaseException:
            await self.abandon()
            raise

    async def _start(self) -> None:
        # This comes first, as another process may be running this node.
        await self._registration.claim(seize=self._settings.seizes)
        self._pods.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._shim.start()
        await self._server.start()
        # Registered after the server has started: the Node contains its port.
        await self._registration.register()
        self._background.start("lease", self._registration.keep())
        await self._manager.start()
        # This comes after the first list, before which every Pod would seem to be gone.
        uids = {pod.metadata.uid for pod in self._cache.list()}
        # Pods that were deleted while no process ran here are not in the list: queue them too.
        self._reconciler.enqueue_all()
        self._background.start("clean", asyncio.to_thread(self._reconciler.clean, uids))
        log.info("node is ready", extra={"node": self.name, "port": self.port})

    async def stop(self, *, grace_s: float = 10.0) -> None:
        """Stop every container, write the final statuses, and stop the shim.

        Takes at most `grace_s` + 10 s, unless the shim does not respond. The API server must still
        run to receive the statuses, which are lost otherwise.
        """
        self._reconciler.leave(grace_s)
        await self._wait(lambda: not self._reconciler.running, grace_s + STATUS_S)
        # The reconciles after the last containers have ended write the final statuses.
        await self._wait(lambda: not len(self._queue), STATUS_S)
        await self._background.stop()
        if not self._removed:
            await self._mark_away()
        await self._manager.stop()
        await self._reconciler.stop()
        await self._streaming.stop()
        # The containers have ended by now, or have used up their grace period.
        await self._shim.stop(grace_s=0)
        # The start of a container creates the links again.
        shutil.rmtree(self._links, ignore_errors=True)
        await self._server.stop()

    async def abandon(self) -> None:
        """Stop at once and leave the containers to the shim, as if the process had been killed."""
        await self._background.stop()
        await self._manager.stop()
        await self._reconciler.stop()
        await self._streaming.stop()
        await self._shim.detach()
        await self._server.stop()

    async def stop_without_statuses(self, *, grace_s: float) -> None:
        """Stop every container and the shim without writing statuses.

        The process that has taken the node over writes them.
        """
        await self._background.stop()
        await self._manager.stop()
        await self._reconciler.stop()
        await self._streaming.stop()
        await self._shim.stop(grace_s=grace_s)
        await self._server.stop()

    async def remove(self, say: node_drain.Say) -> None:
        """Cordon the node, evict its Pods and delete the Node. Call `stop` afterwards.

        `say` is called with each step for the user. Raises KubeError if the API server cannot be
        reached; call `remove` again then.
        """
        await self._registration.cordon()
        await node_drain.drain(self._kube, self._cache.list, say)
        # Stopped before the Node is deleted: renewing the Lease would register the Node again.
        await self._background.stop()
        await self._registration.remove()
        self._removed = True

    async def _mark_away(self) -> None:
        with contextlib.suppress(kube_errors.KubeError, TimeoutError):
            async with asyncio.timeout(AWAY_S):
                await self._registration.leave()

    async def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = self._now.monotonic() + seconds
        while not done() and self._now.monotonic() < deadline:  # noqa: ASYNC110  no one event
            await asyncio.sleep(_LOOK_S)

    def read_log(
        self, namespace: str, pod: str, container: str, *, limit_bytes: int | None
    ) -> AsyncGenerator[bytes, None] | None:
        """Return the output of a container so far, or None if it has no log here.

        This is for readers in the same process.
        """
        container_log = self._find_log(namespace, pod, container, False)
        if isinstance(container_log, asgi.Refusal):
            return None
        return log_reader.read(container_log.path, log_reader.LogOptions(limit_bytes=limit_bytes))

    def _find_log(
        self,
        namespace: str,
        pod: str,
        name: str,
        previous: bool,  # noqa: FBT001 - a callback
    ) -> kubelet_api.ContainerLog | asgi.Refusal:
        key: objects.Key = (namespace, pod)
        log_source = self._reconciler.container_log(key, name, previous=previous)
        if log_source is None:
            return asgi.Refusal(404, f'pod "{pod}" or its container "{name}" is not here')
        record, more = log_source
        if isinstance(record, str):
            what = f'container "{name}" in pod "{pod}"'
            if previous:
                return asgi.Refusal(400, f"previous terminated {what} not found")
            return asgi.Refusal(400, f"{what} is waiting to start: {record}")
        return kubelet_api.ContainerLog(shim_container.log_path(record), more)

    def _find_running(
        self, namespace: str, pod: str, name: str
    ) -> kubelet_streaming.FoundContainer | asgi.Refusal:
        """Return the running container for exec or port-forward.

        Without a `name` it is any container of the Pod, since all share an address.
        """
        pod_object = self._cache.get((namespace, pod))
        if pod_object is None:
            return asgi.Refusal(404, "pod does not exist")
        names = [name] if name else [c.name for c in pod_object.spec.containers]
        for wanted in names:
            start = self._reconciler.container_log((namespace, pod), wanted, previous=False)
            if (
                start is not None
                and isinstance(start[0], shim_container.ContainerRecord)
                and start[1]()
            ):
                return kubelet_streaming.FoundContainer(start[0], self._settings.address)
        return asgi.Refusal(500, f'container not found ("{name or names[0]}")')


def node_facts(settings: LocalNodeSettings, server: str) -> container_input_types.NodeFacts:
    """Return the facts that are the same for all containers of a node.

    `server` is the URL of the API server. Of our own environment, containers get only PATH and
    HOME.
    """
    own = os.environ.get("PATH", os.defpath)
    path = settings.path or f"{Path(sys.executable).parent}{os.pathsep}{own}"
    url = parse.urlsplit(server)
    port = url.port or (443 if url.scheme == "https" else 80)
    return container_input_types.NodeFacts(
        node=settings.name,
        address=settings.address,
        workdir=str(settings.workdir),
        env={"PATH": path, "HOME": settings.home or str(Path.home())},
        service_env={
            "KUBERNETES_SERVICE_HOST": url.hostname or settings.address,
            "KUBERNETES_SERVICE_PORT": str(port),
        },
        capacity=registration.capacity(),
        mounts_accounts=settings.mounts_accounts,
        uid=os.geteuid(),
        gid=os.getegid(),
    )
