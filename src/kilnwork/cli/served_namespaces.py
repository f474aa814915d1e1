"""Which namespaces a manager serves, remembered in its directory: which of them has it left?

Used by `wiring.in_cluster`. What was left stays in the list until its TaskClusters have been
updated.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

_FILE = "namespaces.json"


class Record(msgspec.Struct, frozen=True):
    """`only_in`: those that are served, empty: all. `left`: those whose clusters must be
    updated."""

    only_in: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def changed(data_dir: Path, only_in: Sequence[str]) -> Record:
    """Remember which are served from now on; gives what is left, of now and of before."""
    before = _read(data_dir)
    candidates = {*before.only_in, *before.left} if only_in else set[str]()
    record = Record(tuple(only_in), tuple(sorted(candidates - set(only_in))))
    _write(data_dir, record)
    return record


def forget(data_dir: Path, namespace: str) -> None:
    """Forget a namespace that was left: its clusters have been updated."""
    record = _read(data_dir)
    left = tuple(name for name in record.left if name != namespace)
    _write(data_dir, msgspec.structs.replace(record, left=left))


def _read(data_dir: Path) -> Record:
    try:
        return msgspec.json.decode((data_dir / _FILE).read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.MsgspecError):
        return Record()


def _write(data_dir: Path, record: Record) -> None:
    temporary = data_dir / f"{_FILE}.new"
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.replace(data_dir / _FILE)
