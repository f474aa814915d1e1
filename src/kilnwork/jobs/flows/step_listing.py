"""Listing of the step instances of a run and their shards, each in its current state.

Used by `flow_service` for lists, logs and `why`.
"""

import itertools
from collections.abc import Iterator

import msgspec

from kilnwork.jobs import engine as engines
from kilnwork.jobs import index_item_source, item_states, task_hub
from kilnwork.jobs import live_job_state as job_records
from kilnwork.jobs import row_storage as job_tables
from kilnwork.jobs.flows import live_run_state, run_types, step_inputs, step_item_source, step_jobs
from kilnwork.kit import ids

_S = run_types.InstanceState
_I = item_states.ItemState
_FINAL = {_I.SUCCEEDED: _S.SUCCEEDED, _I.FAILED: _S.FAILED, _I.CANCELLED: _S.KILLED}

_decode_work = msgspec.json.Decoder(step_inputs.StepWork).decode


class InstanceListing:
    """List of the step instances of one run, read in pages."""

    def __init__(
        self, run: live_run_state.Run, engine: engines.Engine, hub: task_hub.TaskHub
    ) -> None:
        self._run, self._engine, self._hub = run, engine, hub
        self._tables = job_tables.Tables(hub.select)

    def page(
        self, *, step: str, after: str, limit: int, state: run_types.InstanceState | None
    ) -> list[run_types.InstanceView]:
        """Return up to `limit` step instances after the key `after`, in the order in which they
        began.
        """
        found: Iterator[run_types.InstanceView] = self._iterate(step)
        if after:
            behind = itertools.dropwhile(lambda one: one.key != after, found)
            found = itertools.islice(behind, 1, None)
        chosen = (one for one in found if state is None or one.state is state)
        return list(itertools.islice(chosen, limit))

    def _iterate(self, step: str) -> Iterator[run_types.InstanceView]:
        for record in list(self._run.records.values()):
            if step and live_run_state.step_path(record.key) != step:
                continue
            if not record.job:
                yield _instance_view(record)
                continue
            uuid = step_jobs.job_uuid(self._run, record.key)
            live = self._engine.live.get(uuid)
            if live is not None and isinstance(live.source, step_item_source.StepItems):
                yield from self._shards(record, live.source.definition, live.items, live=live)
                continue
            row = self._tables.find_job("uuid", uuid)
            if row is None:
                yield _instance_view(record)
                continue
            states = item_states.Items(row.items)
            self._tables.load_items(row.row, states)
            work = _decode_work(self._tables.load_definition(row.row))
            yield from self._shards(record, work, states, live=None)

    def _shards(
        self,
        record: live_run_state.Record,
        work: step_inputs.StepWork,
        states: item_states.Items,
        *,
        live: job_records.Job | None,
    ) -> Iterator[run_types.InstanceView]:
        uuid = step_jobs.job_uuid(self._run, record.key)
        for number in range(work.size):
            yield self._shard(record, work, states, number=number, uuid=uuid, live=live)

    def _shard(
        self,
        record: live_run_state.Record,
        work: step_inputs.StepWork,
        states: item_states.Items,
        *,
        number: int,
        uuid: bytes,
        live: job_records.Job | None,
    ) -> run_types.InstanceView:
        item = number + 1
        task = task_hub.task_id(uuid, item)
        known = self._hub.view(task) if states.states[item] != _I.OPEN else None
        state = _FINAL.get(_I(states.states[item]))
        if state is None:
            at_work = live.tasks.get(item) if live is not None else None
            running = at_work is not None and at_work.state in index_item_source.AT_WORK
            state = _S.RUNNING if running else _S.WAITING
            if live is None:
                state = _S.KILLED  # open items of a job that has ended were cancelled
        reused = state is _S.SUCCEEDED and known is None and bool(work.memo)
        found = run_types.InstanceView(
            key=f"{record.key}[{number}]" if work.variable else record.key,
            step=live_run_state.step_path(record.key),
            state=state,
            task="" if reused else ids.task_text(task),
            task_name=step_item_source.task_name(work, number),
            reused=reused,
        )
        if known is None:
            return found
        return msgspec.structs.replace(
            found,
            reason=known.reason,
            message=known.message,
            started=known.started,
            finished=known.finished,
            run=known.run,
            attempt=known.attempt,
            worker=known.worker,
            node=known.node or known.placed,
        )


def _instance_view(record: live_run_state.Record) -> run_types.InstanceView:
    return run_types.InstanceView(
        key=record.key,
        step=live_run_state.step_path(record.key),
        state=record.state,
        reason=record.reason,
        message=record.message,
        started=record.started,
        finished=record.finished,
    )
