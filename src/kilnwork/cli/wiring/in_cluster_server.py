"""Composition root of `kiln manager`: the manager behind a listener of its own, while it leads.

Used by the command `manager`. The package's docstring lists what is started, in which order.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kilnwork.api import api_resources, manager_access
from kilnwork.cli import served_namespace_record
from kilnwork.cli.wiring import dispatcher, journal_identity_check, steps
from kilnwork.cli.wiring import manager as wired_manager
from kilnwork.controllers import unserved_namespace_cleanup
from kilnwork.controlplane import lock
from kilnwork.controlplane.apiserver import pki
from kilnwork.dispatch.hub import retention
from kilnwork.kit import clock, coroutines, data_directories, errors, serving
from kilnwork.kube import client, config, election, events
from kilnwork.kube import errors as kube_errors
from kilnwork.server import reviews
from kilnwork.server.jobs import settings as jobs_settings

log = logging.getLogger(__name__)

LEASE = manager_access.LEASE
LEASE_S, RENEW_S, RETRY_S = 120, 90.0, 5.0
"""Seconds. They are long enough that a term survives an API server that is away for a minute: tasks
continue without it. A manager that restarts on its data directory has the same identity and takes
its Lease at once; only a manager with another data directory waits `LEASE_S`."""

UNIX = "unix"
_REQUESTS_END_S = 2.0
_IDENTITY = "identity"
_TERM = "term"


@dataclass(frozen=True, slots=True, kw_only=True)
class InClusterSettings:
    """Settings of `kiln manager`."""

    data_dir: Path
    kube: config.Config
    """The API server, and the credentials for it."""
    namespace: str
    """Namespace of the Lease."""
    only_in: tuple[str, ...]
    """Namespaces to serve; empty: all."""
    host: str
    """Address to listen on."""
    port: int
    advertise: str
    """HOST:PORT to which workers connect; `unix` for workers on this machine."""
    worker_image: str
    """Image of worker Pods whose TaskCluster names none."""
    worker_command: tuple[str, ...]
    """Command of worker Pods whose TaskCluster names none."""
    machine: str
    """Host name, for people who read the Lease."""
    callback_url: str | None = None
    """Base of URLs for callbacks; None: `advertise`, over TLS."""
    absence_s: float = manager_access.ABSENCE_S
    """How long the manager may be away before workers end their tasks."""
    adopt: bool = False
    """Lead although the Lease names another journal."""
    files: jobs_settings.JobsApiSettings = field(default_factory=jobs_settings.JobsApiSettings)
    """Settings of the Jobs API."""
    keep: retention.RetentionLimits = field(default_factory=retention.RetentionLimits)
    """Which finished tasks are kept, and how long."""
    allowed_kinds: tuple[str, ...] = ()
    """Kinds of objects that tasks may make."""
    ponds: bool = False
    """Serve DataPonds, and read Nodes."""


class InClusterServer:
    """The manager of a Kubernetes cluster, as `kiln manager` runs it.

    Create it, `start` it in a running loop, `stop` it. `on_failure(text)` is called when a part
    ends unexpectedly: then the process should stop.
    """

    def __init__(self, settings: InClusterSettings, *, on_failure: steps.Say) -> None:
        self._settings = settings
        self._clock = clock.SystemClock()
        self._lock = lock.DirectoryLock(settings.data_dir)
        self._pki = pki.Pki(settings.data_dir / "pki", clock=self._clock)
        self._manager = wired_manager.Manager(
            wired_manager.ManagerSettings(
                data_dir=settings.data_dir,
                worker_image=settings.worker_image,
                worker_command=settings.worker_command,
                advertise=None if settings.advertise == UNIX else settings.advertise,
                only_in=settings.only_in,
                allowed_kinds=settings.allowed_kinds,
                ponds=settings.ponds,
                terms=dispatcher.LeaseTerms.for_absence(settings.absence_s),
                files=settings.files,
                keep=settings.keep,
            ),
            time=self._clock,
            on_failure=on_failure,
        )
        self._background = coroutines.BackgroundWork("manager", on_failure=self._manager.fail)
        self._steps = self._manager.steps
        self._steps.explain("leadership", self._waits_for_leadership)
        self._elector: election.Elector | None = None
        self._client: client.Client
        self.port = settings.port
        """Port on which it listens, once it does."""
        self._steps.plan(
            (
                ("data directory", self._open_directory),
                ("listener", self._listen),
                ("leadership", self._lead),
                ("dispatcher", self._start_dispatcher),
                ("controllers", self._start_controllers),
            )
        )

    async def start(self, *, say: steps.Say) -> None:
        """Start the manager and wait until it is the leader and ready.

        Call `stop` afterwards, even if this fails. Raises KilnError for problems that a user can
        solve: directory or port in use, a missing right.
        """
        await self._steps.start(say=say)

    async def stop(self, *, say: steps.Say) -> None:
        """Stop the started parts of the manager in reverse order."""
        await self._steps.stop(say=say)

    def _waits_for_leadership(self) -> str | None:
        """Return a text that says why this manager does not lead yet.

        It names the holder of the Lease and the reason why this manager must not take the Lease, if
        there is one; or it says why the Lease cannot be requested. None before the election starts
        and once this manager leads.
        """
        elector = self._elector
        if elector is None or self.term is not None:
            return None
        holding = f"{elector.holder or 'no manager'} holds the Lease"
        text = f"{holding}; {elector.objection}" if elector.objection else holding
        return elector.problem or text

    async def _open_directory(self) -> None:
        data = self._settings.data_dir
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock.acquire()
            data_directories.make_private(data_directories.runtime_dir(data))
        except OSError as error:
            raise errors.ConfigurationError(
                f"data directory {data} cannot be used: {error.strerror or error}; "
                "name a directory that you may write with --data"
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
        self._client = await self._connect("client")
        # A client of its own: users' requests must not delay those of the controllers.
        access = reviews.Reviews(await self._connect("client for reviews"), time=self._clock)
        listener = serving.Listener(
            self._manager.guard(access),
            listening,
            tls=serving.tls_context(pair.certificate, pair.key),
        )
        await listener.start()
        self._steps.then("listener", lambda: listener.stop(timeout_s=_REQUESTS_END_S))

    def _names(self) -> tuple[str, ...]:
        """Return the names in the manager's certificate: those that workers expect and people may
        type.
        """
        service, namespace = manager_access.SERVICE, self._settings.namespace
        return (
            manager_access.SERVER_NAME,
            f"{service}.{namespace}.svc",
            f"{service}.{namespace}",
            "localhost",
            "127.0.0.1",
        )

    async def _connect(self, name: str) -> client.Client:
        return await self._manager.connect(
            name,
            lambda: client.Client(self._settings.kube, user_agent="kiln-manager", time=self._clock),
        )

    async def _lead(self) -> None:
        """Wait until this manager is the only leader."""
        kube = await self._connect("client for the election")
        claim = journal_identity_check.JournalClaim(
            self._manager.dispatcher.journal_identity(),
            place=str(self._settings.data_dir),
            namespace=self._settings.namespace,
            machine=self._settings.machine,
            adopt=self._settings.adopt,
        )
        self._elector = election.Elector(
            kube,
            election.ElectionSettings(
                namespace=self._settings.namespace,
                name=LEASE,
                identity=self._identity(),
                lease_s=LEASE_S,
                renew_s=RENEW_S,
                retry_s=RETRY_S,
                floor=self._last_term(),
                annotations=claim.annotations,
                objection=claim.objection,
            ),
            time=self._clock,
        )
        self._steps.then("leadership", self._elector.stop)
        await self._tell_of_objections(self._elector)
        term = await self._elector.acquire()
        self._manager.dispatcher.term = term.epoch
        path = self._settings.data_dir / _TERM
        data_directories.write_private(path, f"{term.epoch}\n".encode(), durable=True)
        self._background.start("leadership", self._watch(term))
        self._steps.then("watch of the leadership", self._background.stop)

    async def _tell_of_objections(self, elector: election.Elector) -> None:
        """Report the reasons why this manager must not lead as Kubernetes events about the Lease.

        They are also in the log and in `/readyz`.
        """
        settings = self._settings
        recorder = events.Recorder(
            self._client, component="kiln-manager", host=settings.machine, time=self._clock
        )
        await recorder.start()
        self._steps.then("kube events about the Lease", recorder.stop)
        about = events.Reference(
            api_version=api_resources.LEASES.api_version,
            kind=api_resources.LEASES.kind,
            name=LEASE,
            namespace=settings.namespace,
        )
        elector.on_objection = lambda why: recorder.emit(
            about,
            events.WARNING,
            journal_identity_check.EVENT,
            f"{settings.machine} does not lead: {why}",
        )

    @property
    def term(self) -> int | None:
        """Return the number of the current leadership term, or None before the first."""
        return self._manager.dispatcher.term

    def _last_term(self) -> int:
        """Return the number of the last leadership term with this data directory.

        It prevents term numbers from restarting if the Lease is deleted.
        """
        path = self._settings.data_dir / _TERM
        text = path.read_text().strip() if path.exists() else ""
        return int(text) if text.isascii() and text.isdigit() else 0

    def _identity(self) -> str:
        """Return the manager's identity in the Lease, which is the same after each restart.

        It belongs to the data directory, whose lock is held.
        """
        path = self._settings.data_dir / _IDENTITY
        if path.exists():
            return path.read_text().strip()
        made = election.identity(self._settings.machine)
        data_directories.write_private(path, made.encode() + b"\n", durable=True)
        return made

    async def _watch(self, term: election.Term) -> None:
        self._manager.fail("leadership", errors.KilnError(await term.lost()))

    async def _start_dispatcher(self) -> None:
        local = self._settings.advertise == UNIX
        where = f"127.0.0.1:{self._settings.port}" if local else self._settings.advertise
        await self._manager.start_dispatcher(
            self._client,
            reached_at=self._settings.callback_url or f"https://{where}",
            manager=f"https://{where}",
            ca=None if local else self._pki.ca_data(),
            manager_ca=self._pki.ca_data(),
        )

    async def _start_controllers(self) -> None:
        await self._manager.start_controllers()
        left = served_namespace_record.record_served(
            self._settings.data_dir, self._settings.only_in
        ).left
        if left:
            self._background.start("namespaces that were left", self._leave(left))

    async def _leave(self, namespaces: Sequence[str]) -> None:
        """Update the TaskClusters of namespaces that are no longer served.

        If that fails, the next start of the manager tries again.
        """
        for name in namespaces:
            try:
                await unserved_namespace_cleanup.clean_up(self._client, name, time=self._clock)
            except kube_errors.KubeError as error:
                facts = {"namespace": name, "why": str(error)}
                log.warning(
                    "TaskClusters of a namespace that was left were not updated", extra=facts
                )
            else:
                served_namespace_record.forget(self._settings.data_dir, name)
