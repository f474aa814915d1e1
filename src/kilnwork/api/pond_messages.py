"""Messages between the agents of a pond and the manager, as JSON.

Used by `kilnwork.pond`, `server.pond_exchange` and `controllers.data_pond`. An agent sends a
`Report` of its complete state, and gets a `NodeOrder` with the complete desired state of its node.
Messages do not depend on earlier ones, so they may be lost, and a restarted peer needs no history.
"""

import hashlib

import msgspec

PREFIX = "/ponds"
"""Path prefix of the API for agents.

- `POST /ponds/NAMESPACE/NAME/nodes/NODE` sends a report; the response is an order. With
  `?wait=SECONDS` the response is delayed until there is an order newer than `Report.knows`.
- `GET` and `PUT /ponds/NAMESPACE/NAME/manifests/DIGEST` transfer a manifest.
- `GET /ponds/NAMESPACE/NAME/jobs/JOB/DIRECTORY` returns the `FileList` of a file job in the pond's
  namespace; with the name of a file appended, it returns that file.
"""

WAIT_S = 20.0
"""Duration of one request with which an agent waits for a new order, in seconds."""

SILENT_S = 45.0
"""Seconds without a report after which an agent counts as lost: a bit more than two waits."""


class Message(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Base of all messages; unknown fields are ignored."""


class SourceOrder(Message, frozen=True):
    """A source of files."""

    name: str
    """Name of the source, for messages and for its credentials."""
    uri: str = ""
    """Address including the path."""
    paths: tuple[str, ...] = ()
    glob: str = ""
    allow: tuple[str, ...] = ()
    """Addresses that may be connected to."""
    inline: dict[str, str] | None = None
    """The content of the files by path, instead of an address."""
    below: int = 0
    """Number of trailing components of `uri` that do not belong to the pond itself; in a file
    path none of these may be a link."""
    attempts: tuple[str, ...] = ()
    """If `uri` is the directory of a run's outputs: names of the directories in it that are read
    as one."""


class PinOrder(Message, frozen=True):
    """An order to pin a source."""

    id: str
    """Id under which the result is reported."""
    source: SourceOrder


class SnapshotOrder(Message, frozen=True):
    """A snapshot of a lease."""

    name: str
    digest: str
    paths: tuple[str, ...] | None = None
    """Paths of the files to hold; None for all files."""
    access: str = "read"
    source: SourceOrder | None = None
    """Source of files that no peer has."""


class LeaseOrder(Message, frozen=True):
    """An order to hold snapshots until the lease is released."""

    name: str
    snapshots: tuple[SnapshotOrder, ...]
    outputs: bool = False
    """Whether to provide a directory into which tasks of the run write."""


class LimitsOrder(Message, frozen=True):
    """Limits of the pond on this node."""

    capacity: int | None = None
    """Capacity in bytes; None for the size of the disk."""
    high: float = 0.9
    low: float = 0.7
    parallel: int = 8
    scrub: int = 0
    """Number of bytes of stored blobs that are checked per second; 0 disables the check."""


class NodeOrder(Message, frozen=True):
    """The complete desired state of a node."""

    revision: int
    """Revision of this order."""
    limits: LimitsOrder = LimitsOrder()
    pins: tuple[PinOrder, ...] = ()
    leases: tuple[LeaseOrder, ...] = ()
    released: tuple[str, ...] = ()
    """Leases to release. Other leases are kept, even if `leases` does not contain them."""
    peers: dict[str, str] = {}
    """Addresses of the other agents, by node."""
    holders: dict[str, tuple[str, ...]] = {}
    """Nodes that hold at least a part of a snapshot, by digest."""
    uploads: tuple[str, ...] = ()
    """Digests of manifests that the manager lacks."""
    remove: bool = False
    """Whether the DataPond is deleted and all data must be removed from the node. It is the last
    order."""


class PondTrouble(Message, frozen=True):
    """Why a pin or a snapshot is incomplete."""

    reason: str
    message: str
    lasting: bool = False
    """Whether the problem is permanent, so that waiting does not help."""


class PinReport(Message, frozen=True):
    """The progress of a pin."""

    id: str
    digest: str = ""
    """Digest of the snapshot, set when the manager has its manifest."""
    bytes_done: int = 0
    trouble: PondTrouble | None = None


class SnapshotReport(Message, frozen=True):
    """The progress of a snapshot of a lease. `digest`, `paths_digest` and `access` are those of
    the order."""

    name: str
    digest: str
    paths_digest: str
    access: str
    ready: bool = False
    bytes_done: int = 0
    bytes_total: int = 0
    trouble: PondTrouble | None = None


class LeaseReport(Message, frozen=True):
    """A lease that this node holds."""

    name: str
    snapshots: tuple[SnapshotReport, ...] = ()


class HoldingReport(Message, frozen=True):
    """A snapshot, and the part of it on this node."""

    digest: str
    files: int
    bytes: int
    files_here: int
    bytes_here: int
    used: float = 0.0
    leased: bool = False


class Counters(Message, frozen=True):
    """Counters since the start of this agent, in bytes except for `hits`, `misses` and
    `quarantined`."""

    fetched_source: int = 0
    fetched_peers: int = 0
    served: int = 0
    evicted: int = 0
    hits: int = 0
    """Number of requested files that were on the node already."""
    misses: int = 0
    """Number of requested files that were not on the node."""
    quarantined: int = 0
    """Number of damaged files."""
    scrubbed: int = 0
    """Number of bytes of stored blobs that were checked."""


class Report(Message, frozen=True):
    """The complete state of an agent."""

    session: str
    """Id of this process of the agent."""
    sequence: int
    """Consecutive number of the report, by which late older reports are recognised and ignored."""
    knows: int = 0
    """Revision of the latest order that the agent has received."""
    address: str = ""
    """Address for connections of peers; "" if there is none."""
    store: str = ""
    """Id of the directory: nodes that share a disk have the same id."""
    shares: bool = False
    """Whether another agent of this pond has the directory and serves this node too."""
    capacity: int = 0
    used: int = 0
    holdings: tuple[HoldingReport, ...] = ()
    pins: tuple[PinReport, ...] = ()
    leases: tuple[LeaseReport, ...] = ()
    sources: tuple[str, ...] = ()
    """Keys of the sources that this node has pinned, and need not read again while they are
    unchanged."""
    counters: Counters = Counters()
    removed: bool = False
    """Whether the pond has no data left on this node."""
    trouble: PondTrouble | None = None


class ListedFile(Message, frozen=True):
    """A file of a file job."""

    path: str
    size: int
    """Size in bytes."""
    digest: str
    """SHA-256 in hexadecimal; in quotes it is the entity tag of the file."""


class FileList(Message, frozen=True):
    """The files of one directory of a finished file job."""

    files: tuple[ListedFile, ...]


def source_key(order: SourceOrder) -> str:
    """Return a digest of a source and its selection, which is the same on all machines."""
    facts = [order.uri, sorted(order.paths), order.glob, sorted(order.inline or ())]
    if order.attempts:
        facts.append(sorted(order.attempts))
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]


def paths_digest(paths: tuple[str, ...] | None) -> str:
    """Return a short digest of a set of paths, with which a report refers to the set."""
    if paths is None:
        return "all"
    return hashlib.sha256("\0".join(sorted(paths)).encode()).hexdigest()[:16]
