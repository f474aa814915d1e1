"""Pond store: the directory of a pond on one node, with blobs, snapshots, leases, trees and quota.

Used by the agent, a single process; a second one is refused (`PondInUse`). Its state is on disk, so
that an agent that was killed continues where it stopped:

    format  identity  owner.lock           format, pond and owner of the directory
    blobs/ab/<64 hex>                      content, read-only (`blob_files`)
    partial/  quarantine/                  content being fetched; damaged content
    snapshots/<64 hex>.json                manifests; their modification time is the last use
    leases/NAMESPACE/NAME.json             which runs need which snapshots (`leases`)
    runs/NAMESPACE/LEASE/SNAPSHOT/…        trees (`trees`), which Pods mount
    outputs/NAMESPACE/LEASE/ATTEMPT/…      files written by tasks of a run, until its release
    sources/                               files of sources that were read (`seen_files`)
    scrub.json                             position of the pass over all blobs (`scrubbing`)

Nothing here waits for a network. Thread-safe.
"""

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from kilnwork.api import pond_messages
from kilnwork.data import disk_checks, errors, local_blobs
from kilnwork.data.pond import blob_files, eviction, leases, manifest, trees
from kilnwork.kit import clock, data_directories, ids, locks

FORMAT = "kilnwork pond 1\n"

SOURCE_S = 30 * 86_400.0
"""Seconds since the last pin of a source after which its pin journal is deleted."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_IGNORED = ("owner.lock", "lost+found")
"""Entries allowed in a directory that becomes a pond: our lock, and what a new file system
contains."""

_DIRECTORIES = (
    "blobs",
    "partial",
    "quarantine",
    "snapshots",
    "leases",
    "runs",
    "outputs",
    "sources",
)


class PondLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the space that a pond may use.

    `capacity`: number of bytes; None: what the pond uses plus the free space of its disk
    (`PondStore.capacity`). When more than the fraction `high` is used, snapshots without a lease
    are evicted until `low` is reached.
    """

    capacity: int | None = None
    high: float = 0.9
    low: float = 0.7


class PondIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a directory: the pond to which the directory permanently belongs, and an id of
    its own.
    """

    pond: str
    id: str


class SnapshotHolding(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot in the pond, and the share of its data that this node has. `used`: wall clock."""

    digest: str
    files: int
    files_here: int
    bytes: int
    bytes_here: int
    used: float
    leased: bool


