"""Record of the namespaces that a manager serves, in its data directory.

Used by `wiring.in_cluster_server` to find the namespaces that it no longer serves. Such a namespace
stays in the record until its TaskClusters have been updated.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

_FILE = "namespaces.json"


class NamespaceRecord(msgspec.Struct, frozen=True):
    """The namespaces that a manager serves, and those that it no longer serves.

    `only_in`: the served namespaces, empty for all. `left`: namespaces that are no longer served,
    whose TaskClusters must still be updated.
    """

    only_in: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def record_served(data_dir: Path, only_in: Sequence[str]) -> NamespaceRecord:
    """Store the namespaces that are served from now on.

    Return a record with all namespaces that are no longer served.
    """
    before = _read(data_dir)
    candidates = {*before.only_in, *before.left} if only_in else set[str]()
    record = NamespaceRecord(tuple(only_in), tuple(sorted(candidates - set(only_in))))
    _write(data_dir, record)
    return record


def forget(data_dir: Path, namespace: str) -> None:
    """Remove a namespace that is no longer served from the record.

    Call it once the TaskClusters of the namespace have been updated.
    """
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
