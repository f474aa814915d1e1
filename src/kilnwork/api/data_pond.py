"""Kind DataPond: a store of snapshots next to the work, one agent for each node.

Used by the CRDs, by validation, by the controller, and by what says where a snapshot comes from.
What a pond holds is in `kilnwork.data.pond`; per node, the REST API tells of it.
"""

from typing import Annotated

import msgspec

from kilnwork.api import meta, task, wire

SourceName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Fraction = Annotated[float, msgspec.Meta(ge=0.05, le=1)]
MAX_INLINE_BYTES = 512 * 1024
"""Longest text of all inline files together: they are part of an object."""


class PondSource(wire.Wire, frozen=True):
    """A place from which snapshots may be taken."""

    name: SourceName
    """Name of the source, by which snapshots refer to it."""
    uri: Annotated[str, msgspec.Meta(max_length=2048, pattern="^((https?|file)://|kiln:)")]
    """`https://…` or `http://…`, a file or with `/` at its end what paths are below; `file:///…`, a
    file or directory of the node, which the agent mounts read-only; `kiln:JOB/DIRECTORY`, files of
    a file job of this namespace, `kiln:` for any of them."""
    secret_name: task.Name | None = None
    """Secret whose key `token`, or keys `username` and `password`, are shown to an HTTP source."""
    allow_addresses: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=64)], ...], msgspec.Meta(max_length=16)
    ] = ()
    """Addresses that an HTTP source may have although they are local to the machine or link-local:
    `127.0.0.1:8080`, `10.0.0.0/8`."""


class PondFetch(wire.Wire, frozen=True):
    """How data is brought."""

    parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Number of files that an agent fetches at once from each source."""
    from_peers: bool = True
    """Whether agents ask each other before the source."""


class DataPondSpec(wire.Wire, frozen=True):
    """Where data is stored, how much of it, and where it comes from."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of the nodes that have an agent; without any, all nodes."""
    path: Annotated[str, msgspec.Meta(max_length=1024, pattern="^/")] | None = None
    """Directory of the node that holds the data, of this pond alone. Without it
    `/var/lib/kilnwork/ponds/NAMESPACE/NAME`; with `kiln up` below its data directory."""
    capacity: Annotated[str, msgspec.Meta(max_length=32)] | None = None
    """Room on each node, as a quantity: `100Gi`. Without it, the whole disk."""
    high_watermark: Fraction = 0.9
    """Part of the capacity above which unused snapshots are removed."""
    low_watermark: Fraction = 0.7
    """Part of the capacity that remains used then."""
    fetch: PondFetch = PondFetch()
    """How data is brought."""
    scrub_rate: Annotated[str, msgspec.Meta(max_length=32)] = "4Mi"
    """Bytes a second, as a quantity, that an agent reads to see whether its disk has damaged what
    it keeps, once a week; `0` for never."""
    sources: Annotated[tuple[PondSource, ...], msgspec.Meta(max_length=64)] = ()
    """Places from which snapshots may be taken."""


class PondNodes(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Nodes with an agent."""

    ready: int = 0
    """Agents that report."""
    total: int = 0
    """Nodes that `spec.nodeSelector` selects."""


class PondBytes(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Room, on all nodes together."""

    used: int = 0
    """Bytes that are taken."""
    capacity: int = 0
    """Bytes that may be taken."""


class PondSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A snapshot in the pond."""

    digest: str
    """Digest of its manifest."""
    bytes: int = 0
    """Bytes of all its files."""
    files: int = 0
    """Number of its files."""
    nodes_ready: int = 0
    """Nodes that have all of it."""
    leases: int = 0
    """Runs that need it."""


class DataPondStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the pond holds, on all nodes together."""

    nodes: PondNodes = PondNodes()
    """Nodes with an agent."""
    bytes: PondBytes = PondBytes()
    """Room on all of them."""
    snapshots: tuple[PondSnapshot, ...] = ()
    """Snapshots, those in use first, at most 100."""
    snapshots_total: int = 0
    """Number of all snapshots."""
    observed_generation: int = 0
    """The `metadata.generation` that this status is about."""
    conditions: tuple[meta.Condition, ...] = ()
    """Whether every node has an agent that reports: `Ready`; whether there is room: `Full`."""


class DataPond(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A store of snapshots next to the work."""

    metadata: meta.ObjectMeta
    spec: DataPondSpec = DataPondSpec()
    status: DataPondStatus = DataPondStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "DataPond"


class OutputRef(wire.Wire, frozen=True):
    """An output of a SyncSet of this namespace that uses the same pond."""

    set: task.Name
    """Name of the SyncSet."""
    name: Annotated[str, msgspec.Meta(max_length=40)]
    """Name of the output."""
    generation: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Generation of the output, as long as that is kept. Without it, the newest one that
    succeeded."""


class SnapshotSource(wire.Wire, frozen=True):
    """Where the files of a snapshot come from: exactly one of `source`, `uri`, `inline`, `output`,
    `files`."""

    source: SourceName | None = None
    """Name of a source of the pond."""
    uri: Annotated[str, msgspec.Meta(max_length=2048)] | None = None
    """Address below the `uri` of a source of the pond."""
    path: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Directory or file below it; paths of the snapshot begin there."""
    paths: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=1024)], ...], msgspec.Meta(max_length=10_000)
    ] = ()
    """Files below it; an HTTP source, which cannot be listed, needs them unless it is one file."""
    glob: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """Which files, as a pattern with `*`, `?`, `[…]` and `**`; without, all."""
    inline: dict[str, str] | None = None
    """The files themselves, text by path, 512 KiB in all."""
    output: OutputRef | None = None
    """Output of another SyncSet, which is waited for."""
    files: Annotated[str, msgspec.Meta(max_length=253)] | None = None
    """Id or name of a file job of this namespace, which need not be declared. `path` is one of its
    directories: `results` (the default), its result as one file; `parts`, the result of each part;
    `errors`, its bad records; `input`, what it was given."""


class ShardScheme(wire.Wire, frozen=True):
    """How a snapshot is divided; see `kilnwork.data.pond.shards`."""

    by: Annotated[str, msgspec.Meta(pattern="^(files|glob|range|hash)$")]
    """`files`, whole files of much the same number of bytes; `glob`, one shard for each pattern;
    `range`, records of text files in their order, the same `unit` in each; `hash`, files by their
    path, or records by `key`."""
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    """Number of shards; without it one for each file, or for each pattern."""
    key: Annotated[str, msgspec.Meta(max_length=253)] = ""
    """Field of NDJSON records, or column of CSV files."""
    patterns: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=1024)], ...], msgspec.Meta(max_length=1000)
    ] = ()
    """Patterns, with `by: glob`."""
    unit: Annotated[str, msgspec.Meta(pattern="^(bytes|rows)$")] = "bytes"
    """With `by: range`, the unit that is the same in all shards. `bytes`: known at once, rows are
    whole. `rows`: each task counts the lines of all files first, and its node needs all of them."""
