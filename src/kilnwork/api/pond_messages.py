"""Messages between the agents of a pond and the manager, as JSON.

Used by `kilnwork.pond`, `server.pond_exchange` and `controllers.data_pond`. An agent sends a
`Report` of all that it has and does, and gets the `NodeOrder` of all that is wanted of its node.
Messages are complete and do not depend on earlier ones, so they may be lost, and a restarted side
needs no history.
"""

import hashlib

import msgspec

PREFIX = "/ponds"
"""`POST /ponds/NAMESPACE/NAME/nodes/NODE`: a report; the response is an order. With `?wait=SECONDS`
it comes when there is a newer order than the one that the report knows. `GET` and `PUT
/ponds/NAMESPACE/NAME/manifests/DIGEST`: a manifest. `GET /ponds/NAMESPACE/NAME/jobs/JOB/DIRECTORY`:
a `FileList` of a file job of the pond's namespace, with the name of a file behind it that file."""

WAIT_S = 20.0
"""How long an agent waits for a new order at a time."""

SILENT_S = 45.0
"""An agent without a report for this time counts as lost: a bit more than two waits."""


class Message(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Base of what is sent; fields that the other side does not know are ignored."""


class SourceOrder(Message, frozen=True):
    """The source of files. `name`: of the source, for messages and its credentials; `uri`: with the
    path; `allow`: addresses that may be connected to; `inline`: the files themselves; `below`: so
    many of the last components of `uri` are not the pond's own, and of a file none may be a link;
    `attempts`: it is the directory of a run's outputs, and these directories in it are read as
    one."""

    name: str
    uri: str = ""
    paths: tuple[str, ...] = ()
    glob: str = ""
    allow: tuple[str, ...] = ()
    inline: dict[str, str] | None = None
    below: int = 0
    attempts: tuple[str, ...] = ()


class PinOrder(Message, frozen=True):
    """Pin this source, and report under `id`."""

    id: str
    source: SourceOrder


class SnapshotOrder(Message, frozen=True):
    """A snapshot of a lease. `paths`: None for all files; `source`: where to fetch what no peer
    has."""

    name: str
    digest: str
    paths: tuple[str, ...] | None = None
    access: str = "read"
    source: SourceOrder | None = None


class LeaseOrder(Message, frozen=True):
    """Have these snapshots, and keep them until the lease is released. `outputs`: have a directory
    too, into which tasks of the run write."""

    name: str
    snapshots: tuple[SnapshotOrder, ...]
    outputs: bool = False


class LimitsOrder(Message, frozen=True):
    """Limits of the pond on this node. `capacity`: bytes, None for what the disk has."""

    capacity: int | None = None
    high: float = 0.9
    low: float = 0.7
    parallel: int = 8
    scrub: int = 0
    """Bytes a second of blobs at rest that are checked; 0: none."""


class NodeOrder(Message, frozen=True):
    """All that is wanted of a node.

    `revision`: of this order. `released`: leases to release; others stay, even if the order does
    not name them. `holders`: by digest the nodes that have some of it, `peers`: where their agents
    listen. `uploads`: manifests that the manager lacks.
    """

    revision: int
    limits: LimitsOrder = LimitsOrder()
    pins: tuple[PinOrder, ...] = ()
    leases: tuple[LeaseOrder, ...] = ()
    released: tuple[str, ...] = ()
    peers: dict[str, str] = {}
    holders: dict[str, tuple[str, ...]] = {}
    uploads: tuple[str, ...] = ()
    remove: bool = False
    """The last order: the DataPond is deleted, remove all data from the node."""


class PondTrouble(Message, frozen=True):
    """Why something is missing. `lasting`: waiting does not help."""

    reason: str
    message: str
    lasting: bool = False


class PinReport(Message, frozen=True):
    """How far a pin is. `digest`: of the snapshot, once the manager has its manifest."""

    id: str
    digest: str = ""
    bytes_done: int = 0
    trouble: PondTrouble | None = None


class SnapshotReport(Message, frozen=True):
    """How far a snapshot of a lease is. `digest`, `paths_digest` and `access`: those of the
    order."""

    name: str
    digest: str
    paths_digest: str
    access: str
    ready: bool = False
    bytes_done: int = 0
    bytes_total: int = 0
    trouble: PondTrouble | None = None


class LeaseReport(Message, frozen=True):
    """A lease that this node has."""

    name: str
    snapshots: tuple[SnapshotReport, ...] = ()


class HoldingReport(Message, frozen=True):
    """A snapshot, and how much of it is on this node."""

    digest: str
    files: int
    bytes: int
    files_here: int
    bytes_here: int
    used: float = 0.0
    leased: bool = False


class Counters(Message, frozen=True):
    """Since this agent was started: bytes, but for `hits` and `misses`, which are files that were
    wanted and here already, or not; `quarantined`: files that were damaged. `scrubbed`: of blobs at
    rest that were checked."""

    fetched_source: int = 0
    fetched_peers: int = 0
    served: int = 0
    evicted: int = 0
    hits: int = 0
    misses: int = 0
    quarantined: int = 0
    scrubbed: int = 0


class Report(Message, frozen=True):
    """All that an agent has and does. `session`: of this life of the agent; `sequence`: of reports,
    so that an old one that comes late is ignored; `knows`: revision of its order; `address`: where
    peers connect, "" if nowhere."""

    session: str
    sequence: int
    knows: int = 0
    address: str = ""
    store: str = ""
    """Id of the directory: nodes that share a disk have the same."""
    shares: bool = False
    """Another agent of this pond has that directory, and serves this node too."""
    capacity: int = 0
    used: int = 0
    holdings: tuple[HoldingReport, ...] = ()
    pins: tuple[PinReport, ...] = ()
    leases: tuple[LeaseReport, ...] = ()
    sources: tuple[str, ...] = ()
    """Keys of those that this node has pinned, and need not read again as long as they are as
    then."""
    counters: Counters = Counters()
    removed: bool = False
    """Nothing of the pond is on this node any more."""
    trouble: PondTrouble | None = None


class ListedFile(Message, frozen=True):
    """A file of a file job. `size`: bytes; `digest`: SHA-256 in hex digits, in quotes its entity
    tag."""

    path: str
    size: int
    digest: str


class FileList(Message, frozen=True):
    """The files of one directory of a file job, which has ended."""

    files: tuple[ListedFile, ...]


def source_key(order: SourceOrder) -> str:
    """Return a name for a source and what is selected of it, the same wherever it is computed."""
    facts = [order.uri, sorted(order.paths), order.glob, sorted(order.inline or ())]
    if order.attempts:
        facts.append(sorted(order.attempts))
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]


def paths_digest(paths: tuple[str, ...] | None) -> str:
    """Return a short text for a set of paths, by which a report says what it is about."""
    if paths is None:
        return "all"
    return hashlib.sha256("\0".join(sorted(paths)).encode()).hexdigest()[:16]
