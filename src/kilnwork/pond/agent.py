"""The agent of a pond: carries out the manager's orders on its node, and reports the node's state.

Used by `__main__`. It turns orders into deliveries and pins. One loop requests orders from the
manager and waits for new ones; another loop reports changes. Both send the same kind of request,
with the complete report, and get the complete order, so it does not matter which loop's request
arrives first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from kilnwork.api import pond_messages
from kilnwork.data import errors
from kilnwork.data.pond import leases, store
from kilnwork.kit import backoff, clock, coroutines, ids
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import errors as kube_errors
from kilnwork.pond import (
    deliveries,
    fetcher,
    manager_link,
    peer_transfers,
    reports,
    scrubber,
    settings,
    snapshot_creation,
    source_threads,
)

log = logging.getLogger(__name__)

RETRY = backoff.Backoff(base_s=0.1, max_s=5.0, jitter=0.3)
PROGRESS_S = 1.0
"""Maximum seconds between two reports while a delivery or a pin is in progress."""

TELL_S = 0.02
"""Minimum pause in seconds after a report, so that many snapshots that end at the same time do not
cause many reports.
"""

SHARE = 5
"""The pause after a report is at least this many times as long as the report took: a report of a
million files takes time.
"""

STOPPING_S = 0.5
"""Pause in seconds before the next request for orders, if the manager has responded immediately
without a new order. A manager does this while it stops.
"""

OPEN_S = 5.0
"""Seconds between attempts to open a directory that cannot be opened; users may fix the cause."""

_PINS = 4
"""Maximum number of snapshots of one source that are pinned at the same time."""

_Key = tuple[str, bytes]
"""Name of a lease, and the order of one of its snapshots as JSON."""


class Agent:
    """The agent of a pond on this node. Call `run` once."""

    def __init__(
        self, given: settings.AgentSettings, *, time: clock.Clock, entropy: ids.Entropy
    ) -> None:
        self._settings = given
        self._clock = time
        pond = f"{given.namespace}/{given.pond}"
        self._store = store.PondStore(given.root, pond=pond, time=time)
        self._shares = False
        self._link = manager_link.ManagerLink(given, time=time)
        pair = given.certificates
        self._peers = None if pair is None else peer_transfers.Peers(pair, time=time)
        self._fetcher = fetcher.Fetcher(self._store, self._peers, given=given)
        self._pin_threads = source_threads.Lanes("pin", _PINS)
        self._place = deliveries.Place(
            self._store, self._fetcher, self._link, changed=self._changed, entropy=entropy
        )
        self._scrubbing: asyncio.Task[None] | None = None
        self._scrub = scrubber.ScrubWork(self._store, time=time, damaged=self._changed)
        self._entropy = entropy
        self._background = coroutines.BackgroundWork("pond", on_failure=self._fail)
        self._failed = asyncio.Event()
        self._heard = time.monotonic()
        self._deliveries: dict[_Key, tuple[deliveries.Delivery, asyncio.Task[None]]] = {}
        self._pins: dict[bytes, tuple[snapshot_creation.PinWork, asyncio.Task[None]]] = {}
        self._session = ids.new_uid()
        self._sequence = 0
        self._applied = 0
        self._order = pond_messages.NodeOrder(revision=0)
        self._knows = 0
        self._applying = asyncio.Lock()
        self._news = asyncio.Event()
        self._address = ""
        self._served = 0
        self._damaged = 0
        self._trouble: pond_messages.PondTrouble | None = None
        self._open = False
        self._removing = False
        self._removed = False
        """Whether no data is left on this node, because the DataPond is deleted."""
        self._reading = asyncio.Lock()
        """Held while the store is read for a report, and while it is removed."""

    async def run(self, stop: asyncio.Event) -> bool:
        """Run until `stop` is set, or until the manager has been away for too long.

        Returns False after an internal error. Fetched data stays on the node for the next agent.
        """
        async with self._link:
            try:
                opening = self._background.start("open", self._open_store())
                waiting = self._background.start("stop", stop.wait())
                failing = self._background.start("failure", self._failed.wait())
                ends = {waiting, failing, self._background.start("absence", self._wait_absent())}
                await asyncio.wait({opening, *ends}, return_when=asyncio.FIRST_COMPLETED)
                if self._open:
                    await self._serve(ends)
            finally:
                await self._background.stop()
                self._fetcher.abort()
                await asyncio.to_thread(self._pin_threads.close)
                await asyncio.to_thread(self._fetcher.close)
                self._store.close()
        return not self._failed.is_set()

    async def _wait_absent(self) -> None:
        """Wait until the manager has not responded for as long as the settings allow."""
        while True:
            allowed_s = self._settings.absence_s
            away_s = self._clock.monotonic() - self._heard
            if allowed_s is not None and away_s >= allowed_s:
                log.warning("manager has been away for too long", extra={"seconds": round(away_s)})
                return
            await asyncio.sleep(3600.0 if allowed_s is None else allowed_s - away_s)

    def _fail(self, name: str, error: BaseException) -> None:
        """Stop the agent after a failure of background work; the failure is logged already."""
        self._failed.set()

    async def _open_store(self) -> None:
        """Open the store; if that fails, report the reason and retry, until the pond is removed."""
        while not self._removed:
            try:
                await asyncio.to_thread(self._store.open)
            except errors.PondShared as error:
                if not self._shares:
                    log.info("another agent serves this node", extra={"why": str(error)})
                self._trouble, self._shares = None, True
            except (errors.PondError, OSError) as error:
                reason = error.reason if isinstance(error, errors.PondError) else "PathUnusable"
                self._trouble = pond_messages.PondTrouble(reason=reason, message=str(error))
                log.warning("pond cannot be opened", extra={"why": str(error)})
                self._shares = False
            else:
                self._trouble, self._open, self._shares = None, True, False
                return
            await self._tell_once()
            if not self._removed:
                await asyncio.sleep(OPEN_S)
        while True:
            await self._tell_once()
            await asyncio.sleep(OPEN_S)

    async def _tell_once(self) -> None:
        """Report to the manager once, and remember whether the manager ordered to remove the pond.

        Used while the store is not open, when no other order can be carried out. If another agent
        holds the directory, that agent removes it.
        """
        try:
            order = await self._link.report(await self._report())
            self._heard = self._clock.monotonic()
            theirs = errors.PondInUse.reason
            if order.remove and (self._trouble is None or self._trouble.reason == theirs):
                self._removed = True
        except kube_errors.KubeError as error:
            log.warning("manager does not respond", extra={"why": str(error)})

    async def _serve(self, ends: set[asyncio.Task[None]]) -> None:
        server = None
        pair = self._settings.certificates
        if pair is not None and self._settings.host:
            server = peer_transfers.PeerServer(
                self._store, pair, served=self._count_served, damaged=self._changed
            )
            self._address = await server.start(self._settings.host)
        log.info("agent is ready", extra={"root": str(self._store.root), "peers": self._address})
        self._background.start("listen", self._listen())
        self._background.start("tell", self._tell())
        self._scrubbing = self._background.start("scrub", self._scrub.run())
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if server is not None:
                await server.stop()

    # the manager

    async def _listen(self) -> None:
        """Request orders from the manager repeatedly; each request waits at the manager for a new
        order.
        """
        await self._again_and_again(self._wait_for_news)

    async def _wait_for_news(self) -> None:
        knew, before = self._knows, self._clock.monotonic()
        await self._exchange(wait_s=self._wait_s)
        if self._knows == knew and self._clock.monotonic() - before < STOPPING_S:
            await asyncio.sleep(STOPPING_S)

    @property
    def _wait_s(self) -> float:
        """Return the number of seconds that a request waits for a new order.

        It is a whole number, short enough to notice that the manager is away.
        """
        if self._settings.absence_s is None:
            return pond_messages.WAIT_S
        return min(pond_messages.WAIT_S, max(1, self._settings.absence_s // 3))

    async def _tell(self) -> None:
        """Report changes to the manager, with pauses between the reports (`TELL_S`, `SHARE`)."""
        await self._again_and_again(self._tell_next)

    async def _tell_next(self) -> None:
        try:
            async with asyncio.timeout(PROGRESS_S if self._busy else None):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
        before = self._clock.monotonic()
        await self._exchange(wait_s=0)
        await asyncio.sleep(max(TELL_S, SHARE * (self._clock.monotonic() - before)))

    async def _exchange(self, *, wait_s: float) -> None:
        report = await self._report()
        order = await self._link.report(report, wait_s=wait_s)
        self._heard = self._clock.monotonic()
        await self._apply(order, report.sequence)

    async def _again_and_again(self, once: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                await once()
            except (kube_errors.KubeError, kit_errors.ConfigurationError) as error:
                failures += 1
                if failures == 1:
                    log.warning("manager does not respond", extra={"why": str(error)})
                self._news.set()
                await asyncio.sleep(RETRY.delay_s(failures, entropy=self._entropy))
            else:
                failures = 0

    @property
    def _busy(self) -> bool:
        """Return whether a delivery or a pin is in progress."""
        every = (*self._deliveries.values(), *self._pins.values())
        return any(not task.done() for _, task in every)

    def _changed(self) -> None:
        if self._damaged != self._store.blobs.damaged:
            self._damaged = self._store.blobs.damaged
            self._deliver_again()
        self._news.set()

    def _deliver_again(self) -> None:
        """Restart all finished deliveries after a damaged blob was found.

        Their trees may contain links to the damaged blob.
        """
        for delivery, task in tuple(self._deliveries.values()):
            if task.done():
                self._begin(delivery.lease, delivery.ordered)

    def _count_served(self, count: int) -> None:
        self._served += count

    # orders

    async def _apply(self, order: pond_messages.NodeOrder, sequence: int) -> None:
        """Carry out an order, unless it is older than the last order.

        An order that arrives later may have been requested earlier; `sequence` is the number of its
        request.
        """
        async with self._applying:
            if sequence < self._applied or order.revision == self._knows:
                return
            self._applied, self._order = sequence, order
            if order.remove:
                self._begin_removal(order)
                return
            self._fetcher.use(order)
            limits = store.PondLimits(
                capacity=order.limits.capacity, high=order.limits.high, low=order.limits.low
            )
            await asyncio.to_thread(self._store.set_limits, limits)
            self._scrub.use(order.limits.scrub)
            for name in order.released:
                await self._release(name)
            await self._take_leases(order)
            self._take_pins(order)
            for digest in order.uploads:
                if (known := self._store.find_manifest(digest)) is not None:
                    await self._link.put_manifest(known.encoded, digest)
            self._knows = order.revision
            self._news.set()

    def _begin_removal(self, order: pond_messages.NodeOrder) -> None:
        self._knows = order.revision
        if not self._removing:
            self._removing = True
            self._background.start("remove", self._remove())

    async def _remove(self) -> None:
        """Stop all work, then remove the node's data; retry until that succeeds."""
        await self._stop_deliveries(lambda _: True)
        self._take_pins(pond_messages.NodeOrder(revision=0))
        if self._scrubbing is not None:
            self._scrubbing.cancel()
            await asyncio.wait({self._scrubbing})
        while not self._removed:
            try:
                async with self._reading:
                    self._open = False
                    await asyncio.to_thread(self._store.destroy)
            except OSError as error:
                log.warning("pond cannot be removed", extra={"why": str(error)})
                text = f"cannot be removed: {error}"
                self._trouble = pond_messages.PondTrouble(reason="PathUnusable", message=text)
                self._changed()
                await asyncio.sleep(OPEN_S)
            else:
                self._removed, self._trouble = True, None
        log.info("pond removed", extra={"root": str(self._store.root)})
        self._changed()

    async def _release(self, name: str) -> None:
        await self._stop_deliveries(lambda key: key[0] == name)
        namespace = self._settings.namespace
        if self._store.find_lease(namespace, name) is not None:
            await asyncio.to_thread(self._store.release, namespace, name)
            log.info("lease released", extra={"lease": name})

    async def _take_leases(self, order: pond_messages.NodeOrder) -> None:
        wanted = {(lease.name, _encode(one)) for lease in order.leases for one in lease.snapshots}
        await self._stop_deliveries(lambda key: key not in wanted)
        for ordered in order.leases:
            lease = leases.Lease(
                namespace=self._settings.namespace,
                name=ordered.name,
                snapshots=tuple(map(_leased, ordered.snapshots)),
            )
            try:
                if ordered.outputs:  # must precede the report of the lease
                    make = self._store.make_outputs
                    await asyncio.to_thread(make, lease.namespace, lease.name)
                await asyncio.to_thread(self._store.lease, lease)
            except errors.PondError as error:  # deliveries try again, and report the error
                log.warning("lease cannot be kept", extra={"why": str(error)})
            for one in ordered.snapshots:
                if (ordered.name, _encode(one)) not in self._deliveries:
                    self._begin(lease, one)

    def _begin(self, lease: leases.Lease, one: pond_messages.SnapshotOrder) -> None:
        made = deliveries.Delivery(lease, one, self._place, find_peers=self._peers_with)
        self._deliveries[lease.name, _encode(one)] = (
            made,
            self._background.start(one.name, made.run()),
        )

    def _peers_with(self, digest: str) -> list[str]:
        nodes = self._order.holders.get(digest, ())
        return [self._order.peers[node] for node in nodes if node in self._order.peers]

    async def _stop_deliveries(self, which: Callable[[_Key], bool]) -> None:
        """Stop the selected deliveries and wait until they have ended.

        Otherwise a tree could be completed after its release.
        """
        gone = [key for key in self._deliveries if which(key)]
        running = [self._deliveries.pop(key)[1] for key in gone]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _take_pins(self, order: pond_messages.NodeOrder) -> None:
        wanted = {_encode(ordered): ordered for ordered in order.pins}
        for key in [key for key in self._pins if key not in wanted]:
            self._pins.pop(key)[1].cancel()
        for key, ordered in wanted.items():
            if key not in self._pins:
                threads = self._pin_threads.pool(ordered.source.name)
                work = snapshot_creation.PinWork(
                    ordered, self._place, threads=threads, time=self._clock
                )
                self._pins[key] = work, self._background.start("pin", work.run())

    # reports

    def _under_way(self) -> Iterator[tuple[str, pond_messages.SnapshotReport]]:
        for (name, _), (delivery, _) in self._deliveries.items():
            yield name, delivery.report()

    async def _report(self) -> pond_messages.Report:
        self._sequence += 1
        sequence = self._sequence
        async with self._reading:
            if self._open:
                known = await asyncio.to_thread(reports.of_store, self._store)
            elif self._shares and not self._removed:
                known = reports.StoreFacts(store=reports.identity(self._store))
            else:
                known = reports.StoreFacts()
        counts = self._fetcher.counts
        return pond_messages.Report(
            session=self._session,
            sequence=sequence,
            knows=self._knows,
            address=self._address,
            store=known.store,
            shares=self._shares,
            capacity=known.capacity,
            used=known.used,
            holdings=known.holdings,
            pins=tuple(work.report() for work, _ in self._pins.values()),
            leases=reports.of_leases(self._store, self._under_way()) if self._open else (),
            sources=known.sources,
            counters=pond_messages.Counters(
                fetched_source=counts.source,
                fetched_peers=counts.peers,
                served=self._served,
                evicted=self._store.evicted_bytes,
                hits=counts.hits,
                misses=counts.misses,
                quarantined=known.quarantined,
                scrubbed=self._scrub.checked,
            ),
            removed=self._removed,
            trouble=self._trouble,
        )


_encode = msgspec.json.Encoder(order="sorted").encode


def _leased(one: pond_messages.SnapshotOrder) -> leases.LeasedSnapshot:
    return leases.LeasedSnapshot(
        name=one.name, digest=one.digest, paths=one.paths, access=one.access
    )
