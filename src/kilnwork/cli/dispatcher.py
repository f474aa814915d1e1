"""The dispatcher of a server and the paths by which it is reached, shut while it does not run.

Used by the wirings of `up` and `manager`, which say who may come and mount the paths.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kilnwork.api import manager
from kilnwork.channel import ports as channel_ports
from kilnwork.cli import adapters, steps
from kilnwork.controllers import caches
from kilnwork.dispatch import hub, journal
from kilnwork.kit import clock, ids, paths
from kilnwork.server import api, asgi, channel, gate, guard, health, metrics, ports
from kilnwork.server import blobs as blob_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """Who may come: by the channel and for blobs, and to the REST API with what it shows."""

    verifier: channel_ports.TokenVerifier
    rights: ports.Rights
    clusters: Callable[[hub.Hub], ports.Clusters]


class Dispatcher:
    """The hub on the journal of a data directory.

    `checks`: what each part of the server waits for. `known`: objects to count. `fail` is called
    when the journal cannot go on.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        time: clock.Clock,
        checks: health.Checks,
        known: Callable[[], caches.Caches],
        fail: Callable[[str, BaseException], None],
    ) -> None:
        self.socket = paths.runtime_dir(data_dir) / "channel.sock"
        """Where workers and drivers of this machine connect."""
        self.hub: hub.Hub | None = None
        self.term: int | None = None
        """The epoch of the leadership that it runs under; None where there is no election."""
        self._data_dir = data_dir
        self._clock = time
        self._checks = checks
        self._known = known
        self._fail = fail
        self._api, self._metrics = gate.Gate(), gate.Gate()
        self._channel, self._blobs = gate.Gate(), gate.Gate()

    @property
    def mounts(self) -> tuple[guard.Mount, ...]:
        """Its paths; workers and drivers prove themselves to the channel and for blobs."""
        checks = health.app(self._checks)
        return (
            *(guard.Mount(prefix=path, app=checks, asks=False) for path in health.PATHS),
            guard.Mount(prefix="/v1", app=self._api),
            guard.Mount(prefix="/metrics", app=self._metrics),
            guard.Mount(prefix=manager.CHANNEL_PATH, app=self._channel, asks=False),
            guard.Mount(prefix="/blobs", app=self._blobs, asks=False),
        )

    @property
    def trouble(self) -> str | None:
        """Why it accepts nothing at the moment, None when all is well or it does not run."""
        broken = self.hub is not None and self.hub.trouble
        return f"cannot write its journal: {broken}" if broken else None

    async def start(self, callers: Callers, parts: steps.Steps) -> hub.Hub:
        """Take over the journal and open the paths; `parts` will stop it."""
        data = self._data_dir
        blobs = data / "blobs"
        blobs.mkdir(mode=0o700, exist_ok=True)
        store = journal.Journal(data / "journal.db")
        running = hub.Hub(
            store,
            clock=self._clock,
            verifier=callers.verifier,
            logs_dir=data / "logs",
            entropy=ids.system_entropy(),
            options=hub.Options(
                on_failure=lambda error: self._fail("dispatcher", error), blobs_dir=blobs
            ),
        )
        await running.start(self.socket)
        parts.then("dispatcher", running.stop)
        self.hub = running
        reader = adapters.HubJournal(running, store.path)
        shown = api.Api(
            reader,
            callers.rights,
            callers.clusters(running),
            channel=str(self.socket),
            time=self._clock,
        )
        self._set(
            shown,
            metrics.app(self._samples, callers.rights),
            channel.Channel(running.new_link),
            blob_server.Blobs(blobs, callers.verifier),
        )

        async def close() -> None:
            self._set(None, None, None, None)
            reader.close()

        parts.then("REST API", close)
        return running

    def _set(self, *apps: asgi.App | None) -> None:
        gates = (self._api, self._metrics, self._channel, self._blobs)
        for shut, app in zip(gates, apps, strict=True):
            shut.app = app

    def _samples(self) -> Iterator[metrics.Sample]:
        """What `/metrics` shows."""
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
        yield from adapters.samples(self.hub, self._known())
