"""The composition root of `kiln up`: what a server is made of, and its order of start and stop.

The only module that knows all of controlplane, dispatch, controllers and server. Used by the
command `up`, which owns the process around it (signals, output).

Start: API server (answers, but is not ready) → dispatcher → node → controllers → default cluster →
ready. Stop: not ready → controllers, so that nothing is replaced → node, which ends every Pod →
dispatcher, which until then hears how tasks ended → API server.
"""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path

from kilnwork import controllers, version
from kilnwork.cli import adapters, dispatcher, embedded_kinds, steps
from kilnwork.controlplane import cluster
from kilnwork.dispatch.hub import hub
from kilnwork.kit import clock
from kilnwork.kube import client
from kilnwork.server.jobs import app as jobs_api
from kilnwork.server.jobs import settings as jobs_settings

log = logging.getLogger(__name__)

WORKER_COMMAND = (sys.executable, "-m", "kilnwork.worker")
WORKER_IMAGE = f"kilnwork/worker:{version.__version__}"
"""On the local node an image is only a label."""

NODE_GRACE_S = 10.0
"""Between SIGTERM and SIGKILL for Pods when the server stops: all must be over within 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user chose. `slots`: of TaskCluster `default`, at its first start only. `files`: of
    the Jobs API."""

    data_dir: Path
    port: int
    workdir: Path
    slots: int
    files: jobs_settings.Settings = field(default_factory=jobs_settings.Settings)


class Server:
    """Everything of one data directory. Make it, `start` it in a running loop, `stop` it.

    `on_failure(text)` is called when a part ends that never should: then the process should stop.
    """

    def __init__(self, settings: Settings, *, on_failure: steps.Say) -> None:
        self._settings = settings
        self._on_failure = on_failure
        self._clock = clock.SystemClock()
        self._plane = cluster.ControlPlane(
            cluster.Settings(
                data_dir=settings.data_dir,
                port=settings.port,
                workdir=settings.workdir,
                installed=embedded_kinds.EXTENSIONS,
            )
        )
        self._dispatcher = dispatcher.Dispatcher(
            settings.data_dir,
            time=self._clock,
            checks=self._checks,
            known=lambda: self._controllers.caches,
            fail=self._fail,
            files=dispatcher.Files(settings=settings.files, shared=True),
        )
        self._client: client.Client
        self._controllers: controllers.Controllers
        self._hub: hub.Hub
        self._steps = steps.Steps(
            (
                ("API server", self._start_plane),
                ("dispatcher", self._start_dispatcher),
                ("node", self._start_node),
                ("controllers", self._start_controllers),
                ("TaskCluster default", self._make_default),
            )
        )
        self._mount()

    @property
    def url(self) -> str:
        """Where the API is served."""
        return self._plane.address

    @property
    def http_url(self) -> str:
        """Where all but Kubernetes is served over plain http."""
        return self._plane.http_address

    @property
    def kubeconfig(self) -> Path:
        """The file for clients."""
        return self._plane.kubeconfig

    def _mount(self) -> None:
        for mount in self._dispatcher.mounts:
            guests = mount.prefix in jobs_api.PREFIXES  # it says itself who needs a token
            self._plane.mount(mount.prefix, mount.app, asks=mount.asks, guests=guests)

    def _checks(self) -> dict[str, str | None]:
        """By name of each part, what it waits for; an unwritable journal is not ready."""
        checks = dict(self._steps.waiting_for)
        checks["dispatcher"] = checks["dispatcher"] or self._dispatcher.trouble
        return checks

    async def start(self, *, say: steps.Say) -> None:
        """Be ready when this returns; whatever happens, call `stop` afterwards.

        Raises KilnError that a person can act on: folder or port in use, journal unreadable.
        """
        await self._steps.start(say=say)
        channel = cluster.Channel(unix=str(self._dispatcher.socket))
        self._plane.publish(epoch=self._hub.epoch, channel=channel)

    async def stop(self, *, say: steps.Say) -> None:
        """Stop what has started, last first; a part that fails does not keep the others."""
        await self._steps.stop(say=say)

    async def _start_plane(self) -> None:
        await self._plane.start()
        self._steps.then("API server", self._plane.stop)

    async def _start_dispatcher(self) -> None:
        self._client = client.Client(
            self._plane.admin_config(), user_agent="kiln-manager", time=self._clock
        )
        await self._client.__aenter__()
        self._steps.then("client", lambda: self._client.__aexit__(None, None, None))
        self._controllers = controllers.Controllers(
            self._client,
            controllers.Settings(
                channel=f"unix:{self._dispatcher.socket}",
                worker_command=WORKER_COMMAND,
                worker_image=WORKER_IMAGE,
                worker_dir=str(self._settings.workdir),
            ),
            time=self._clock,
            on_failure=self._fail,
        )
        callers = dispatcher.Callers(
            verifier=adapters.ChannelVerifier(self._controllers.verifier, self._plane),
            rights=adapters.RbacRights(self._plane.authorizer),
            clusters=lambda running: adapters.KnownClusters(running, self._plane),
        )
        self._hub = await self._dispatcher.start(callers, self._steps)

    async def _start_node(self) -> None:
        self._steps.then("node and its Pods", self._stop_node)
        await self._plane.start_node()

    async def _stop_node(self) -> None:
        await self._hub.closing()
        await self._plane.stop_node(grace_s=NODE_GRACE_S)

    async def _start_controllers(self) -> None:
        await self._controllers.start(self._hub)
        self._steps.then("controllers", self._controllers.stop)

    async def _make_default(self) -> None:
        await controllers.ensure_default(self._client, slots=self._settings.slots)

    def _fail(self, name: str, error: BaseException) -> None:
        self._steps.failed(name, error)
        self._on_failure(f"{name}: {error}")
