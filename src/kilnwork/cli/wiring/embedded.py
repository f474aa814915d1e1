"""Composition root of `kiln up`: embedded Kubernetes, its node, and the manager.

Used by the command `up`. The package's docstring lists what is started, in which order.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from kilnwork import controllers, version
from kilnwork.cli import embedded_crds
from kilnwork.cli.wiring import manager, port_adapters, steps
from kilnwork.controlplane import cluster
from kilnwork.dispatch.hub import retention
from kilnwork.kit import clock
from kilnwork.kube import client
from kilnwork.server.jobs import settings as jobs_settings

WORKER_COMMAND = (sys.executable, "-m", "kilnwork.worker")
WORKER_IMAGE = f"kilnwork/worker:{version.__version__}"
"""Image of workers; on the local node it is only a label."""

NODE_GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for Pods when the server stops, within its limit of 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """Settings of `kiln up`."""

    data_dir: Path
    port: int
    workdir: Path
    slots: int
    """Number of slots of TaskCluster `default` when it is created."""
    files: jobs_settings.JobsApiSettings = field(default_factory=jobs_settings.JobsApiSettings)
    """Settings of the Jobs API."""
    keep: retention.RetentionLimits = field(default_factory=retention.RetentionLimits)
    """Which finished tasks are kept, and how long."""
    allowed_kinds: tuple[str, ...] = ("*",)
    """Kinds of objects that tasks may make."""


class EmbeddedServer:
    """The server of one data directory, as `kiln up` runs it.

    Create it, `start` it in a running loop, `stop` it. `on_failure(text)` is called when a part
    ends unexpectedly: then the process should stop.
    """

    def __init__(self, settings: EmbeddedSettings, *, on_failure: steps.Say) -> None:
        self._settings = settings
        self._clock = clock.SystemClock()
        self._plane = cluster.ControlPlane(
            cluster.ControlPlaneSettings(
                data_dir=settings.data_dir,
                port=settings.port,
                workdir=settings.workdir,
                installed=embedded_crds.EXTENSIONS,
            )
        )
        self._manager = manager.Manager(
            manager.ManagerSettings(
                data_dir=settings.data_dir,
                worker_image=WORKER_IMAGE,
                worker_command=WORKER_COMMAND,
                worker_dir=str(settings.workdir),
                files=settings.files,
                keep=settings.keep,
                allowed_kinds=settings.allowed_kinds,
                ponds_here=True,
            ),
            time=self._clock,
            on_failure=on_failure,
        )
        self._steps = self._manager.steps
        self._steps.plan(
            (
                ("API server", self._start_plane),
                ("dispatcher", self._start_dispatcher),
                ("node", self._start_node),
                ("controllers", self._start_controllers),
                ("TaskCluster default", self._make_default),
            )
        )
        self._steps.explain("API server", lambda: self._plane.installed_problem)
        self._steps.explain("controllers", lambda: self._controllers_wait)
        self._controllers_wait: str | None = None
        self._client: client.Client
        front = self._manager.guard(port_adapters.EmbeddedAccess(self._plane))
        for mount in front.mounts:
            self._plane.mount(mount.prefix, manager.serving(front, mount))

    @property
    def url(self) -> str:
        return self._plane.address

    @property
    def http_url(self) -> str:
        """Return the plain HTTP URL of the server, for everything but Kubernetes."""
        return self._plane.http_address

    @property
    def kubeconfig(self) -> Path:
        return self._plane.kubeconfig

    @property
    def trouble(self) -> str | None:
        """Return the reason why some of kilnwork's kinds are not served, and what to do.

        None if all kinds are served.
        """
        return self._plane.installed_problem

    async def start(self, *, say: steps.Say) -> None:
        """Start the server, which is ready when this returns.

        Call `stop` afterwards, even if this fails. Raises KilnError for problems that a user can
        solve: directory or port in use, journal unreadable.
        """
        await self._steps.start(say=say)
        unix = str(self._manager.dispatcher.socket)
        self._plane.publish(epoch=self._manager.hub.epoch, unix=unix)

    async def stop(self, *, say: steps.Say) -> None:
        """Stop the started parts of the server in reverse order.

        A part that fails to stop does not prevent the others from stopping.
        """
        await self._steps.stop(say=say)

    async def _start_plane(self) -> None:
        await self._plane.start()
        self._steps.then("API server", self._plane.stop)

    async def _start_dispatcher(self) -> None:
        self._client = await self._manager.connect("client", self._new_client)
        await self._manager.start_dispatcher(
            self._client, reached_at=self._plane.http_address, read_log=self._plane.read_log
        )

    def _new_client(self) -> client.Client:
        settings = self._plane.admin_config()
        return client.Client(
            settings, user_agent="kiln-manager", time=self._clock, app=self._plane.app
        )

    async def _start_node(self) -> None:
        self._steps.then("node and its Pods", self._stop_node)
        await self._plane.start_node()

    async def _stop_node(self) -> None:
        await self._manager.hub.closing()
        await self._plane.stop_node(grace_s=NODE_GRACE_S)

    async def _start_controllers(self) -> None:
        """Start the controllers, unless their kinds are not served.

        In that case the API server runs alone, so that the kinds can be repaired.
        """
        if self._plane.serves_installed:
            await self._manager.start_controllers()
        else:
            self._controllers_wait = "kinds were missing at the start: start the server again"

    async def _make_default(self) -> None:
        if self.trouble is not None:
            return
        made = controllers.DefaultCluster(
            self._client,
            slots=self._settings.slots,
            time=self._clock,
            on_failure=self._manager.fail,
        )
        await made.start()
        self._steps.then("TaskCluster default", made.stop)
