"""The manager: controllers, dispatcher with its journal, jobs, and the REST API behind a guard.

Used by both composition roots, which supply the API server and the access control, and start each
part. Contains no embedded API server and no leader election.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kilnwork import controllers
from kilnwork.cli.wiring import dispatcher, port_adapters, steps
from kilnwork.dispatch.hub import hub, retention
from kilnwork.kit import asgi, clock
from kilnwork.kube import client
from kilnwork.server import guard, ports
from kilnwork.server.jobs import settings as jobs_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """Settings of the manager that a composition root supplies."""

    data_dir: Path
    worker_image: str
    """Image of worker Pods whose TaskCluster names none; only a label on the local node."""
    worker_command: tuple[str, ...]
    worker_dir: str | None = None
    """Working directory of commands whose template sets none; None leaves it to the node."""
    advertise: str | None = None
    """HOST:PORT where workers connect over TLS; None: on this machine, by the Unix socket."""
    only_in: Sequence[str] = ()
    """Namespaces to serve; empty: all."""
    allowed_kinds: Sequence[str] = ()
    """Kinds of objects that tasks may make, as `--allow-kind` has them."""
    ponds: bool = True
    """Whether it serves DataPonds, and reads Nodes."""
    ponds_here: bool = False
    """Whether the node is in this process: DataPonds without a directory get one in `data_dir`."""
    terms: dispatcher.LeaseTerms = dispatcher.LOCAL
    files: jobs_settings.JobsApiSettings = field(default_factory=jobs_settings.JobsApiSettings)
    keep: retention.RetentionLimits = field(default_factory=retention.RetentionLimits)
    """Which finished tasks are kept, and how long."""


class Manager:
    """The manager, whose parts a composition root starts one by one as `steps`.

    `on_failure(text)` is called when a part ends unexpectedly: then the process should stop.
    """

    def __init__(
        self, settings: ManagerSettings, *, time: clock.Clock, on_failure: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._clock = time
        self._on_failure = on_failure
        self.steps = steps.Steps()
        self.dispatcher = dispatcher.Dispatcher(
            settings.data_dir,
            time=time,
            checks=self.steps.checks,
            known=lambda: self._controllers.caches,
            fail=self.fail,
            files=dispatcher.FileJobSettings(
                settings=settings.files,
                shared=settings.advertise is None,
                worker_dir=settings.worker_dir,
            ),
            keep=settings.keep,
        )
        self.steps.explain("dispatcher", lambda: self.dispatcher.trouble)
        self.hub: hub.Hub
        self._access: ports.Access
        self._controllers: controllers.Controllers

    def guard(self, access: ports.Access) -> guard.Guard:
        """Return the ASGI app of everything that the manager serves.

        The given access control applies from now on, also to the channel.
        """
        self._access = access
        return guard.Guard(access, self.dispatcher.mounts)

    async def connect(self, name: str, make: Callable[[], client.Client]) -> client.Client:
        """Return a client of the API server that is closed with the other parts."""
        made = make()
        await made.__aenter__()
        self.steps.then(name, functools.partial(made.__aexit__, None, None, None))
        return made

    async def start_dispatcher(
        self,
        kube: client.Client,
        *,
        reached_at: str,
        manager: str = "",
        ca: bytes | None = None,
        manager_ca: bytes | None = None,
        read_log: controllers.ReadLog | None = None,
    ) -> None:
        """Start the dispatcher on the journal and serve its paths.

        `ca`: for workers that connect over TLS. `manager_ca`: for pond agents that do. `read_log`:
        for Pods of a node in this process. `reached_at`: base of URLs for callbacks, and for pond
        agents unless `manager` is given.
        """
        chosen, advertise = self._settings, self._settings.advertise
        unix = f"unix:{self.dispatcher.socket}"
        self._controllers = controllers.Controllers(
            kube,
            controllers.WorkerPodSettings(
                channel=unix if advertise is None else f"tls://{advertise}",
                ca=ca,
                worker_command=chosen.worker_command,
                worker_image=chosen.worker_image,
                worker_dir=chosen.worker_dir,
                blobs=self.dispatcher.blobs,
                blobs_shared=advertise is None,
                allowed_kinds=tuple(chosen.allowed_kinds),
                socket=self.dispatcher.socket,
                manager=manager or reached_at,
                manager_ca=manager_ca,
                ponds=str(chosen.data_dir / "ponds") if chosen.ponds_here else None,
                sees_nodes=chosen.ponds,
            ),
            time=self._clock,
            on_failure=self.fail,
            namespaces=chosen.only_in,
            read_log=read_log,
        )
        callers = dispatcher.Callers(
            verifier=port_adapters.ChannelVerifier(self._controllers, self._access),
            rights=self._access,
            outputs=port_adapters.LiveOutputs(self._controllers),
            images=self._controllers.image_of_spawned,
            variables=port_adapters.KubeVariables(kube),
            clusters=lambda running: port_adapters.KnownClusters(running, self._controllers),
            ledger=self._controllers.ledger,
            agents=self._controllers.pond_verifier,
        )
        self.hub = await self.dispatcher.start(
            callers, self.steps, reached_at=reached_at, terms=chosen.terms
        )

    async def start_controllers(self) -> None:
        await self._controllers.start(self.hub, self.dispatcher.indexes, self.dispatcher.flows)
        self.steps.then("controllers", self._controllers.stop)

    def fail(self, name: str, error: BaseException) -> None:
        """Report that a part of the manager has ended unexpectedly."""
        self.steps.failed(name, error)
        self._on_failure(f"{name}: {error}")


def serving(front: guard.Guard, mount: guard.Mount) -> asgi.App:
    """Return the app that serves one mount behind the guard, for a server with its own routing."""
    return functools.partial(front.serve, mount)
