"""Leases: small files on disk that record which runs need which snapshots on this node.

Used by `store`, and by the agent, which makes the leases. A lease survives a restart of the agent.
It belongs to a namespace, which is part of its name on disk: clients cannot name, read or release
leases of other namespaces. Snapshots without a lease may be evicted.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from kilnwork.data import errors
from kilnwork.kit import data_directories

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9._]{0,251}[a-z0-9])?")
_SNAPSHOT = re.compile(r"[a-zA-Z0-9_][-a-zA-Z0-9_]{0,62}")
"""Valid names of snapshots, including names that expressions of a SyncSet use, such as
`dailyTrades`. No dots: `.NAME.ready` is the marker of another snapshot."""

Access = Annotated[str, msgspec.Meta(pattern="^(read|copy)$")]


class LeasedSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot in a lease.

    `name`: name of its directory in the run's directory; `paths`: the files that this node needs,
    None for all; `access`: `read` for read-only links, `copy` for files of the run's own.
    """

    name: str
    digest: str
    paths: tuple[str, ...] | None = None
    access: Access = "read"


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The snapshots that a run needs on this node until the lease is released."""

    namespace: str
    name: str
    snapshots: tuple[LeasedSnapshot, ...]

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the snapshots in the lease."""
        return frozenset(one.digest for one in self.snapshots)


def check(lease: Lease) -> None:
    """Raise LeaseRefused unless the namespace and the names in a lease are valid path
    components.
    """
    if not _LABEL.fullmatch(lease.namespace):
        raise errors.LeaseRefused(f"namespace: {lease.namespace!r} is no DNS label")
    if not _NAME.fullmatch(lease.name) or ".." in lease.name:
        raise errors.LeaseRefused(f"name: {lease.name!r} is no DNS name of at most 253 characters")
    names = [one.name for one in lease.snapshots]
    for index, name in enumerate(names):
        if not _SNAPSHOT.fullmatch(name):
            raise errors.LeaseRefused(
                f"snapshots[{index}].name: {name!r} must be at most 63 letters, digits, "
                "underscores and hyphens, and not begin with a hyphen"
            )
        if name in names[:index]:
            raise errors.LeaseRefused(f"snapshots[{index}].name: {name!r} is there twice")


class LeaseFiles:
    """The lease files below `directory`, `NAMESPACE/NAME.json`; kept in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._leases: dict[tuple[str, str], Lease] = {}

    def scan(self) -> None:
        """Read the existing leases from the directory; other files are ignored."""
        self._leases.clear()
        for path in sorted(self._directory.glob("*/*.json")):
            with contextlib.suppress(msgspec.MsgspecError, errors.LeaseRefused, OSError):
                lease = msgspec.json.decode(path.read_bytes(), type=Lease)
                check(lease)
                if self._path(lease.namespace, lease.name) == path:
                    self._leases[lease.namespace, lease.name] = lease

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def get(self, namespace: str, name: str) -> Lease:
        """Return a lease. Raises LeaseRefused, whose message reveals nothing about other
        namespaces.
        """
        try:
            return self._leases[namespace, name]
        except KeyError:
            raise errors.LeaseRefused(f"namespace {namespace} has no lease {name!r} here") from None

    def put(self, lease: Lease) -> None:
        """Store a lease, replacing any lease of the same name. Raises LeaseRefused, OSError."""
        check(lease)
        if self._leases.get((lease.namespace, lease.name)) == lease:
            return
        path = self._path(lease.namespace, lease.name)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        data_directories.write_private(path, msgspec.json.encode(lease), durable=True)
        self._leases[lease.namespace, lease.name] = lease

    def remove(self, namespace: str, name: str) -> None:
        """Delete a lease. Raises LeaseRefused."""
        self.get(namespace, name)
        self._path(namespace, name).unlink(missing_ok=True)
        del self._leases[namespace, name]

    @property
    def digests(self) -> frozenset[str]:
        """Digests of all leased snapshots."""
        return frozenset(digest for lease in self for digest in lease.digests)

    def _path(self, namespace: str, name: str) -> Path:
        return self._directory / namespace / f"{name}.json"
