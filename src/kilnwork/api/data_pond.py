"""Kind DataPond: the store next to the work."""

import enum
from typing import Annotated

import msgspec

from kilnwork.api import meta, wire


class SnapshotSource(wire.Wire, frozen=True):
    """Where a snapshot comes from."""

    source: str | None = None
    """Name of a source of the DataPond."""
    uri: str | None = None
    """URI, instead of a source."""
    path: str = ""
    """File or directory below it."""
    glob: str = ""
    """Pattern of the files that are taken."""
    inline: dict[str, str] | None = None
    """Small files, by path."""
    files: str | None = None
    """Id of a file job, whose results are taken."""


class ShardBy(enum.StrEnum):
    """How a snapshot is divided."""

    FILES = "files"
    GLOB = "glob"
    RANGE = "range"
    HASH = "hash"


class ShardScheme(wire.Wire, frozen=True):
    """How a snapshot is divided."""

    by: ShardBy = ShardBy.FILES
    """How it is divided."""
    key: str = ""
    """Column by which records are divided."""
    patterns: tuple[str, ...] = ()
    """Patterns of paths: one shard for each."""
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    """Number of shards."""


class DataPondSpec(wire.Wire, frozen=True):
    """Where agents run and what they fetch."""

    path: str = ""
    """Directory on each node."""


class DataPond(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The store next to the work."""

    metadata: meta.ObjectMeta
    spec: DataPondSpec = DataPondSpec()
