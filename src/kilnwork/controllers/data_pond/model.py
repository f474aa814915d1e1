"""Values of the ledger: pins, wanted snapshots, and the progress of nodes.

Used by `ledger`, by the controllers that need data, and by the REST API.
"""

from collections.abc import Collection, Mapping

import msgspec

from kilnwork.api import data_pond
from kilnwork.data.pond import manifest as manifests

PENDING, PINNED, FAILED = "Pending", "Pinned", "Failed"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The conversion of a source to a snapshot: in progress, finished or failed."""

    state: str = PENDING
    """PENDING, PINNED or FAILED. The last two are final."""
    digest: str = ""
    manifest: manifests.Manifest | None = None
    """Manifest of the snapshot, once it is pinned."""
    bytes: int = 0
    """Size of the snapshot in bytes; before it is pinned, the bytes read so far."""
    reason: str = ""
    """Why the pin has failed, or what it waits for."""
    message: str = ""
    paths_by_node: Mapping[str, tuple[str, ...]] = {}
    """Files that each node holds, for the pin of an output."""


class WantedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that a run needs on its nodes."""

    name: str
    """Name of the snapshot's directory."""
    digest: str
    paths: tuple[str, ...] | None = None
    """The needed files; None for all files."""
    paths_by_node: Mapping[str, tuple[str, ...]] | None = None
    """The files that each node needs, instead of `paths`."""
    access: str = "read"
    """`read` or `copy`."""
    source: data_pond.SnapshotSource | None = None
    """Source from which the snapshot was pinned, for files that no node has."""

    def paths_on(self, nodes: Collection[str]) -> tuple[str, ...] | None:
        """Return the files of the snapshot that a group of nodes with a shared disk needs, or None
        for all files.
        """
        if self.paths_by_node is None:
            return self.paths
        found = [self.paths_by_node.get(node, ()) for node in sorted(nodes)]
        if len(found) == 1:
            return found[0]
        return tuple(sorted({path for paths in found for path in paths}))


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one node with the data of a lease."""

    ready: bool = False
    bytes_done: int = 0
    bytes_total: int = 0
    reason: str = ""
    """Why the node is not ready: a wait or a problem."""
    message: str = ""
    lasting: bool = False
    """Whether the problem is permanent, so that waiting does not help."""
