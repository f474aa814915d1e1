"""What users of the ledger see: pins, snapshots that are wanted, and how far nodes are.

Used by `ledger`, by the controllers that need data, and by the REST API.
"""

import msgspec

from kilnwork.api import data_pond
from kilnwork.data.pond import manifest as manifests

PENDING, PINNED, FAILED = "Pending", "Pinned", "Failed"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A source that becomes, or has become, a snapshot.

    `state`: PENDING, PINNED or FAILED, which is final. `manifest`: once it is pinned. `bytes`: of
    the snapshot, before that what was read so far. `reason`, `message`: why it has failed, or what
    it waits for.
    """

    state: str = PENDING
    digest: str = ""
    manifest: manifests.Manifest | None = None
    bytes: int = 0
    reason: str = ""
    message: str = ""


class WantedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that a run needs on its nodes.

    `name`: of its directory; `paths`: the files, None for all; `access`: `read` or `copy`;
    `source`: where it was pinned from, for what no node has.
    """

    name: str
    digest: str
    paths: tuple[str, ...] | None = None
    access: str = "read"
    source: data_pond.SnapshotSource | None = None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How far one node is with a lease. `reason`, `message`: what it waits for, or what is wrong;
    `lasting`: it will not pass by itself."""

    ready: bool = False
    bytes_done: int = 0
    bytes_total: int = 0
    reason: str = ""
    message: str = ""
    lasting: bool = False
