"""Values of the ledger: pins, wanted snapshots, and how far nodes are.

Used by `ledger`, by the controllers that need data, and by the REST API.
"""

from collections.abc import Collection, Mapping

import msgspec

from kilnwork.api import data_pond
from kilnwork.data.pond import manifest as manifests

PENDING, PINNED, FAILED = "Pending", "Pinned", "Failed"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A source that becomes, or has become, a snapshot.

    `state`: PENDING, PINNED or FAILED, which is final. `manifest`: once it is pinned. `bytes`: of
    the snapshot; until it is pinned, those read so far. `reason`, `message`: why it has failed, or
    what it waits for. `paths_by_node`: of an output, which node has which of its files.
    """

    state: str = PENDING
    digest: str = ""
    manifest: manifests.Manifest | None = None
    bytes: int = 0
    reason: str = ""
    message: str = ""
    paths_by_node: Mapping[str, tuple[str, ...]] = {}


class WantedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that a run needs on its nodes.

    `name`: of its directory; `paths`: the files, None for all; `paths_by_node`: instead of it, the
    files that each node needs; `access`: `read` or `copy`; `source`: where it was pinned from, for
    files that no node has.
    """

    name: str
    digest: str
    paths: tuple[str, ...] | None = None
    paths_by_node: Mapping[str, tuple[str, ...]] | None = None
    access: str = "read"
    source: data_pond.SnapshotSource | None = None

    def paths_on(self, nodes: Collection[str]) -> tuple[str, ...] | None:
        """Return the files that nodes sharing a disk need, None for all."""
        if self.paths_by_node is None:
            return self.paths
        found = [self.paths_by_node.get(node, ()) for node in sorted(nodes)]
        if len(found) == 1:
            return found[0]
        return tuple(sorted({path for paths in found for path in paths}))


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How far one node is with a lease. `reason`, `message`: what it waits for, or what is wrong;
    `lasting`: waiting does not help."""

    ready: bool = False
    bytes_done: int = 0
    bytes_total: int = 0
    reason: str = ""
    message: str = ""
    lasting: bool = False