class PondStore:
    """The directory of a pond on one node. Call `open` first. `pond`: identity of the pond; another
    pond cannot use the directory.
    """

    def __init__(self, root: Path, *, pond: str, time: clock.Clock | None = None) -> None:
        self.root = root
        self._pond = pond
        self.blobs = blob_files.BlobFiles(root)
        self.evicted_bytes = 0
        self._leases = leases.LeaseFiles(root / "leases")
        self._clock = time or clock.SystemClock()
        self._limits = PondLimits()
        self._lock = threading.RLock()
        self._owner = locks.OwnerLock(root / "owner.lock")
        self._manifests: dict[str, manifest.Manifest] = {}
        self._reserved: dict[str, int] = {}
        """Reserved bytes, by name of the partial file or tree."""
        self._own: dict[tuple[str, str, str], int] = {}
        """Bytes of files in trees that are not links, by namespace, lease and snapshot."""
        self._held: set[bytes] = set()

    def open(self) -> None:
        """Create the directory of the pond, or take over an existing one. Raises PondShared,
        PondInUse, PondError, OSError.
        """
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._check_identity()
        if not self._owner.take():
            text = f"{self.root} belongs to process {locks.read_owner(self._owner.path)}"
            if self.identity is not None:
                raise errors.PondShared(f"{text}, which is an agent of this pond too")
            raise errors.PondInUse(f"{text}: give each pond a path of its own")
        try:
            self._check_identity()  # another pond may have taken the directory before the lock
        except errors.PondError:
            self._owner.release()
            raise
        self._make_identity()
        for name in _DIRECTORIES:
            mode = 0o755 if name in ("runs", "blobs", "outputs") else 0o700
            (self.root / name).mkdir(mode=mode, exist_ok=True)
        self.blobs.scan()
        self._leases.scan()
        self._scan_manifests()
        self._scan_trees()
        self._forget_sources()

    def close(self) -> None:
        self._owner.release()

    def destroy(self) -> None:
        """Delete everything in the directory, and the directory itself unless it is a mount point.
        Raises OSError.

        The identity is deleted last, so that an interrupted deletion is repeated by the next
        `open`.
        """
        with self._lock:
            for name in _DIRECTORIES:
                trees.remove(self.root / name)
                if (self.root / name).exists():
                    shutil.rmtree(self.root / name)  # raises an error with the cause
            for name in ("scrub.json", "format", "identity"):
                (self.root / name).unlink(missing_ok=True)
            self._manifests.clear()
            self._own.clear()
            self.blobs.scan()
            self._leases.scan()
            self._owner.release()
            self._owner.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.root.rmdir()

    @property
    def identity(self) -> PondIdentity | None:
        """Identity of the directory; None before the directory belongs to a pond. Raises PondError
        if it is unreadable.
        """
        try:
            content = (self.root / "identity").read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=PondIdentity)
        except msgspec.MsgspecError as error:
            raise errors.PondError(
                f"{self.root}/identity is not readable ({error}): use another directory"
            ) from error

    def _check_identity(self) -> None:
        """Raise an error if the directory belongs to another pond: its content may belong to
        another namespace.
        """
        mark, known = self.root / "format", self.identity
        if mark.exists() and mark.read_text() != FORMAT:
            raise errors.PondError(f"{mark} is not {FORMAT.strip()!r}: use another directory")
        if known is not None and known.pond != self._pond:
            raise errors.PondInUse(
                f"{self.root} is of DataPond {known.pond}: give each pond a path of its own, or "
                "remove the directory if that one is gone"
            )
        if known is None and any(map(_is_foreign_entry, self.root.iterdir())):
            raise errors.PondError(
                f"{self.root} is neither empty nor a pond: use another directory"
            )

    def _make_identity(self) -> None:
        if self.identity is None:
            made = msgspec.json.encode(PondIdentity(pond=self._pond, id=ids.new_uid()))
            data_directories.write_private(self.root / "identity", made, durable=True)
        if not (self.root / "format").exists():
            data_directories.write_private(self.root / "format", FORMAT.encode(), durable=True)

    # snapshots

    def put_manifest(self, encoded: bytes, digest: str) -> manifest.Manifest:
        """Store a manifest. Raises ManifestRefused, PondFull."""
        found = self._manifests.get(digest)
        if found is None:
            found = manifest.parse(encoded, digest=digest)
            with full_disk(self.root):
                data_directories.write_private(self._manifest_path(digest), encoded, durable=True)
            self._manifests[digest] = found
        return found

    def find_manifest(self, digest: str) -> manifest.Manifest | None:
        """Return the manifest with a digest, or None if this pond does not have it."""
        return self._manifests.get(digest)

    def missing(self, files: tuple[manifest.File, ...]) -> list[manifest.File]:
        """Return the files whose blobs this node does not have, one file per blob."""
        found: dict[str, manifest.File] = {}
        for file in files:
            if file.digest not in found and not self.blobs.has(
                local_blobs.parse(file.digest), file.size
            ):
                found[file.digest] = file
        return list(found.values())

    def holdings(self) -> list[SnapshotHolding]:
        """Return all snapshots in the pond, ordered by digest."""
        leased, sizes = self._leases.digests, self.blobs.sizes()
        return [
            self._holding(one, sizes, leased=one.digest in leased)
            for one in sorted(self._manifests.values(), key=lambda one: one.digest)
        ]

    def _holding(
        self, of: manifest.Manifest, sizes: dict[bytes, int], *, leased: bool
    ) -> SnapshotHolding:
        here = [f for f in of.files if sizes.get(local_blobs.parse(f.digest)) == f.size]
        return SnapshotHolding(
            digest=of.digest,
            files=len(of.files),
            files_here=len(here),
            bytes=of.size,
            bytes_here=sum(file.size for file in here),
            used=self._used(of.digest),
            leased=leased,
        )

    def sources(self) -> tuple[str, ...]:
        """Return the identities of the sources that were pinned on this node."""
        return tuple(sorted(path.stem for path in (self.root / "sources").glob("*.ndjson")))

    def touch_source(self, identity: str) -> None:
        """Record that a source was pinned now, also if its pin journal has not changed."""
        now = self._clock.wall()
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.root / "sources" / f"{identity}.ndjson", (now, now))

    def _forget_sources(self) -> None:
        """Delete the pin journals of sources that were not pinned for a long time; a new pin reads
        all their files.
        """
        for path in (self.root / "sources").glob("*.ndjson"):
            if self._clock.wall() - path.stat().st_mtime > SOURCE_S:
                path.unlink(missing_ok=True)

    # leases and trees

    def lease(self, wanted: leases.Lease) -> None:
        """Store a lease for the snapshots that a run needs, whether or not this node has them yet.
        Raises LeaseRefused, PondFull.
        """
        with self._lock, full_disk(self.root):
            before = self.find_lease(wanted.namespace, wanted.name)
            self._leases.put(wanted)
            kept = {one.name for one in wanted.snapshots}
            for old in before.snapshots if before is not None else ():
                self._touch(old.digest)
                if old.name not in kept:
                    self._remove_tree(wanted.namespace, wanted.name, old.name)
            for one in wanted.snapshots:
                self._touch(one.digest)

    def all_leases(self) -> Iterator[leases.Lease]:
        """Yield the leases of all namespaces, for the owner of the pond; for one namespace use
        `get_lease`.
        """
        return iter(self._leases)

    def get_lease(self, namespace: str, name: str) -> leases.Lease:
        """Return a lease. Raises LeaseRefused, also for a lease of another namespace."""
        return self._leases.get(namespace, name)

    def find_lease(self, namespace: str, name: str) -> leases.Lease | None:
        try:
            return self._leases.get(namespace, name)
        except errors.LeaseRefused:
            return None

    def release(self, namespace: str, name: str) -> None:
        """Release a lease, and delete the run's trees and outputs. Raises LeaseRefused, also for a
        lease of another namespace.
        """
        with self._lock:
            for one in self._leases.get(namespace, name).snapshots:
                self._touch(one.digest)
                self._own.pop((namespace, name, one.name), None)
            self._leases.remove(namespace, name)
        trees.remove(self.run(namespace, name))
        self._remove_outputs(self.outputs(namespace, name))
        self.evict_to_watermark()

    def run(self, namespace: str, lease: str) -> Path:
        """Return the directory of a run's trees."""
        return self.root / "runs" / namespace / lease

    def outputs(self, namespace: str, lease: str) -> Path:
        """Return the directory into which the tasks of a run write their outputs."""
        return self.root / "outputs" / namespace / lease

    def make_outputs(self, namespace: str, lease: str) -> None:
        """Create the output directory of a run, writable for the user of its tasks. Raises
        PondFull.

        `release` deletes the directory.
        """
        with full_disk(self.root):
            path = self.outputs(namespace, lease)
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o1777)

    def _remove_outputs(self, path: Path) -> None:
        """Delete the output directory of a run, without following links, which running tasks may
        create.

        `trees.remove` would follow them.
        """
        shutil.rmtree(path, ignore_errors=True)

    def make_tree(self, lease: leases.Lease, snapshot: leases.LeasedSnapshot) -> trees.Marker:
        """Create the tree of a snapshot for a run; the snapshot's blobs must be on this node.

        Raises PondFull, BlobMissing if a blob is missing, and the errors of `Manifest.chosen`.
        """
        of = self._manifests[snapshot.digest]
        files = of.chosen(snapshot.paths)
        if missing := self.missing(files):
            raise errors.BlobMissing(f"{missing[0].path} of {snapshot.digest} is not here")
        run = self.run(lease.namespace, lease.name)
        wanted = trees.Marker(
            digest=of.digest,
            access=snapshot.access,
            files=len(files),
            own_bytes=trees.own_bytes(files, snapshot.access),
            paths_digest=pond_messages.paths_digest(snapshot.paths),
        )
        seen = trees.marker(run, snapshot.name)
        fresh = seen is None or (seen.digest, seen.access) != (of.digest, snapshot.access)
        name = f"tree {lease.namespace}/{lease.name}/{snapshot.name}"
        with self.reserved(name, wanted.own_bytes if fresh else 0), full_disk(self.root):
            try:
                trees.make(run, snapshot.name, wanted, blobs=self.root / "blobs", files=files)
            except OSError:
                trees.remove(run / f".{snapshot.name}.new")
                raise
            self._own[lease.namespace, lease.name, snapshot.name] = wanted.own_bytes
            return wanted

    def withdraw_damaged(
        self, lease: leases.Lease, snapshot: leases.LeasedSnapshot, files: Sequence[manifest.File]
    ) -> None:
        """Remove damaged files from a run's tree. `files`: the files whose blobs are missing."""
        run = self.run(lease.namespace, lease.name)
        if snapshot.access == trees.READ:
            blobs = self.root / "blobs"
            trees.withdraw(run, snapshot.name, files, digest=snapshot.digest, blobs=blobs)

    # room

    def set_limits(self, limits: PondLimits) -> None:
        """Apply new limits."""
        if limits != self._limits:
            self._limits = limits
            self.evict_to_watermark()

    @property
    def capacity(self) -> int:
        """Number of bytes that the pond may use: the quota; without a quota, the bytes that it uses
        now and the free space of the disk, except the space reserved on it.
        """
        if self._limits.capacity is not None:
            return self._limits.capacity
        return self.used + max(0, disk_checks.usable_bytes(self.root))

    @property
    def used(self) -> int:
        """Number of bytes in blobs, in partial files, and in files of trees that are not links."""
        partial = sum(size for _, size in self.blobs.partials())
        return self.blobs.used + partial + sum(self._own.values())

    @contextlib.contextmanager
    def reserved(self, name: str, size: int) -> Iterator[None]:
        """Reserve `size` bytes for the duration of the block. Raises PondFull.

        The present bytes of the partial file `name` are part of the reservation.
        """
        self.reserve(name, size)
        try:
            yield
        finally:
            with self._lock:
                self._reserved.pop(name, None)

    def reserve(self, name: str, size: int) -> None:
        """Set the number of bytes reserved under a name. Raises PondFull, after deleting the
        partial file of that name.
        """
        with self._lock:
            try:
                self._make_room(name, size)
            except errors.PondFull:
                self.blobs.drop_partial(name)
                raise
            self._reserved[name] = size

    def evict_to_watermark(self) -> None:
        """Evict unneeded snapshots if usage is above the high watermark."""
        with self._lock:
            capacity, used = self.capacity, self.used
            if used > capacity * self._limits.high:
                self._evict(used - int(capacity * self._limits.low))

    def evict_all(self) -> int:
        """Evict everything without a lease; return the number of bytes freed."""
        with self._lock:
            return self._evict(self.blobs.used + 1)

    def _make_room(self, name: str, size: int) -> None:
        here = dict(self.blobs.partials())
        promised = {key: value for key, value in self._reserved.items() if key != name}
        others = sum(there for key, there in here.items() if key not in promised and key != name)
        taken = self.blobs.used + sum(self._own.values()) + sum(promised.values()) + others
        capacity = self.capacity
        if taken + size > capacity and taken + size - self._evictable(but=name) > capacity:
            raise self._full(size, capacity, taken - self._evictable(but=name))
        if taken + size > capacity * self._limits.high:
            taken -= self._evict(taken + size - int(capacity * self._limits.low), but=name)
        if taken + size > capacity:
            raise self._full(size, capacity, taken)
        more = size - here.get(name, 0)
        if more > 0 and disk_checks.usable_bytes(self.root) < more:
            self._evict(more, but=name)
            if disk_checks.usable_bytes(self.root) < more:
                raise self._full(size, None, taken)

    def _full(self, size: int, quota: int | None, taken: int) -> errors.PondFull:
        """Return the error for a lack of space, which says whether the quota is exceeded or the
        disk is full.
        """
        need = f"{size:,} bytes are needed in {self.root}, and"
        if quota is not None and self._limits.capacity is not None:
            return errors.PondFull(
                f"{need} of {quota:,} {taken:,} are taken by leased snapshots and what is on its "
                "way: release leases, or raise spec.capacity"
            )
        free = max(0, disk_checks.usable_bytes(self.root))
        return errors.PondFull(
            f"{need} its disk has {free:,} beside its reserve, some of it perhaps for what is on "
            "its way: free some, or put the pond on another disk"
        )

    def _evictable(self, *, but: str) -> int:
        """Return the number of bytes that eviction could free, so that nothing is evicted for data
        that does not fit anyway.
        """
        partials = self._unneeded_partials(self._leases.digests, but=but)
        return self._choose(self.blobs.used + 1).freed + sum(partials.values())

    def _evict(self, excess: int, *, but: str = "") -> int:
        """Evict at least `excess` bytes if possible; return the number of bytes freed. `but`: name
        of a partial file to keep.
        """
        gone = self._choose(excess)
        for digest in gone.snapshots:
            self._manifests.pop(digest)
            self._manifest_path(digest).unlink(missing_ok=True)
        freed = sum(self.blobs.remove(blob) for blob in gone.blobs)
        if freed < excess:
            for name, size in self._unneeded_partials(self._leases.digests, but=but).items():
                self.blobs.drop_partial(name)
                freed += size
        self.evicted_bytes += freed
        return freed

    def _choose(self, excess: int) -> eviction.Eviction:
        candidates = [
            eviction.Candidate(one.digest, self._used(one.digest), _blobs(one))
            for one in self._manifests.values()
        ]
        sizes = {d: size for d, size in self.blobs.sizes().items() if d not in self._held}
        return eviction.choose(candidates, sizes, leased=self._leases.digests, excess=excess)

    def _unneeded_partials(self, leased: frozenset[str], *, but: str) -> dict[str, int]:
        """Return the sizes, by name, of partial files that no lease waits for and no thread works
        on.
        """
        kept = {but, *self._reserved}
        for digest in leased & self._manifests.keys():
            kept |= {blob.hex() for blob in _blobs(self._manifests[digest])}
        return {name: size for name, size in self.blobs.partials() if name not in kept}

    def hold_blob(self, blob: bytes) -> None:
        """Protect from eviction a blob that is in no manifest yet, because its source is being
        pinned.
        """
        with self._lock:
            self._held.add(blob)

    def release_blobs(self, held: set[bytes]) -> None:
        """End the protection of held blobs, because their manifest is stored or the pin has
        failed.
        """
        with self._lock:
            self._held -= held

    # private methods

    def _scan_manifests(self) -> None:
        self._manifests.clear()
        for path in sorted((self.root / "snapshots").glob("*.json")):
            digest = f"sha256:{path.stem}"
            try:
                self._manifests[digest] = manifest.parse(path.read_bytes(), digest=digest)
            except errors.ManifestRefused:
                path.unlink(missing_ok=True)  # it is fetched again

    def _scan_trees(self) -> None:
        """Count the bytes of existing trees, and delete trees without a lease, which an earlier
        agent could not delete.
        """
        for path in (self.root / "runs").glob("*/*"):
            if self.find_lease(path.parent.name, path.name) is None:
                trees.remove(path)
        for path in (self.root / "outputs").glob("*/*"):
            if self.find_lease(path.parent.name, path.name) is None:
                self._remove_outputs(path)
        for lease in self._leases:
            run = self.run(lease.namespace, lease.name)
            for one in lease.snapshots:
                if (seen := trees.marker(run, one.name)) is not None:
                    self._own[lease.namespace, lease.name, one.name] = seen.own_bytes

    def _remove_tree(self, namespace: str, lease: str, name: str) -> None:
        self._own.pop((namespace, lease, name), None)
        run = self.run(namespace, lease)
        (run / f".{name}.ready").unlink(missing_ok=True)
        trees.remove(run / name)

    def _manifest_path(self, digest: str) -> Path:
        return self.root / "snapshots" / f"{digest.removeprefix('sha256:')}.json"

    def _used(self, digest: str) -> float:
        try:
            return self._manifest_path(digest).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _touch(self, digest: str) -> None:
        now = self._clock.wall()
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._manifest_path(digest), (now, now))


def _is_foreign_entry(entry: Path) -> bool:
    """Return whether an entry of a directory shows that the directory belongs to another owner.

    The node may have created empty directories for the mounts of a worker before the agent started.
    """
    if entry.name in ("runs", "outputs"):
        return any(files for _, _, files in os.walk(entry))
    return entry.name not in _IGNORED


def _blobs(of: manifest.Manifest) -> tuple[bytes, ...]:
    return tuple(local_blobs.parse(file.digest) for file in of.files)


@contextlib.contextmanager
def full_disk(root: Path, *, or_drop: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Context manager that converts errors of a full disk or quota to PondFull. `or_drop` is called
    to free space first.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        or_drop()
        raise errors.PondFull(
            f"the disk of {root} took no more ({error.strerror}): free some room, or put the pond "
            "on another disk"
        ) from error
