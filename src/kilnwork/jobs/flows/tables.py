"""The tables of flows in the journal: what is read of them, and what is written.

Used by `runs`. The statements are in `dispatch/journal/sqlite/sql/flows.sql`. What is gathered is
written in the batch of the jobs that it is about.
"""

import uuid as uuids
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from kilnwork.data import blobs as blob_store
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import tables
from kilnwork.jobs.flows import model, records

PAGE = 200
"""Rows read at once."""

_encode = msgspec.json.Encoder().encode
_decode_new = msgspec.json.Decoder(model.NewFlowRun).decode
_decode_state = msgspec.json.Decoder(records.RunState).decode
_decode_record = msgspec.json.Decoder(records.Record).decode


class FlowRow(NamedTuple):
    """A row of `flow_run`."""

    row: int
    uid: bytes
    generation: int
    definition: bytes
    state: bytes
    finished: float | None

    @property
    def key(self) -> model.FlowKey:
        """Return which run it is."""
        return model.FlowKey(str(uuids.UUID(bytes=self.uid)), self.generation)


class FlowTables:
    """Reads what is on disk. `blobs`: the directory of large values, by namespace."""

    def __init__(self, select: tables.Select, blobs: Path) -> None:
        self._select, self._blobs = select, blobs

    def next_row(self) -> int:
        """Return the number of the next run's row."""
        return int(self._select("next_flow_row")[0][0])

    def row(self, key: model.FlowKey) -> FlowRow | None:
        """Return the row of a run; None: there is none."""
        found = self._select("flow_run", uid_bytes(key.uid), key.generation)
        return FlowRow._make(found[0]) if found else None

    def rows(self, how: str) -> Iterator[FlowRow]:
        """Yield all runs, oldest first; `how`: `flow_runs`, `unfinished_flow_runs`."""
        above = 0
        while page := self._select(how, above, PAGE):
            for values in page:
                above = values[0]
                yield FlowRow._make(values)

    def new(self, row: FlowRow) -> model.NewFlowRun:
        """Return what a run was started with."""
        return _decode_new(row.definition)

    def load(self, row: FlowRow) -> records.Run:
        """Return a run as it is on disk. Raises MsgspecError, ValueError for one that cannot be
        read."""

        def read_value(key: str) -> bytes | None:
            for (value,) in self._select("flow_value", row.row, key):
                return None if value is None else bytes(value)
            return None

        state = _decode_state(row.state)
        run = records.Run(self.new(row), state, row=row.row, read_value=read_value)
        for (record,) in self._select("flow_steps", row.row):
            run.load(_decode_record(record))
        run.dirty = False
        return run

    def memo_keys(self, step: str) -> set[bytes]:
        """Return the keys of all results that are kept of a deterministic step."""
        return {bytes(key) for (key,) in self._select("flow_memo_keys", step)}

    def memo(self, key: bytes) -> bytes | None:
        """Return the result that is kept for a task of a deterministic step."""
        for (value,) in self._select("flow_memo", key):
            return bytes(value)
        return None

    def blob(self, namespace: str, digest: bytes) -> bytes:
        """Return a large value. Raises `BlobMissing`, `BlobDamaged`."""
        return bytes(blob_store.Blobs(self._blobs / namespace, durable=False).get(digest))


def uid_bytes(uid: str) -> bytes:
    """Return a UUID as the journal has it. Raises ValueError."""
    return uuids.UUID(uid).bytes


_ORDER = (
    "insert_flow_run",
    "update_flow_run",
    "update_flow_definition",
    "drop_flow_step",
    "put_flow_step",
    "put_flow_value",
    "put_flow_memo",
    "use_flow_memo",
    "delete_flow_memo",
    "delete_flow_steps",
    "delete_flow_run",
)
"""What is new goes before what changes it, and that before what deletes it; but a step that was
dropped may begin again."""


class FlowWrites:
    """Rows of one batch; of each run at most once."""

    def __init__(self) -> None:
        self._rows: dict[str, list[instructions.Row]] = {}

    def _add(self, name: str, *values: instructions.Value) -> None:
        self._rows.setdefault(name, []).append(values)

    def insert(self, run: records.Run) -> None:
        """Add a new run."""
        new, state = run.new, run.state
        uid = uid_bytes(new.uid)
        definition, encoded = _encode(new), _encode(state)
        self._add(
            "insert_flow_run", run.row, uid, new.generation, definition, encoded, state.finished
        )
        run.dirty = run.redefined = False

    def update(self, run: records.Run) -> None:
        """Add what has changed of a run."""
        if run.dirty:
            self._add("update_flow_run", _encode(run.state), run.state.finished, run.row)
        if run.redefined:
            self._add("update_flow_definition", _encode(run.new), run.row)
        for key in run.dropped:
            self._add("drop_flow_step", run.row, key)
        for key in run.changed:
            self._add("put_flow_step", run.row, key, _encode(run.records[key]))
        for key, value in run.changed_values.items():
            self._add("put_flow_value", run.row, key, value)
        run.dirty = run.redefined = False
        run.changed.clear()
        run.dropped.clear()

    def delete(self, run: records.Run) -> None:
        """Nothing of a run is left; results that only it and earlier ones have used neither."""
        self._add("delete_flow_memo", uid_bytes(run.new.uid), run.new.generation)
        self._add("delete_flow_steps", run.row)
        self._add("delete_flow_run", run.row)

    def memo(self, key: bytes, step: str, owner: model.FlowKey, value: bytes) -> None:
        """Keep the result of a task, for generations to come."""
        uid = uid_bytes(owner.uid)
        self._add("put_flow_memo", key, step, uid, owner.generation, value)

    def use_memo(self, key: bytes, owner: model.FlowKey) -> None:
        """A result that is kept is used by this generation too."""
        self._add("use_flow_memo", uid_bytes(owner.uid), owner.generation, key)

    def take(self) -> list[tuple[str, list[instructions.Row]]]:
        """Return all, in the order in which it is to be written."""
        rows, self._rows = self._rows, {}
        return [(name, rows[name]) for name in _ORDER if name in rows]
