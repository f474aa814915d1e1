"""Listing of Jobs and their indexes: finished work is read from the journal, running work from
memory.

Used by `index_job_service`.
"""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import attempts
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.dispatch import model as task_model
from kilnwork.jobs import (
    file_job_types,
    index_item_source,
    index_job_types,
    item_states,
    job_start_queue,
    live_job_state,
    row_storage,
    rows,
    task_hub,
)
from kilnwork.kit import ids

_S = item_states.ItemState
_I = index_job_types.IndexState
_FINAL = {_S.SUCCEEDED: _I.SUCCEEDED, _S.FAILED: _I.FAILED, _S.CANCELLED: _I.CANCELLED}
_T = api_task.State
_BEFORE_RUNNING = (api_job.Phase.STARTING, api_job.Phase.PENDING)
_TASK_STATES = {
    _T.PENDING: _I.QUEUED,
    _T.STAGING: _I.QUEUED,
    _T.RUNNING: _I.RUNNING,
    _T.KILLING: _I.RUNNING,
    _T.SUCCESS: _I.SUCCEEDED,
    _T.FAILED: _I.FAILED,
    _T.KILLED: _I.CANCELLED,
}
_View = file_job_types.GenericJobView[index_item_source.IndexSpec, index_item_source.IndexProgress]

FindTask = Callable[[ids.TaskId], task_model.TaskView | None]
"""Returns the newest run of a task, or None: `TaskHub.view`."""

_decode = msgspec.json.Decoder(index_item_source.IndexDefinition).decode


class IndexListing:
    """List of the indexes of one Job in their current state, read in pages. `live`: the Job, if it
    is in memory.
    """

    def __init__(
        self,
        kept: row_storage.Tables,
        hub: task_hub.TaskHub,
        row: rows.JobRow,
        live: live_job_state.Job | None,
    ) -> None:
        self._hub, self._row, self._live = hub, row, live
        if live is not None and isinstance(live.source, index_item_source.IndexItems):
            self._source = live.source
            self._items, self._base_run = live.items, live.base_run
        else:
            definition = _decode(kept.load_definition(row.row))
            self._source = index_item_source.IndexItems(
                definition, index_item_source.IndexProgress()
            )
            self._items, self._base_run = item_states.Items(row.items), row.base_run
            kept.load_items(row.row, self._items)

    def page(
        self, *, after: int, limit: int, state: index_job_types.IndexState | None
    ) -> list[index_job_types.IndexView]:
        """Return up to `limit` indexes with numbers above `after`, in order."""
        wanted = range(max(after, -1) + 2, self._items.size + 1)
        found = (item for item in wanted if state is None or self._state(item) is state)
        return [self._view(item) for item in itertools.islice(found, limit)]

    def _state(self, item: int) -> index_job_types.IndexState:
        state = _S(self._items.states[item])
        if state in _FINAL:
            return _FINAL[state]
        if self._live is None:
            return _I.WAITING if self._row.finished is None else _I.CANCELLED
        task = self._live.tasks.get(item)
        if task is None:
            return _I.WAITING
        return _I.RUNNING if task.state in index_item_source.AT_WORK else _I.QUEUED

    def _view(self, item: int) -> index_job_types.IndexView:
        run = self._items.runs[item] or self._base_run
        task = task_hub.task_id(self._row.uuid, item)
        known = self._hub.view(task) if self._items.states[item] != _S.OPEN else None
        state, label = self._state(item), self._source.label(item)
        name = index_item_source.task_name(self._source.definition.name, item)
        return index_view(item, known, task=task, state=state, label=label, name=name, run=run)


def index_view(
    item: int, known: task_model.TaskView | None, *, task: ids.TaskId, **given: Any
) -> index_job_types.IndexView:
    """Return the view of one index. `known`: the index's task as in the journal, or None if it is
    not there; `task`: id of the task; `given`: the other fields of the view."""
    more: dict[str, Any] = {}
    if known is not None:
        more = {
            "attempt": known.attempt,
            "worker": known.worker,
            "node": known.node or known.placed,
            "reason": known.reason,
            "message": known.message,
            "created": known.created,
            "started": known.started,
            "finished": known.finished,
            "result": known.result,
        }
    return index_job_types.IndexView(number=item - 1, task=ids.task_text(task), **given, **more)


def index_counts(view: _View) -> index_job_types.IndexCounts:
    """Return the counts of a Job's indexes by state, and of their tasks and retries."""
    detail: index_item_source.IndexDetail = view.detail
    return index_job_types.IndexCounts(
        total=view.parts.total,
        succeeded=view.parts.succeeded,
        failed=view.parts.failed,
        cancelled=view.parts.cancelled,
        running=detail.running,
        created=detail.created,
        retries=detail.retries,
    )


def explain_phase(
    view: _View,
    waiting: job_start_queue.Hold | None,
    *,
    live: live_job_state.Job | None,
    find: FindTask,
) -> tuple[str, str]:
    """Return reason and message for a Job's phase. `live`: the Job, if it is in memory."""
    if waiting is not None:
        return waiting.reason, waiting.message
    if live is not None and view.detail.phase in _BEFORE_RUNNING and not view.spec.suspend:
        return _explain_task(live, find) or (view.reason, view.message)
    return view.reason, view.message


def _explain_task(job: live_job_state.Job, find: FindTask) -> tuple[str, str] | None:
    """Return reason and message of why the Job's first task waits.

    Return None if it waits for a slot: the view says that already, without numbers that change.
    """
    item = next((n for n, task in job.tasks.items() if n and task.ended is None), None)
    known = None if item is None else find(task_hub.task_id(job.id.uuid, item))
    if item is None or known is None or not known.reason:
        return None
    if known.state is _T.PENDING and not api_task.is_executor_queue(known.cluster):
        return None
    return known.reason, known.message if job.size == 1 else f"index {item - 1}: {known.message}"


def job_result(view: _View, find: FindTask) -> attempts.Payload | None:
    """Return the result of a Job's finalizer, or of its only task; None if there is neither, or no
    result."""
    if view.spec.finalizer or view.parts.total == 1:
        known = find(task_hub.task_id(view.uuid, 0 if view.spec.finalizer else 1))
        return None if known is None else known.result
    return None


def shown_indexes(view: _View, find: FindTask) -> tuple[index_job_types.IndexView, ...]:
    """Return the indexes that are part of a Job's view, without labels and results. Indexes without
    a task are left out.
    """
    detail: index_item_source.IndexDetail = view.detail
    found = []
    for item in detail.shown:
        task = task_hub.task_id(view.uuid, item)
        known = find(task)
        if known is not None:
            name, state = (
                index_item_source.task_name(view.spec.name, item),
                _TASK_STATES[known.state],
            )
            shown = index_view(
                item, known, task=task, state=state, label="", name=name, run=known.run
            )
            found.append(msgspec.structs.replace(shown, result=None))
    return tuple(found)
