"""Kind DataPond: a store of snapshots on the nodes where tasks run, with one agent on each node.

Used by the CRDs, by validation, by the controller, and by code that resolves the sources of
snapshots. What a pond holds is in `kilnwork.data.pond`; the REST API shows it for each node.
"""

from typing import Annotated

import msgspec

from kilnwork.api import base_struct, meta, task

SourceName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Fraction = Annotated[float, msgspec.Meta(ge=0.05, le=1)]
MAX_INLINE_BYTES = 512 * 1024
"""Maximum total size of all inline files of a snapshot, in bytes: they are stored in an API
object."""


class PondSource(base_struct.Wire, frozen=True):
    """A source from which snapshots are taken."""

    name: SourceName
    """Name of the source, by which snapshots refer to it."""
    uri: Annotated[str, msgspec.Meta(max_length=2048, pattern="^((https?|file)://|kiln:)")]
    """Address of the source. `https://…` or `http://…`: a file, or with a trailing `/` a prefix of
    paths; `file:///…`: a file or directory of the node, which the agent mounts read-only;
    `kiln:JOB/DIRECTORY`: files of a file job in this namespace; `kiln:`: files of any of these
    jobs."""
    secret_name: task.Name | None = None
    """Name of the Secret with credentials for an HTTP source, in the key `token` or in the keys
    `username` and `password`. Its key `ca.crt` is trusted for the source."""
    allow_addresses: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=64)], ...], msgspec.Meta(max_length=16)
    ] = ()
    """Addresses that an HTTP source may use although they are loopback or link-local:
    `127.0.0.1:8080`, `10.0.0.0/8`."""


class PondFetch(base_struct.Wire, frozen=True):
    """How agents fetch data."""

    parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Number of files that an agent fetches from each source at once."""
    from_peers: bool = True
    """Whether agents ask the agents of other nodes before the source."""


class DataPondSpec(base_struct.Wire, frozen=True):
    """The storage of a DataPond on its nodes, its capacity, and its sources."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of the nodes that run an agent. Empty: all nodes that accept Pods."""
    path: Annotated[str, msgspec.Meta(max_length=1024, pattern="^/")] | None = None
    """Directory of the node in which the data is stored; no other pond may use it. Unset:
    `/var/lib/kilnwork/ponds/NAMESPACE/NAME`; with `kiln up`, a directory in its data directory."""
    capacity: Annotated[str, msgspec.Meta(max_length=32)] | None = None
    """Capacity on each node, as a quantity such as `100Gi`. Unset: the whole disk, except for a
    reserve."""
    high_watermark: Fraction = 0.9
    """Used fraction of the capacity above which unused snapshots are removed."""
    low_watermark: Fraction = 0.7
    """Used fraction of the capacity down to which unused snapshots are removed. It must not be
    above `highWatermark`."""
    fetch: PondFetch = PondFetch()
    """How agents fetch data."""
    scrub_rate: Annotated[str, msgspec.Meta(max_length=32)] = "4Mi"
    """Bytes per second, as a quantity, that an agent reads to detect data damaged on disk. Each
    file is checked once a week. `0` disables the check."""
    sources: Annotated[tuple[PondSource, ...], msgspec.Meta(max_length=64)] = ()
    """Sources from which snapshots may be taken; other sources are refused."""


