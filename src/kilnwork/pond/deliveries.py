"""Deliveries: each brings one snapshot to this node for one lease. It gets the manifest, fetches
the blobs, and makes the tree that the run sees.

Used by `agent` (`snapshot_creation` shares `Place` and `RETRY`). The agent starts a delivery for
each snapshot of a lease and stops it when the lease ends. A delivery retries until it succeeds:
after a few seconds at most if the error is temporary, else at longer intervals (`LASTING_S`), since
users may fix the cause.
"""

import asyncio
import functools
import logging
from collections.abc import Callable

from kilnwork.api import pond_messages
from kilnwork.data import errors
from kilnwork.data.pond import blob_fetch, leases, manifest, store
from kilnwork.kit import backoff, ids
from kilnwork.kube import errors as kube_errors
from kilnwork.pond import fetcher, manager_link

log = logging.getLogger(__name__)

RETRY = backoff.Backoff(base_s=0.2, max_s=5.0, jitter=0.2)
LASTING_S = 30.0
"""Seconds until the next try after an error that a retry alone does not resolve (`LASTING`)."""

LASTING = (
    errors.DataCorrupt,
    errors.LeaseRefused,
    errors.ManifestRefused,
    errors.SourceChanged,
    errors.SourceMissing,
    errors.SourceRefused,
)


class Place:
    """The store, the fetcher and the manager link of a node, which its deliveries and pins share.

    `changed` is called in the event loop if there is something to report.
    """

    def __init__(
        self,
        kept: store.PondStore,
        fetches: fetcher.Fetcher,
        link: manager_link.ManagerLink,
        *,
        changed: Callable[[], None],
        entropy: ids.Entropy,
    ) -> None:
        self.store = kept
        self.fetcher = fetches
        self.link = link
        self.changed = changed
        self.entropy = entropy


class Delivery:
    """The delivery of one snapshot for one lease. Call `run` in a coroutine task of its own."""

    def __init__(
        self,
        lease: leases.Lease,
        ordered: pond_messages.SnapshotOrder,
        place: Place,
        *,
        find_peers: Callable[[str], list[str]],
    ) -> None:
        self.ordered = ordered
        self.lease = lease
        self._place = place
        self._find_peers = find_peers
        self._progress = blob_fetch.Progress(lambda: self._over)
        self._over = False
        self._here = 0
        self._total = 0
        self._ready = False
        self._trouble: pond_messages.PondTrouble | None = None

    async def run(self) -> None:
        """Deliver the snapshot, with retries, until its tree is complete.

        If the delivery is cancelled, its fetches stop. Another delivery that waits for one of the
        blobs then fetches that blob itself.
        """
        failures = 0
        try:
            while True:
                try:
                    await self._deliver()
                except (errors.PondError, errors.BlobMissing, kube_errors.KubeError) as error:
                    failures += 1
                    self._fail(error)
                    await asyncio.sleep(self._wait_s(error, failures))
                else:
                    self._ready, self._trouble = True, None
                    self._place.changed()
                    return
        finally:
            self._over = True

    def report(self) -> pond_messages.SnapshotReport:
        """Return the progress of the delivery."""
        done = min(self._total, self._here + self._progress.received)
        return pond_messages.SnapshotReport(
            name=self.ordered.name,
            digest=self.ordered.digest,
            paths_digest=pond_messages.paths_digest(self.ordered.paths),
            access=self.ordered.access,
            ready=self._ready,
            bytes_done=self._total if self._ready else done,
            bytes_total=self._total,
            trouble=self._trouble,
        )

    async def _deliver(self) -> None:
        kept, ordered = self._place.store, self.ordered
        if kept.find_lease(self.lease.namespace, self.lease.name) != self.lease:
            await _to_the_end(functools.partial(kept.lease, self.lease))
        known = await self._manifest()
        files = known.chosen(ordered.paths)
        missing = await asyncio.to_thread(kept.missing, files)
        self._total = sum(file.size for file in files)
        self._here = self._total - sum(file.size for file in missing)
        self._progress.received = 0
        counts = self._place.fetcher.counts
        counts.misses += len(missing)
        counts.hits += len(files) - len(missing)
        snapshot = leases.LeasedSnapshot(
            name=ordered.name, digest=ordered.digest, paths=ordered.paths, access=ordered.access
        )
        if missing:
            withdraw = functools.partial(kept.withdraw_damaged, self.lease, snapshot, missing)
            await _to_the_end(withdraw)
            self._place.changed()
            await self._place.fetcher.fetch_all(
                missing, digest=ordered.digest, source=ordered.source, progress=self._progress
            )
            await asyncio.to_thread(kept.blobs.sync)
        await _to_the_end(functools.partial(kept.make_tree, self.lease, snapshot))

    async def _manifest(self) -> manifest.Manifest:
        """Return the manifest from this node, else from the manager, else from another agent."""
        kept, digest = self._place.store, self.ordered.digest
        known = kept.find_manifest(digest)
        if known is not None:
            return known
        encoded = await self._place.link.find_manifest(digest)
        if encoded is None:
            encoded = await self._from_peer(digest)
        return await asyncio.to_thread(kept.put_manifest, encoded, digest)

    async def _from_peer(self, digest: str) -> bytes:
        for address in self._find_peers(digest):
            try:
                return await self._place.fetcher.peer_manifest(address, digest)
            except errors.PondError as error:
                facts = {"peer": address, "why": str(error)}
                log.warning("manifest could not be had from a peer", extra=facts)
        raise errors.SourceUnreachable(
            f"neither the manager nor a node that responds has the manifest of {digest}"
        )

    def _fail(self, error: Exception) -> None:
        now = trouble(error)
        if now != self._trouble:
            facts = {"lease": self.lease.name, "snapshot": self.ordered.name}
            log.warning("snapshot is not there yet", extra={**facts, "why": now.message})
        self._trouble = now
        self._place.changed()

    def _wait_s(self, error: Exception, failures: int) -> float:
        if isinstance(error, LASTING):
            return LASTING_S
        return RETRY.delay_s(failures, entropy=self._place.entropy)


async def _to_the_end(work: Callable[[], object]) -> None:
    """Run `work` in a thread to its end, even if the caller is cancelled.

    Otherwise the work could still have effects after later steps of the caller.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def trouble(error: Exception) -> pond_messages.PondTrouble:
    """Return the description of an error for a report."""
    reason = error.reason if isinstance(error, errors.PondError) else "ManagerUnreachable"
    if isinstance(error, errors.BlobMissing):
        reason = "BlobMissing"
    return pond_messages.PondTrouble(
        reason=reason, message=str(error), lasting=isinstance(error, LASTING)
    )
