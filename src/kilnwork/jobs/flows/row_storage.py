"""Tables of flows in the journal: reads rows, and collects rows to be written.

Used by `flow_service`, `step_jobs` and `step_results`. The statements are in
`dispatch/journal/sqlite/sql/flows.sql`. The collected rows are written in the same batch as the
rows of the runs' jobs.
"""

import uuid as uuids
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from kilnwork.data import local_blobs as blob_store
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import row_storage
from kilnwork.jobs.flows import live_run_state, run_types

PAGE = 200
"""Number of rows read at once."""

_encode = msgspec.json.Encoder().encode
_decode_new = msgspec.json.Decoder(run_types.NewFlowRun).decode
_decode_state = msgspec.json.Decoder(live_run_state.RunState).decode
_decode_record = msgspec.json.Decoder(live_run_state.Record).decode


class FlowRow(NamedTuple):
    """A row of the table `flow_run`."""

    row: int
    uid: bytes
    generation: int
    definition: bytes
    state: bytes
    finished: float | None

    @property
    def key(self) -> run_types.FlowKey:
        """Key of the run."""
        return run_types.FlowKey(str(uuids.UUID(bytes=self.uid)), self.generation)


class FlowTables:
    """Reader of the tables of flows. `blobs`: the directory of large values, with a subdirectory
    per namespace.
    """

    def __init__(self, select: row_storage.Select, blobs: Path) -> None:
        self._select, self._blobs = select, blobs

    def next_row(self) -> int:
        """Return the row number for a new run."""
        return int(self._select("next_flow_row")[0][0])

    def find_row(self, key: run_types.FlowKey) -> FlowRow | None:
        """Return the row of a run, or None if there is no such run."""
        found = self._select("flow_run", uid_bytes(key.uid), key.generation)
        return FlowRow._make(found[0]) if found else None

    def iterate_rows(self, how: str) -> Iterator[FlowRow]:
        """Yield rows of runs, oldest first. `how`: `flow_runs` or `unfinished_flow_runs`."""
        above = 0
        while page := self._select(how, above, PAGE):
            for values in page:
                above = values[0]
                yield FlowRow._make(values)

    def load_definition(self, row: FlowRow) -> run_types.NewFlowRun:
        """Return the definition of a run."""
        return _decode_new(row.definition)

    def load_run(self, row: FlowRow) -> live_run_state.Run:
        """Return a run as stored on disk. Raises MsgspecError or ValueError if it cannot be
        read.
        """

        def read_value(key: str) -> bytes | None:
            for (value,) in self._select("flow_value", row.row, key):
                return None if value is None else bytes(value)
            return None

        state = _decode_state(row.state)
        run = live_run_state.Run(
            self.load_definition(row), state, row=row.row, read_value=read_value
        )
        for (record,) in self._select("flow_steps", row.row):
            run.load(_decode_record(record))
        run.dirty = False
        return run

    def memo_keys(self, step: str) -> set[bytes]:
        """Return the keys of all stored results of a deterministic step."""
        return {bytes(key) for (key,) in self._select("flow_memo_keys", step)}

    def find_memo(self, key: bytes) -> bytes | None:
        """Return the stored result with this key, of a task of a deterministic step, or None."""
        for (value,) in self._select("flow_memo", key):
            return bytes(value)
        return None

    def blob(self, namespace: str, digest: bytes) -> bytes:
        """Return the content of a blob. Raises `BlobMissing`, `BlobDamaged`."""
        return bytes(blob_store.Blobs(self._blobs / namespace, durable=False).get(digest))


def uid_bytes(uid: str) -> bytes:
    """Return the 16 bytes of a UUID, as stored in the journal. Raises ValueError."""
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
"""Order of the statements in a batch: a row is inserted before it is updated, and updated before it
is deleted. A step is deleted before it is inserted, since a deleted step may begin again."""


class FlowWrites:
    """Rows of flows to be written in one batch; each run is added at most once."""

    def __init__(self) -> None:
        self._rows: dict[str, list[instructions.Row]] = {}

    def _add(self, name: str, *values: instructions.Value) -> None:
        self._rows.setdefault(name, []).append(values)

    def insert(self, run: live_run_state.Run) -> None:
        """Add the rows of a new run."""
        new, state = run.new, run.state
        uid = uid_bytes(new.uid)
        definition, encoded = _encode(new), _encode(state)
        self._add(
            "insert_flow_run", run.row, uid, new.generation, definition, encoded, state.finished
        )
        run.dirty = run.redefined = False

    def update(self, run: live_run_state.Run) -> None:
        """Add the changes of a run."""
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
        run.changed_values.clear()
        run.dropped.clear()

    def delete(self, run: live_run_state.Run) -> None:
        """Delete all rows of a run, and stored results that only this and earlier generations have
        used.
        """
        self._add("delete_flow_memo", uid_bytes(run.new.uid), run.new.generation)
        self._add("delete_flow_steps", run.row)
        self._add("delete_flow_run", run.row)

    def put_memo(self, key: bytes, step: str, owner: run_types.FlowKey, value: bytes) -> None:
        """Store the result of a task for later generations."""
        uid = uid_bytes(owner.uid)
        self._add("put_flow_memo", key, step, uid, owner.generation, value)

    def use_memo(self, key: bytes, owner: run_types.FlowKey) -> None:
        """Record that this generation uses a stored result too."""
        self._add("use_flow_memo", uid_bytes(owner.uid), owner.generation, key)

    def take(self) -> list[tuple[str, list[instructions.Row]]]:
        """Return and clear the rows, in the order in which they are to be written."""
        rows, self._rows = self._rows, {}
        return [(name, rows[name]) for name in _ORDER if name in rows]
