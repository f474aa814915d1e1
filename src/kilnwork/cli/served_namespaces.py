"""Record of the namespaces that a manager serves, kept in its data directory to find those it has
left.

Used by `wiring.in_cluster`. A namespace that was left stays in the record until its TaskClusters
have been updated.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

_FILE = "namespaces.json"


class NamespaceRecord(msgspec.Struct, frozen=True):
    """The served namespaces (`only_in`, empty for all), and those whose clusters must still be
    updated (`left`).
    """

    only_in: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def record_served(data_dir: Path, only_in: Sequence[str]) -> NamespaceRecord:
    """Store the namespaces that are served from now on; return a record with all that were left."""
    before = _read(data_dir)
    candidates = {*before.only_in, *before.left} if only_in else set[str]()
    record = NamespaceRecord(tuple(only_in), tuple(sorted(candidates - set(only_in))))
    _write(data_dir, record)
    return record


def forget(data_dir: Path, namespace: str) -> None:
    """Remove a namespace that was left from the record: its clusters have been updated."""
    record = _read(data_dir)
    left = tuple(name for name in record.left if name != namespace)
    _write(data_dir, msgspec.structs.replace(record, left=left))


def _read(data_dir: Path) -> NamespaceRecord:
    try:
        return msgspec.json.decode((data_dir / _FILE).read_bytes(), type=NamespaceRecord)
    except (FileNotFoundError, msgspec.MsgspecError):
        return NamespaceRecord()


def _write(data_dir: Path, record: NamespaceRecord) -> None:
    temporary = data_dir / f"{_FILE}.new"
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.replace(data_dir / _FILE)
