"""Fetches blobs and sources to the pond, several in parallel, from peers first and then from the
source.

Used by `deliveries` and `snapshot_creation`. A blob that several runs need is fetched once. Each
source is read in as many threads as `fetch.parallel` of the pond says.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from urllib import parse

from kilnwork.api import file_job_uris, pond_messages
from kilnwork.data import errors, local_blobs
from kilnwork.data.pond import blob_fetch, manifest, origins, output_source, source_pinning, store
from kilnwork.pond import http_source, job_source, peer_transfers, settings, source_threads

_AHEAD = 2
"""Number of files per thread that are queued in advance, so that no thread waits for the next
file.
"""


class Fetcher:
    """Fetches blobs and sources for one node.

    `counts`: its totals, for reports.
    """

    def __init__(
        self,
        kept: store.PondStore,
        found_peers: peer_transfers.Peers | None,
        *,
        given: settings.AgentSettings,
    ) -> None:
        self.counts = Counts()
        self._store = kept
        self._peers = found_peers
        self._given = given
        self._jobs: dict[file_job_uris.JobDirectory, job_source.FileJobSource] = {}
        self._parallel = 8
        self._lanes = source_threads.Lanes("fetch", self._parallel)
        self._order = pond_messages.NodeOrder(revision=0)
        self._running: dict[str, asyncio.Future[None]] = {}
        self._sources: dict[tuple[str, str, tuple[str, ...]], http_source.HttpSource] = {}

    def use(self, order: pond_messages.NodeOrder) -> None:
        """Use the peers and the parallelism of an order from now on."""
        self._order = order
        self._parallel = order.limits.parallel
        self._lanes.resize(self._parallel)

    def abort(self) -> None:
        """Abort requests that wait for a server; nothing can be fetched any more."""
        for source in (*self._sources.values(), *self._jobs.values()):
            source.close()
        if self._peers is not None:
            self._peers.close()

    def close(self) -> None:
        """Wait until the threads have ended."""
        self._lanes.close()

    # blobs of a snapshot

    async def fetch_all(
        self,
        files: Sequence[manifest.File],
        *,
        digest: str,
        source: pond_messages.SourceOrder | None,
        progress: blob_fetch.Progress,
    ) -> None:
        """Fetch the blobs of the given files of a snapshot.

        Raises the errors of `blob_fetch.fetch`.
        """
        todo = iter(files)

        async def work() -> None:
            for file in todo:
                await self._fetch_one(file, digest, source=source, progress=progress)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._parallel * _AHEAD, len(files))):
                    group.create_task(work())
        except ExceptionGroup as several:
            raise _first(several) from several

    async def _fetch_one(
        self,
        file: manifest.File,
        digest: str,
        *,
        source: pond_messages.SourceOrder | None,
        progress: blob_fetch.Progress,
    ) -> None:
        """Fetch a blob, or wait for it if it is being fetched for another run.

        If the other run is cancelled meanwhile, the blob is fetched for this run.
        """
        while (running := self._running.get(file.digest)) is not None:
            with contextlib.suppress(blob_fetch.Stopped):
                await asyncio.shield(running)
        if self._store.blobs.knows(local_blobs.parse(file.digest), file.size):
            return
        opened = None if source is None else self.source(source)
        loop = asyncio.get_running_loop()
        pool = self._lanes.pool(source_threads.PEERS if source is None else source.name)
        work = loop.run_in_executor(pool, self._fetch, file, digest, opened, progress)
        self._running[file.digest] = work
        work.add_done_callback(lambda done: self._ended(file.digest, done))
        await asyncio.shield(work)

    def _ended(self, digest: str, work: "asyncio.Future[None]") -> None:
        del self._running[digest]
        if not work.cancelled():
            work.exception()  # the caller that waited for the work has got its error

    def _fetch(
        self,
        file: manifest.File,
        snapshot: str,
        source: origins.Source | None,
        progress: blob_fetch.Progress,
    ) -> None:
        # Only now, since it depends on what is known of peers at this moment.
        where = self._origins(file, snapshot, source)
        digest = local_blobs.parse(file.digest)
        blob_fetch.fetch(self._store, digest, file.size, where=where, progress=progress)

    def _origins(
        self, file: manifest.File, digest: str, source: origins.Source | None
    ) -> list[origins.Origin]:
        """Return the origins of a blob in the order in which to try them.

        They are peers, then the source, then peers that did not respond the last time.
        """
        found: list[origins.Origin] = []
        doubtful: list[origins.Origin] = []
        if self._peers is not None:
            addresses = self._order.peers
            for node in self._order.holders.get(digest, ()):
                if node in addresses:
                    doubted = self._peers.is_doubted(addresses[node])
                    origin = self._peers.origin(node, addresses[node], file.digest)
                    (doubtful if doubted else found).append(origin)
        if source is not None:
            found.append(
                origins.Origin(
                    source.name,
                    False,
                    lambda offset, stamp: source.open(file.path, offset=offset, stamp=stamp),
                )
            )
        return [self._counted(one) for one in (*found, *doubtful)]

    async def peer_manifest(self, address: str, digest: str) -> bytes:
        """Return the manifest with this digest from a peer. Raises the errors of `origins`."""
        if self._peers is None:
            raise errors.SourceUnreachable("this agent has no certificate to show to others")
        loop, pool = asyncio.get_running_loop(), self._lanes.pool(source_threads.PEERS)
        return await loop.run_in_executor(pool, self._peers.manifest, address, digest)

    def _counted(self, origin: origins.Origin) -> origins.Origin:
        count = self.counts.from_peers if origin.peer else self.counts.from_source
        return origin._replace(
            open=lambda offset, stamp: _Counted(origin.open(offset, stamp), count)
        )

    # sources

    def source(self, order: pond_messages.SourceOrder) -> origins.Source:
        """Return the source that an order names.

        Raises SourceRefused for an unknown kind of address.
        """
        if order.inline is not None:
            content = {path: text.encode() for path, text in order.inline.items()}
            return origins.InlineSource(order.name, content)
        parts = parse.urlsplit(order.uri)
        if parts.scheme == file_job_uris.SCHEME:
            return self._of_job(order)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            root = Path(parse.unquote(parts.path))
            if order.attempts:
                return output_source.OutputSource(order.name, root, order.attempts)
            return origins.FileSource(order.name, root, below=order.below)
        if parts.scheme not in ("http", "https"):
            raise errors.SourceRefused(
                f"source {order.name}: {parts.scheme}: is not one of https, http, file and kiln"
            )
        key = (order.name, order.uri, order.allow)
        if key not in self._sources:
            secrets = self._given.secrets
            secrets = None if secrets is None else secrets / order.name
            self._sources[key] = http_source.HttpSource(
                order.name, order.uri, secrets=secrets, allow=order.allow
            )
        return self._sources[key]

    def _of_job(self, order: pond_messages.SourceOrder) -> job_source.FileJobSource:
        try:
            directory = file_job_uris.parse_uri(order.uri)
        except ValueError as error:
            raise errors.SourceRefused(f"source {order.name}: {error}") from error
        found = self._jobs.get(directory)
        if found is None:
            found = self._jobs[directory] = job_source.FileJobSource(
                order.name, directory, self._given
            )
        return found

    def selected(self, order: pond_messages.SourceOrder) -> source_pinning.Target:
        """Return the selected files of a source as the target of a pin; count the bytes that are
        read from it.
        """
        return source_pinning.Target(
            _CountedSource(self.source(order), self.counts.from_source),
            origins.Selection(paths=order.paths, glob=order.glob),
            pond_messages.source_key(order),
        )

    def read_several(
        self, lane: str, read: source_pinning.Read, listed: Sequence[origins.ListedFile]
    ) -> Iterator[tuple[origins.ListedFile, tuple[blob_fetch.Fetched, str]]]:
        """Read files in the threads of a lane, as a `source_pinning.Map`; call it in a thread of
        another pool.
        """
        todo = iter(listed)
        running: dict[futures.Future[tuple[blob_fetch.Fetched, str]], origins.ListedFile] = {}
        try:
            while True:
                while len(running) < self._parallel * _AHEAD and (one := next(todo, None)):
                    running[self._lanes.pool(lane).submit(read, one)] = one
                if not running:
                    return
                done, _ = futures.wait(running, return_when=futures.FIRST_COMPLETED)
                for each in done:
                    yield running.pop(each), each.result()
        finally:
            for each in running:
                each.cancel()
            futures.wait(running)


class Counts:
    """Counts of fetched bytes and files since the agent's start.

    Several threads add to them without a lock: a few bytes or files may be missed.
    """

    def __init__(self) -> None:
        self.source = 0
        self.peers = 0
        self.hits = 0
        self.misses = 0

    def from_source(self, count: int) -> None:
        self.source += count

    def from_peers(self, count: int) -> None:
        self.peers += count


class _Counted(origins.Content):
    def __init__(self, content: origins.Content, count: Callable[[int], None]) -> None:
        self.start, self.total, self.stamp = content.start, content.total, content.stamp
        self._content, self._count = content, count

    def pieces(self) -> Iterator[bytes | memoryview]:
        for piece in self._content.pieces():
            self._count(len(piece))
            yield piece

    def close(self) -> None:
        self._content.close()


class _CountedSource:
    def __init__(self, source: origins.Source, count: Callable[[int], None]) -> None:
        self.name = source.name
        self._source, self._count = source, count

    def list(self, selection: origins.Selection) -> Sequence[origins.ListedFile]:
        return self._source.list(selection)

    def open(self, path: str, *, offset: int, stamp: str) -> origins.Content:
        return _Counted(self._source.open(path, offset=offset, stamp=stamp), self._count)


def _first(several: ExceptionGroup[Exception]) -> Exception:
    one = several.exceptions[0]
    return _first(one) if isinstance(one, ExceptionGroup) else one