class PondNodes(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Numbers of nodes with an agent."""

    ready: int = 0
    """Number of agents that report."""
    total: int = 0
    """Number of nodes that `spec.nodeSelector` selects."""


class PondBytes(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Used and total bytes, summed over all nodes."""

    used: int = 0
    """Number of bytes used."""
    capacity: int = 0
    """Number of bytes available to the pond."""


class PondSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A snapshot in the pond."""

    digest: str
    """Digest of the snapshot's manifest."""
    bytes: int = 0
    """Total size of all files, in bytes."""
    files: int = 0
    """Number of files."""
    nodes_ready: int = 0
    """Number of nodes that hold the whole snapshot."""
    leases: int = 0
    """Number of runs that use the snapshot."""


class DataPondStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The content of a DataPond, summed over all nodes."""

    nodes: PondNodes = PondNodes()
    """Numbers of nodes with an agent."""
    bytes: PondBytes = PondBytes()
    """Used and total bytes on all nodes."""
    snapshots: tuple[PondSnapshot, ...] = ()
    """Snapshots in the pond, at most 100; those in use come first."""
    snapshots_total: int = 0
    """Number of all snapshots in the pond."""
    observed_generation: int = 0
    """The `metadata.generation` that this status describes."""
    conditions: tuple[meta.Condition, ...] = ()
    """`Ready`: whether every node has an agent that reports. `Full`: whether the pond is out of
    space."""


class DataPond(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A store of snapshots on the nodes where tasks run."""

    metadata: meta.ObjectMeta
    spec: DataPondSpec = DataPondSpec()
    status: DataPondStatus = DataPondStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "DataPond"


class OutputRef(base_struct.Wire, frozen=True):
    """An output of another SyncSet in this namespace that uses the same pond."""

    set: task.Name
    """Name of the SyncSet."""
    name: Annotated[str, msgspec.Meta(max_length=40)]
    """Name of the output."""
    generation: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Generation that wrote the output; it must still be kept. Unset: the newest generation that
    succeeded."""


class SnapshotSource(base_struct.Wire, frozen=True):
    """Source of the files of a snapshot. Exactly one of `source`, `uri`, `inline`, `output` and
    `files` must be set."""

    source: SourceName | None = None
    """Name of a source of the pond."""
    uri: Annotated[str, msgspec.Meta(max_length=2048)] | None = None
    """Address of the files; it must start with the `uri` of a source of the pond."""
    path: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Directory or file within the source. Paths in the snapshot are relative to it."""
    paths: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=1024)], ...], msgspec.Meta(max_length=10_000)
    ] = ()
    """Files within the source. Required for an HTTP source unless it is a single file, because HTTP
    cannot list files."""
    glob: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Pattern that selects files, with `*`, `?`, `[…]` and `**`. Empty: all files."""
    inline: dict[str, str] | None = None
    """Content of the files by path, at most 512 KiB in total."""
    output: OutputRef | None = None
    """Output of another SyncSet. The SyncSet waits until it exists."""
    files: Annotated[str, msgspec.Meta(max_length=253)] | None = None
    """Id or name of a file job in this namespace; it need not be a declared object. `path` is one
    of its directories: `results` (default), the result as one file; `parts`, the result of each
    part; `errors`, the bad records; `input`, the input."""


class ShardScheme(base_struct.Wire, frozen=True):
    """How a snapshot is divided into shards; see `kilnwork.data.pond.shards`."""

    by: Annotated[str, msgspec.Meta(pattern="^(files|glob|range|hash)$")]
    """Method of division. `files`: whole files, about the same number of bytes in each shard;
    `glob`: one shard for each pattern; `range`: records of text files in order, the same number of
    `unit` in each shard; `hash`: files by path, or records by `key`."""
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    """Number of shards. Unset: one for each file, or with `by: glob` one for each pattern."""
    key: Annotated[str, msgspec.Meta(max_length=253)] = ""
    """Field of NDJSON records, or column of CSV files, whose hash chooses the shard."""
    patterns: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=1024)], ...], msgspec.Meta(max_length=1000)
    ] = ()
    """Patterns that select the files of each shard, with `by: glob`."""
    unit: Annotated[str, msgspec.Meta(pattern="^(bytes|rows)$")] = "bytes"
    """With `by: range`, the unit of which all shards get the same number. `bytes`: ranges are
    known immediately and contain whole rows. `rows`: each task first counts the lines of all
    files, so its node needs all of them; headers of `.csv` files are not counted, and fields that
    contain line breaks are refused."""
