"""The composition root of `kiln manager`: dispatcher, controllers and REST API for a real cluster.

Like `wiring` without an API server and a node of its own. Used by the command `manager`.

Start: data directory → listener (health answers, the rest is not ready) → leadership → dispatcher
→ controllers → ready. Only the leader is ready, so only the leader is behind the Service. Stop: not
ready → controllers → dispatcher, whose workers wait for the next one → leadership → listener.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kilnwork import controllers
from kilnwork.api import manager
from kilnwork.cli import adapters, manager_adapters, steps
from kilnwork.controlplane import lock
from kilnwork.controlplane.apiserver import pki
from kilnwork.dispatch import hub, journal
from kilnwork.kit import clock, coroutines, errors, ids, paths, serving
from kilnwork.kube import client, config, election
from kilnwork.server import api, channel, gate, guard, health, metrics, reviews
from kilnwork.server import blobs as blob_server

log = logging.getLogger(__name__)

LEASE = "kilnwork-manager"
LEASE_S, RENEW_S, RETRY_S = 120, 90.0, 5.0
"""An API server that is away for a minute ends no term: tasks go on without it. A manager that
comes back on its data directory has the same identity and takes its Lease at once; only one with
another data directory waits so long."""

_UNIX = "unix"
_REQUESTS_END_S = 2.0
_IDENTITY = "identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the operator chose.

    `kube`: the API server. `namespace`: of the Lease. `host` and `port`: where to listen.
    `advertise`: HOST:PORT where workers connect; `unix` for workers on this machine. `worker_image`
    and `worker_command`: of worker Pods whose TaskCluster names none. `machine`: for people who
    read the Lease.
    """

    data_dir: Path
    kube: config.Config
    namespace: str
    host: str
    port: int
    advertise: str
    worker_image: str
    worker_command: tuple[str, ...]
    machine: str


