"""Listing of a job's parts: states are read from the journal, and the records of ended parts from
the store.

Used by `file_job_service`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors, part_commits
from kilnwork.jobs import (
    file_item_source,
    file_job_types,
    item_states,
    live_job_state,
    row_storage,
    rows,
    task_hub,
)
from kilnwork.kit import ids

_S = item_states.ItemState
_P = file_job_types.PartState
_SHOWN = {_S.SUCCEEDED: _P.SUCCEEDED, _S.FAILED: _P.FAILED, _S.CANCELLED: _P.CANCELLED}


@lru_cache(maxsize=16)
def _manifest(encoded: bytes) -> filejobs.Manifest:
    """Decode a manifest. Cached, since a client that reads one page reads the next one too."""
    return msgspec.json.decode(encoded, type=filejobs.Manifest)


class PartListing:
    """List of the parts of one job in their current state. `live`: the job, if it is in memory."""

    def __init__(
        self,
        kept: row_storage.Tables,
        sources: file_item_source.FileSources,
        row: rows.JobRow,
        live: live_job_state.Job | None,
    ) -> None:
        self._sources, self._row, self._live = sources, row, live
        if live is not None and isinstance(live.source, file_item_source.FileItems):
            self.manifest = live.source.definition
            self._items, self._base_run = live.items, live.base_run
        else:
            self.manifest = _manifest(kept.load_definition(row.row))
            self._items, self._base_run = item_states.Items(row.items), row.base_run
            kept.load_items(row.row, self._items)
        self._job = file_job_types.JobId(row.uuid, row.id)

    async def parts(
        self, *, after: int, limit: int, state: file_job_types.PartState | None
    ) -> list[file_job_types.PartView]:
        """Return up to `limit` parts with numbers above `after`, in order. Raises `StoreError`.

        If the record of a part cannot be read, the part's view has only facts from the journal.
        """
        numbers: list[int] = []
        for number in range(max(after, 0) + 1, self._items.size + 1):
            if len(numbers) == limit:
                break
            if state is None or self._state(number) is state:
                numbers.append(number)
        views = [self._view(number) for number in numbers]
        found = await self._read(self._recorded(numbers))
        return [_complete(view, found.get(view.part.number)) for view in views]

    async def read_commits(self) -> list[filejobs.Commit]:
        """Return the commit records of all ended parts, in order.

        Raises `ObjectMissing` if the record of a succeeded part is missing, because the results
        would be incomplete.
        """
        wanted = list(self._recorded(range(1, self._items.size + 1)))
        succeeded = list(self._items.in_state(_S.SUCCEEDED))
        found = await self._read(wanted)
        for number in succeeded:
            if number not in found:
                place = part_commits.record_key(number, self._items.runs[number])
                raise errors.ObjectMissing(f"{place} of job {self._job.text} cannot be read")
        return list(found.values())

    def _recorded(self, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield number and run of each of these parts that has a commit record."""
        for number in numbers:
            run = self._items.runs[number]
            if run and self._items.states[number] in _SHOWN:
                yield number, run

    async def _read(self, wanted: Iterable[tuple[int, int]]) -> dict[int, filejobs.Commit]:
        known, missing = {}, []
        for number, run in wanted:
            known[number] = self._sources.find_commit(self._row.uuid, number, run)
            if known[number] is None:
                missing.append((number, run))
        if missing:
            read = self._sources.read_commits
            found = await asyncio.to_thread(read, self._row.namespace, self._job, missing)
            known.update(found)
        parts = self.manifest.parts
        return {
            number: file_item_source.check_commit(commit, parts[number - 1])
            for number, commit in known.items()
            if commit is not None
        }

    def _state(self, number: int) -> file_job_types.PartState:
        state = _S(self._items.states[number])
        if state in _SHOWN:
            return _SHOWN[state]
        if self._live is None:
            return _P.WAITING if self._row.finished is None else _P.CANCELLED
        task = self._live.tasks.get(number)
        if task is None:
            return _P.WAITING
        return _P.RUNNING if task.active else _P.QUEUED

    def _view(self, number: int) -> file_job_types.PartView:
        """Return the view of a part without the facts in its commit record."""
        task = None if self._live is None else self._live.tasks.get(number)
        return file_job_types.PartView(
            part=self.manifest.parts[number - 1],
            state=self._state(number),
            run=self._items.runs[number] or self._base_run,
            attempt=0 if task is None else task.attempt,
            worker="" if task is None else task.worker,
            message="" if task is None else task.message,
            started=None if task is None else task.started,
            finished=None,
            task=ids.task_text(task_hub.task_id(self._row.uuid, number)),
            commit=None,
        )


def _complete(
    view: file_job_types.PartView, commit: filejobs.Commit | None
) -> file_job_types.PartView:
    if commit is None:
        return view
    return msgspec.structs.replace(
        view,
        attempt=commit.attempt,
        worker=commit.worker,
        message=commit.message,
        started=commit.started,
        finished=commit.finished,
        commit=commit,
    )
