"""Pages of parts: what the tables have of those that are over, and memory of the others.

Used by the service.
"""

from collections.abc import Iterator
from functools import lru_cache

from kilnwork.api import filejobs
from kilnwork.jobs import model, records, rows, tables, task_hub
from kilnwork.kit import ids

_S = records.State
_P = model.PartState
_SHOWN = {_S.SUCCEEDED: _P.SUCCEEDED, _S.FAILED: _P.FAILED, _S.CANCELLED: _P.CANCELLED}


@lru_cache(maxsize=16)
def manifest(encoded: bytes) -> filejobs.Manifest:
    """Somebody who reads one page reads the next one too."""
    return rows.decode_manifest(encoded)


class Parts:
    """The parts of one job. `live`: the job, if it is in memory."""

    def __init__(self, kept: tables.Tables, row: rows.JobRow, live: records.Job | None) -> None:
        self._tables, self._row, self._live = kept, row, live

    def parts(
        self, *, after: int, limit: int, state: model.PartState | None
    ) -> list[model.PartView]:
        """Numbers above `after`, in order."""
        numbers = []
        for number in self._numbers(after, state):
            numbers.append(number)
            if len(numbers) == limit:
                break
        if not numbers:
            return []
        if self._live is not None:
            parts = self._live.manifest.parts
        else:
            parts = manifest(self._tables.manifest(self._row.row)).parts
        known = {
            one.part: one for one in self._tables.parts(self._row.row, numbers[0], numbers[-1])
        }
        return [self._view(parts[number - 1], known.get(number)) for number in numbers]

    def _numbers(self, after: int, state: model.PartState | None) -> Iterator[int]:
        every = range(max(after, 0) + 1, self._row.parts + 1)
        if state is None:
            yield from every
            return
        closed = {}
        if self._live is None:
            closed = {part: code for part, _, code in self._tables.states(self._row.row)}
        for number in every:
            if self._state(number, closed.get(number, 0)) is state:
                yield number

    def _state(self, number: int, code: int) -> model.PartState:
        """`code`: of the tables, for a job that is not in memory."""
        live = self._live
        if live is not None:
            code = live.states[number]
        if code in _SHOWN:
            return _SHOWN[_S(code)]
        if live is None:
            return _P.WAITING if self._row.finished is None else _P.CANCELLED
        seat = live.seats.get(number)
        if seat is None:
            return _P.WAITING
        return _P.RUNNING if seat.active else _P.QUEUED

    def _view(self, part: filejobs.Part, known: rows.PartRow | None) -> model.PartView:
        number, live = part.number, self._live
        seat = None if live is None else live.seats.get(number)
        commit = None if known is None else known.commit
        run = self._row.base_run if known is None else known.run
        if live is not None:
            run = live.run_of(number)
            commit = live.dirty_parts.get(number, commit)
        attempt, worker, message, started = 0, "", "", None
        if commit is not None and commit.run == run:
            attempt, worker, message = commit.attempt, commit.worker, commit.message
            started = commit.started
        elif seat is not None:
            attempt, worker, message = seat.attempt, seat.worker, seat.message
            started = seat.started
        return model.PartView(
            part=part,
            state=self._state(number, 0 if known is None else known.state),
            run=run,
            attempt=attempt,
            worker=worker,
            message=message,
            started=started,
            finished=None if commit is None else commit.finished,
            task=ids.task_text(task_hub.task_id(self._row.uuid, number)),
            commit=commit,
        )
