"""The composition root of `kiln up`: what a server is made of, and its order of start and stop.

The only module that knows all of controlplane, dispatch, controllers and server. Used by the
command `up`, which owns the process around it (signals, output).

Start: API server (answers, but is not ready) → dispatcher → node → controllers → default cluster →
ready. Stop: not ready → controllers, so that nothing is replaced → node, which ends every Pod →
dispatcher, which until then hears how tasks ended → API server.
"""

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kilnwork import controllers, version
from kilnwork.api import manager
from kilnwork.cli import adapters, steps
from kilnwork.controlplane import cluster
from kilnwork.dispatch import hub, journal
from kilnwork.kit import clock, ids
from kilnwork.kube import client
from kilnwork.server import api, channel, gate, health, metrics
from kilnwork.server import blobs as blob_server

log = logging.getLogger(__name__)

WORKER_COMMAND = (sys.executable, "-m", "kilnwork.worker")
WORKER_IMAGE = f"kilnwork/worker:{version.__version__}"
"""On the local node an image is only a label."""

NODE_GRACE_S = 10.0
"""Between SIGTERM and SIGKILL for Pods when the server stops: all must be over within 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user chose. `slots`: of TaskCluster `default`, at its first start only."""

    data_dir: Path
    port: int
    workdir: Path
    slots: int


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
                data_dir=settings.data_dir, port=settings.port, workdir=settings.workdir
            )
        )
        self._api = gate.Gate()
        self._metrics = gate.Gate()
        self._channel = gate.Gate()
        self._blobs = gate.Gate()
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
    def kubeconfig(self) -> Path:
        """The file for clients."""
        return self._plane.kubeconfig

    def _mount(self) -> None:
        checks = health.app(self._checks)
        for path in health.PATHS:
            self._plane.mount(path, checks)
        self._plane.mount("/v1", self._api)
        self._plane.mount("/metrics", self._metrics)
        self._plane.mount(manager.CHANNEL_PATH, self._channel, asks=False)
        self._plane.mount("/blobs", self._blobs, asks=False)

    def _checks(self) -> dict[str, str | None]:
        """By name of each part, what it waits for; an unwritable journal is not ready."""
        checks = dict(self._steps.waiting_for)
        if checks["dispatcher"] is None and self._hub.trouble is not None:
            checks["dispatcher"] = f"cannot write its journal: {self._hub.trouble}"
        return checks

    async def start(self, *, say: steps.Say) -> None:
        """Be ready when this returns; whatever happens, call `stop` afterwards.

        Raises KilnError that a person can act on: folder or port in use, journal unreadable.
        """
        await self._steps.start(say=say)
        self._plane.publish(epoch=self._hub.epoch, channel=cluster.Channel(unix=str(self._socket)))

    async def stop(self, *, say: steps.Say) -> None:
        """Stop what has started, last first; a part that fails does not keep the others."""
        await self._steps.stop(say=say)

    @property
    def _socket(self) -> Path:
        return self._plane.run_dir / "channel.sock"

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
                channel=f"unix:{self._socket}",
                worker_command=WORKER_COMMAND,
                worker_image=WORKER_IMAGE,
                worker_dir=str(self._settings.workdir),
            ),
            time=self._clock,
            on_failure=self._fail,
        )
        await self._start_hub()

    async def _start_hub(self) -> None:
        data = self._settings.data_dir
        blobs = data / "blobs"
        blobs.mkdir(mode=0o700, exist_ok=True)
        store = journal.Journal(data / "journal.db")
        verifier = adapters.ChannelVerifier(self._controllers.verifier, self._plane)
        self._hub = hub.Hub(
            store,
            clock=self._clock,
            verifier=verifier,
            logs_dir=data / "logs",
            entropy=ids.system_entropy(),
            options=hub.Options(
                on_failure=lambda error: self._fail("dispatcher", error), blobs_dir=blobs
            ),
        )
        await self._hub.start(self._socket)
        self._steps.then("dispatcher", self._hub.stop)
        reader = adapters.HubJournal(self._hub, store.path)
        rights = adapters.RbacRights(self._plane.authorizer)
        clusters = adapters.KnownClusters(self._hub, self._plane)
        self._api.app = api.Api(
            reader, rights, clusters, channel=str(self._socket), time=self._clock
        )
        self._metrics.app = metrics.app(self._samples)
        self._channel.app = channel.Channel(self._hub.new_link)
        self._blobs.app = blob_server.Blobs(blobs, verifier)

        async def close() -> None:
            self._api.app = self._metrics.app = self._channel.app = self._blobs.app = None
            reader.close()

        self._steps.then("REST API", close)

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

    def _samples(self) -> Iterator[metrics.Sample]:
        """What `/metrics` shows."""
        yield metrics.Sample(
            name="kilnwork_ready",
            help="1 when every part of the server is ready.",
            value=float(not any(self._checks().values())),
        )
        yield metrics.Sample(
            name="kilnwork_epoch_total",
            help="Times that a dispatcher has taken over this journal.",
            value=float(self._hub.epoch),
            kind="counter",
        )
        yield from adapters.samples(self._hub, self._controllers.caches)
