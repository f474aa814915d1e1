"""Dispatcher of a server, with the URL paths that are closed while it does not run.

Used by `manager`, which decides who has access and mounts the paths, and for `LeaseTerms` by
`in_cluster_server`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from kilnwork.api import manager_access, pond_messages
from kilnwork.channel import ports as channel_ports
from kilnwork.channel import worker_side_lease
from kilnwork.cli.wiring import port_adapters, steps
from kilnwork.controllers import caches
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import environment_variables as hub_variables
from kilnwork.dispatch.hub import hub, retention
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.jobs import file_job_service, index_job_service, service_assembly
from kilnwork.jobs.flows import flow_service
from kilnwork.kit import asgi, clock, data_directories, ids
from kilnwork.server import blobs as blob_server
from kilnwork.server import (
    callback_receiver,
    channel,
    guard,
    health,
    metrics,
    pond_api,
    pond_exchange,
    pond_job_files,
    pond_ports,
    ports,
    task_api,
    worker_file_api,
)
from kilnwork.server.jobs import app as jobs_api
from kilnwork.server.jobs import settings as jobs_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """Access control and data sources that the dispatcher needs from its composition root.

    They are used by the channel, the blobs, the REST API and the pond agents.
    """

    verifier: channel_ports.TokenVerifier
    rights: ports.Rights
    clusters: Callable[[hub.Hub], ports.Clusters]
    outputs: ports.Outputs
    images: model.ImageRule
    variables: hub_variables.VariableSource
    ledger: "PondLedger"
    agents: pond_ports.AgentVerifier


class PondLedger(pond_ports.AgentLedger, pond_ports.PeopleLedger, Protocol):
    """Record of the ponds, for their agents and for users."""


FAR_FILES = "kiln:"
"""URL of the file store for workers that cannot see the data directory: the manager serves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJobSettings:
    """Settings of file jobs.

    `shared`: workers see the data directory; otherwise they get files over HTTP. `worker_dir`: the
    working directory of workers on this machine that use this Python; None for other workers.
    """

    settings: jobs_settings.JobsApiSettings
    shared: bool
    worker_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Terms of the lease of a worker.

    `lease_s`: how long a worker may be silent and, less a margin, continue without a dispatcher.
    `renew_s`: how often it renews.
    """

    lease_s: float
    renew_s: float

    @classmethod
    def for_absence(cls, absence_s: float) -> Self:
        """Return terms under which workers continue while a dispatcher is away for `absence_s`.

        Workers renew the lease every third of that time.
        """
        renew_s = absence_s / 3
        return cls(
            lease_s=worker_side_lease.length_for(absence_s, renew_s=renew_s), renew_s=renew_s
        )


LOCAL = LeaseTerms(lease_s=hub.LEASE_S, renew_s=hub.RENEW_S)


class Dispatcher:
    """The dispatcher: the hub on the journal of a data directory, and the file jobs on the hub.

    `checks`: what each part of the server waits for. `known`: returns the controllers'
    caches of objects. `fail` is called when the journal cannot continue.
    """

    def __init__(  # noqa: PLR0913 - what its composition roots decide
        self,
        data_dir: Path,
        *,
        time: clock.Clock,
        checks: health.Checks,
        known: Callable[[], caches.Caches],
        fail: Callable[[str, BaseException], None],
        files: FileJobSettings,
        keep: retention.RetentionLimits,
    ) -> None:
        self.socket = data_directories.runtime_dir(data_dir) / "channel.sock"
        """Unix socket for workers and drivers on this machine."""
        self.hub: hub.Hub | None = None
        self.term: int | None = None
        """Epoch of the current leadership; None without an election."""
        self.blobs = data_dir / "blobs"
        """Large values, one directory per namespace."""
        self._data_dir = data_dir
        self._journal = journal.Journal(data_dir / "journal.db")
        self._clock = time
        self._checks = checks
        self._known = known
        self._fail = fail
        self._files = files
        self._keep = keep
        self._running_jobs: file_job_service.FileJobs | None = None
        """File jobs; None before the start."""
        self.indexes: index_job_service.IndexJobs
        """Indexes of Jobs; set at the start."""
        self.flows: flow_service.FlowRuns
        """Flows of SyncSets; set at the start."""
        self._api, self._metrics = guard.Gate(), guard.Gate()
        self._channel, self._blobs = guard.Gate(), guard.Gate()
        self._jobs, self._objects = guard.Gate(), guard.Gate()
        self._callbacks, self._ponds = guard.Gate(), guard.Gate()

    @property
    def mounts(self) -> tuple[guard.Mount, ...]:
        """Return the URL paths of the dispatcher with their apps.

        The guard does not ask who uses the paths with `asks=False`. Apart from the health checks,
        the apps there authenticate their callers themselves.
        """
        checks = health.app(self._checks)
        return (
            *(guard.Mount(prefix=path, app=checks, asks=False) for path in health.PATHS),
            guard.Mount(prefix="/v1", app=self._api),
            guard.Mount(prefix="/metrics", app=self._metrics),
            guard.Mount(prefix=manager_access.CHANNEL_PATH, app=self._channel, asks=False),
            guard.Mount(prefix="/blobs", app=self._blobs, asks=False),
            guard.Mount(prefix="/objects", app=self._objects, asks=False),
            guard.Mount(prefix=callback_receiver.PREFIX, app=self._callbacks, asks=False),
            guard.Mount(prefix=pond_messages.PREFIX, app=self._ponds, asks=False),
            *(guard.Mount(prefix=path, app=self._jobs) for path in jobs_api.PREFIXES),
        )

    @property
    def trouble(self) -> str | None:
        """Return the reason why the dispatcher accepts no tasks at the moment.

        None if it accepts tasks or does not run.
        """
        broken = self.hub is not None and self.hub.trouble
        if broken:
            return f"cannot write its journal: {broken}"
        stuck = self._running_jobs is not None and self._running_jobs.trouble
        return stuck or None

    def journal_identity(self) -> journal.Identity:
        """Return the identity of the dispatcher's journal, which is created if there is none.

        Raises what `start` raises.
        """
        return self._journal.identify()

    async def start(
        self,
        callers: Callers,
        parts: steps.Steps,
        *,
        reached_at: str,
        terms: LeaseTerms = LOCAL,
    ) -> hub.Hub:
        """Start the hub on the journal and open the URL paths.

        The functions that stop it are registered with `parts`. `reached_at`: base of URLs at which
        other processes reach this manager.
        """
        data = self._data_dir
        key = callback_receiver.load_key(data / "callback.key")
        urls = callback_receiver.CallbackUrls(key, reached_at, self._clock)
        self.blobs.mkdir(mode=0o700, exist_ok=True)
        running = hub.Hub(
            self._journal,
            clock=self._clock,
            verifier=callers.verifier,
            logs_dir=data / "logs",
            entropy=ids.system_entropy(),
            options=hub.HubOptions(
                lease_s=terms.lease_s,
                renew_s=terms.renew_s,
                on_failure=lambda error: self._fail("dispatcher", error),
                images=callers.images,
                variables=callers.variables,
                blobs_dir=self.blobs,
                callback_url=urls.url,
                clock_file=data / "journal.clock",
                keep=self._keep,
            ),
        )
        await running.start(self.socket)
        parts.then("dispatcher", running.stop)
        self.hub = running
        jobs = await self._start_jobs(running, parts)
        reader = port_adapters.HubJournal(running, self._journal.path, jobs=jobs, known=self._known)
        clusters = callers.clusters(running)
        shown = task_api.Api(
            reader,
            callers.rights,
            clusters,
            jobs=port_adapters.KnownJobs(self.indexes, self._known),
            outputs=callers.outputs,
            flows=port_adapters.KnownFlows(self.flows, self._known),
            ponds=pond_api.Ponds(callers.ledger, callers.rights, time=self._clock),
            channel=str(self.socket),
            blobs=self.blobs,
            worker_dir=self._files.worker_dir,
            time=self._clock,
        )
        files = jobs_api.App(
            jobs, callers.rights, clusters, time=self._clock, chosen=self._files.settings
        )
        self._set(
            shown,
            metrics.app(self._samples, callers.rights),
            channel.ChannelApp(running.new_link),
            blob_server.BlobsApp(self.blobs, callers.verifier),
            files,
            worker_file_api.ObjectsApp(jobs.store, callers.verifier),
            callback_receiver.CallbacksApp(urls, running),
            pond_exchange.PondExchange(
                callers.ledger, callers.agents, pond_job_files.PondFiles(jobs)
            ),
        )

        async def close() -> None:
            self._set(*[None] * len(self._gates))
            reader.close()
            await files.close()

        parts.then("REST API", close)
        return running

    async def _start_jobs(self, running: hub.Hub, parts: steps.Steps) -> file_job_service.FileJobs:
        services = service_assembly.JobServices(
            self._data_dir,
            running.participation,
            clock=self._clock,
            options=file_job_service.FileJobOptions(
                worker_url=None if self._files.shared else FAR_FILES
            ),
            on_failure=lambda error: self._fail("jobs", error),
        )
        self._running_jobs, self.indexes = services.files, services.indexes
        self.flows = services.flows
        await services.start(say=lambda text: parts.progress("dispatcher", text))
        parts.then("jobs", services.stop)
        return services.files

    @property
    def _gates(self) -> tuple[guard.Gate, ...]:
        return (
            self._api,
            self._metrics,
            self._channel,
            self._blobs,
            self._jobs,
            self._objects,
            self._callbacks,
            self._ponds,
        )

    def _set(self, *apps: asgi.App | None) -> None:
        for shut, app in zip(self._gates, apps, strict=True):
            shut.app = app

    def _samples(self) -> Iterator[metrics.Sample]:
        yield metrics.Sample(
            name="kilnwork_ready",
            help="1 when every part of the server is ready.",
            value=float(not any(self._checks().values())),
        )
        if self.term is not None:
            yield metrics.Sample(
                name="kilnwork_term",
                help="Which time of leading this is, as the Lease counts them.",
                value=float(self.term),
            )
        if self.hub is None:
            return
        yield metrics.Sample(
            name="kilnwork_epoch_total",
            help="Times that a dispatcher has taken over this journal.",
            value=float(self.hub.epoch),
            kind="counter",
        )
        yield from port_adapters.samples(self.hub, self._known())
        if self._running_jobs is not None:
            yield from port_adapters.job_samples(self._running_jobs)
