"""Decided ticks of schedules in the journal, with the Job that each tick has created.

Used by `index_job_service`. The row of a JobConfig works as a lock (decision 39): a tick is decided
once, and only one Job is added for a tick, if the row says that the tick creates a Job. The
journal's writer checks the epoch of the leader in the same transaction. When ticks are due is
computed in `api.due_ticks`.
"""

from typing import Any, cast

import msgspec

from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import errors, index_job_types, row_storage
from kilnwork.kit import ids

MAX_TAKEN = 32
"""Number of ticks whose Jobs a row names. An older tick is forgotten, and no further Job is added
for it."""

_REMEDY = "make another Job to run it all the same"

_PUT = "put_job_schedule"
_DELETE = "delete_job_schedule"
_encode = msgspec.json.Encoder().encode


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a schedule: the fields of a row that are not columns."""

    fingerprint: str = ""
    pending: tuple[int, ...] = ()
    taken: dict[int, str] = {}
    refused: tuple[int, ...] = ()
    dropped: dict[str, int] = {}
    latest_dropped: int | None = None
    latest_reason: str = ""


_decode = msgspec.json.Decoder(_State, strict=False).decode
_STATE = _State.__struct_fields__


class Schedules:
    """Rows of schedules by uid of the JobConfig, including changes that are not on disk yet."""

    def __init__(self, kept: row_storage.Tables) -> None:
        self._tables = kept
        self._rows: dict[str, index_job_types.ScheduleRow | None] = {}

    def row(self, config: str) -> index_job_types.ScheduleRow | None:
        """Return the row of a JobConfig, or None if none of its ticks was decided yet."""
        if config not in self._rows:
            found = self._tables.find_schedule(ids.task_id(config))
            self._rows[config] = None if found is None else _row(config, found)
        return self._rows[config]

    def decide(self, new: index_job_types.TickDecision) -> index_job_types.ScheduleRow:
        """Apply a decision about ticks, and return the row to be written. Raises `TickDecided`."""
        known = self.row(new.config)
        if known is None:
            known = index_job_types.ScheduleRow(
                config=new.config, namespace=new.namespace, name=new.name, tick=-1
            )
        edit = new.fingerprint != known.fingerprint or bool(new.abandon)
        if new.tick < known.tick or (new.tick == known.tick and not edit):
            raise errors.TickDecided(
                f"tick {new.tick} of JobConfig {new.namespace}/{new.name}: tick {known.tick} was "
                "decided before; read its row again"
            )
        dropped = dict(known.dropped)
        for reason, count in new.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
        more = {}
        if new.latest_dropped is not None:
            more = {"latest_dropped": new.latest_dropped, "latest_reason": new.latest_reason}
        return self._keep(
            msgspec.structs.replace(
                known,
                tick=new.tick,
                fingerprint=new.fingerprint,
                pending=(
                    *(tick for tick in known.pending if tick not in new.abandon),
                    *sorted(new.run),
                ),
                refused=(*known.refused, *sorted(known.taken.keys() & set(new.abandon))),
                dropped=dropped,
                **more,
            )
        )

    def refusal(self, config: str, tick: int, uid: str) -> str:
        """Return the reason why the Job of a tick is refused; "" if it is not refused."""
        row = self.row(config)
        if row is not None and tick in row.pending:
            return ""
        taken = None if row is None else row.taken.get(tick)
        if taken == uid:
            return ""
        if taken is not None:
            return f"another Job of this tick has run already: {taken}; {_REMEDY}"
        return f"its schedule has not decided that this tick runs, or has forgotten it; {_REMEDY}"

    def take(self, config: str, tick: int, uid: str) -> index_job_types.ScheduleRow | None:
        """Record which Job a tick has created, and return the row to be written; None if that is
        recorded already.
        """
        row = self.row(config)
        if row is None or tick not in row.pending:
            return None
        newest = sorted((*row.taken, tick))[-MAX_TAKEN:]
        known = {**row.taken, tick: uid}
        taken = {one: known[one] for one in newest}
        return self._keep(
            msgspec.structs.replace(
                row,
                pending=tuple(one for one in row.pending if one != tick),
                taken=taken,
                refused=tuple(one for one in row.refused if one in taken),
            )
        )

    def forget(self, config: str) -> instructions.Writes:
        """Remove the row of a JobConfig that was deleted; return the statement to be written."""
        self._rows[config] = None
        return [(_DELETE, [(ids.task_id(config),)])]

    def _keep(self, row: index_job_types.ScheduleRow) -> index_job_types.ScheduleRow:
        self._rows[row.config] = row
        return row


def writes(row: index_job_types.ScheduleRow) -> instructions.Writes:
    """Return the statements that write a row."""
    state = _State(**{name: getattr(row, name) for name in _STATE})
    values = (ids.task_id(row.config), row.namespace, row.name, row.tick, _encode(state))
    return [(_PUT, [values])]


def _row(config: str, found: tuple[Any, ...]) -> index_job_types.ScheduleRow:
    namespace, name, tick, raw = found
    state = _decode(cast(bytes, raw))
    return index_job_types.ScheduleRow(
        config=config,
        namespace=namespace,
        name=name,
        tick=tick,
        **{field: getattr(state, field) for field in _STATE},
    )