class Server:
    """The manager. Make it, `start` it in a running loop, `stop` it.

    `on_failure(text)` is called when a part ends that never should: then the process should stop.
    """

    def __init__(self, settings: Settings, *, on_failure: steps.Say) -> None:
        self._settings = settings
        self._on_failure = on_failure
        self._clock = clock.SystemClock()
        self._api = gate.Gate()
        self._metrics = gate.Gate()
        self._channel = gate.Gate()
        self._blobs = gate.Gate()
        self._lock = lock.DirectoryLock(settings.data_dir)
        self._pki = pki.Pki(settings.data_dir / "pki", clock=self._clock)
        self._crew = coroutines.Crew("manager", on_failure=self._fail)
        self._elector: election.Elector | None = None
        self._hub: hub.Hub | None = None
        self._client: client.Client
        self._reviews: reviews.Reviews
        self._controllers: controllers.Controllers
        self.port = settings.port
        """Where it listens, once it does."""
        self._steps = steps.Steps(
            (
                ("data directory", self._open_directory),
                ("listener", self._listen),
                ("leadership", self._lead),
                ("dispatcher", self._start_dispatcher),
                ("controllers", self._start_controllers),
            )
        )

    async def start(self, *, say: steps.Say) -> None:
        """Be the leader and ready when this returns; whatever happens, call `stop` afterwards.

        Raises KilnError that a person can act on: folder or port in use, a right that is missing.
        """
        await self._steps.start(say=say)

    async def stop(self, *, say: steps.Say) -> None:
        """Stop what has started, last first."""
        await self._steps.stop(say=say)

    def _checks(self) -> dict[str, str | None]:
        """By name of each part, what it waits for; an unwritable journal is not ready."""
        checks = dict(self._steps.waiting_for)
        if self._elector is not None and checks["leadership"] is not None:
            holder, problem = self._elector.holder, self._elector.problem
            checks["leadership"] = problem or f"{holder or 'nobody'} holds the Lease"
        if self._hub is not None and checks["dispatcher"] is None and self._hub.trouble is not None:
            checks["dispatcher"] = f"cannot write its journal: {self._hub.trouble}"
        return checks

    async def _open_directory(self) -> None:
        data = self._settings.data_dir
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock.acquire()
            paths.make_private(paths.runtime_dir(data))
        except OSError as error:
            raise errors.ConfigurationError(
                f"data directory {data} cannot be used: {error.strerror or error}; "
                "name a folder that you may write with --data"
            ) from error

        async def release() -> None:
            self._lock.release()

        self._steps.then("data directory", release)
        self._pki.prepare_ca()

    async def _listen(self) -> None:
        host, port = self._settings.host, self._settings.port
        try:
            listening = serving.bind(host, port)
        except OSError as error:
            raise errors.ConfigurationError(
                f"cannot listen on {host} port {port}: {error.strerror or error}; "
                "choose another with --listen"
            ) from error
        self.port = int(listening.getsockname()[1])
        pair = self._pki.manager(self._names())
        self._client = client.Client(
            self._settings.kube, user_agent="kiln-manager", time=self._clock
        )
        await self._client.__aenter__()
        self._steps.then("client", lambda: self._client.__aexit__(None, None, None))
        self._reviews = reviews.Reviews(self._client, time=self._clock)
        listener = serving.Listener(
            guard.Guard(self._reviews, self._mounts()),
            listening,
            tls=serving.tls_context(pair.certificate, pair.key),
        )
        await listener.start()
        self._steps.then("listener", lambda: listener.stop(timeout_s=_REQUESTS_END_S))

    def _names(self) -> tuple[str, ...]:
        """In the certificate: what workers expect, and what people may type."""
        service, namespace = manager.SERVICE, self._settings.namespace
        return (
            manager.SERVER_NAME,
            f"{service}.{namespace}.svc",
            f"{service}.{namespace}",
            "localhost",
            "127.0.0.1",
        )

    def _mounts(self) -> tuple[guard.Mount, ...]:
        checks = health.app(self._checks)
        return (
            *(guard.Mount(prefix=path, app=checks, asks=False) for path in health.PATHS),
            guard.Mount(prefix="/v1", app=self._api),
            guard.Mount(prefix="/metrics", app=self._metrics),
            guard.Mount(prefix=manager.CHANNEL_PATH, app=self._channel, asks=False),
            guard.Mount(prefix="/blobs", app=self._blobs, asks=False),
        )

    async def _lead(self) -> None:
        """Wait until we are the only one."""
        kube = client.Client(self._settings.kube, user_agent="kiln-manager", time=self._clock)
        await kube.__aenter__()
        self._steps.then("election client", lambda: kube.__aexit__(None, None, None))
        self._elector = election.Elector(
            kube,
            election.Settings(
                namespace=self._settings.namespace,
                name=LEASE,
                identity=self._identity(),
                lease_s=LEASE_S,
                renew_s=RENEW_S,
                retry_s=RETRY_S,
            ),
            time=self._clock,
        )
        self._steps.then("leadership", self._elector.stop)
        term = await self._elector.acquire()
        self._crew.start("leadership", self._watch(term))
        self._steps.then("watch of the leadership", self._crew.stop)

    def _identity(self) -> str:
        """The same whenever we come back to this data directory, whose lock we hold."""
        path = self._settings.data_dir / _IDENTITY
        if path.exists():
            return path.read_text().strip()
        made = election.identity(self._settings.machine)
        paths.write_private(path, made.encode() + b"\n")
        return made

    async def _watch(self, term: election.Term) -> None:
        self._fail("leadership", errors.KilnError(await term.lost()))

    async def _start_dispatcher(self) -> None:
        data = self._settings.data_dir
        socket = paths.runtime_dir(data) / "channel.sock"
        here = self._settings.advertise == _UNIX
        self._controllers = controllers.Controllers(
            self._client,
            controllers.Settings(
                channel=f"unix:{socket}" if here else f"tls://{self._settings.advertise}",
                ca=None if here else self._pki.ca_data(),
                worker_command=self._settings.worker_command,
                worker_image=self._settings.worker_image,
            ),
            time=self._clock,
            on_failure=self._fail,
        )
        await self._start_hub(socket)

    async def _start_hub(self, socket: Path) -> None:
        data = self._settings.data_dir
        blobs = data / "blobs"
        blobs.mkdir(mode=0o700, exist_ok=True)
        store = journal.Journal(data / "journal.db")
        verifier = manager_adapters.ChannelVerifier(
            self._controllers.verifier, self._reviews, self._controllers.caches
        )
        running = hub.Hub(
            store,
            clock=self._clock,
            verifier=verifier,
            logs_dir=data / "logs",
            entropy=ids.system_entropy(),
            options=hub.Options(
                on_failure=lambda error: self._fail("dispatcher", error), blobs_dir=blobs
            ),
        )
        await running.start(socket)
        self._hub = running
        self._steps.then("dispatcher", running.stop)
        reader = adapters.HubJournal(running, store.path)
        clusters = manager_adapters.KnownClusters(running, self._controllers.caches)
        self._api.app = api.Api(
            reader, self._reviews, clusters, channel=str(socket), time=self._clock
        )
        self._metrics.app = metrics.app(self._samples)
        self._channel.app = channel.Channel(running.new_link)
        self._blobs.app = blob_server.Blobs(blobs, verifier)

        async def close() -> None:
            self._api.app = self._metrics.app = self._channel.app = self._blobs.app = None
            reader.close()

        self._steps.then("REST API", close)

    async def _start_controllers(self) -> None:
        assert self._hub is not None  # noqa: S101
        await self._controllers.start(self._hub)
        self._steps.then("controllers", self._controllers.stop)

    def _fail(self, name: str, error: BaseException) -> None:
        self._steps.failed(name, error)
        self._on_failure(f"{name}: {error}")

    def _samples(self) -> Iterator[metrics.Sample]:
        """What `/metrics` shows."""
        yield metrics.Sample(
            name="kilnwork_ready",
            help="1 when every part of the manager is ready.",
            value=float(not any(self._checks().values())),
        )
        if self._hub is None:
            return
        yield metrics.Sample(
            name="kilnwork_epoch_total",
            help="Times that a dispatcher has taken over this journal.",
            value=float(self._hub.epoch),
            kind="counter",
        )
        yield from adapters.samples(self._hub, self._controllers.caches)
