"""Views of a pond in the REST API: its nodes, and the leases of users.

Created by the ledger of `controllers.data_pond`, served by `server.pond_api`, and shown by `kiln
data`. The status of a DataPond has the totals; these views have the data of each node.
"""

from typing import Annotated

import msgspec

from kilnwork.api import base_struct, data_pond, pond_messages

MAX_SNAPSHOTS = 64
LEASE_PREFIX = "user_"
"""Prefix of the internal names of users' leases: names of SyncSets contain no underscore."""


class View(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of all views."""


class NodeView(View, frozen=True):
    """One node of a pond."""

    node: str
    ready: bool
    """Whether the agent of the node reports."""
    since: str
    """Start time of the agent, RFC 3339."""
    address: str
    used: int
    capacity: int
    snapshots: tuple[pond_messages.HoldingReport, ...]
    leases: tuple[pond_messages.LeaseReport, ...]
    counters: pond_messages.Counters
    pins: tuple[pond_messages.PinReport, ...] = ()
    reason: str = ""
    message: str = ""


class LeaseNodeView(View, frozen=True):
    """The progress of a lease on one node."""

    ready: bool
    bytes_done: int
    bytes_total: int
    reason: str = ""
    message: str = ""


class LeaseView(View, frozen=True):
    """A lease on snapshots."""

    name: str
    user: bool
    """Whether a user created it; otherwise a SyncSet did."""
    ready: bool
    nodes: dict[str, LeaseNodeView]
    snapshots: dict[str, "PinView"] = {}


class PinView(View, frozen=True):
    """The state of a snapshot of a lease: `Pending`, `Pinned` or `Failed`."""

    state: str
    digest: str = ""
    bytes: int = 0
    files: int = 0
    reason: str = ""
    message: str = ""


class LeaseSnapshot(base_struct.Wire, frozen=True):
    """A snapshot that a user requests: `from`, or a known `digest`."""

    name: data_pond.SourceName
    from_: data_pond.SnapshotSource | None = msgspec.field(default=None, name="from")
    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")] | None = None
    paths: tuple[str, ...] | None = None
    access: Annotated[str, msgspec.Meta(pattern="^(read|copy)$")] = "read"


class LeaseRequest(base_struct.Wire, frozen=True):
    """A user's request for snapshots on the given nodes, or on all nodes."""

    snapshots: Annotated[
        tuple[LeaseSnapshot, ...], msgspec.Meta(min_length=1, max_length=MAX_SNAPSHOTS)
    ]
    nodes: tuple[str, ...] | None = None
