"""Restores memory from rows of the journal: after a start, and for a new run of a task.

Does no I/O but through the readers that it is given. Used by the hub and `retry_selection`. After a
start, queued tasks wait again. Running tasks are held by workers that are not connected yet, whose
leases get one full term from the end of the restore. None of that counts against a task's budgets.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors
from kilnwork.dispatch.journal import port, task_rows
from kilnwork.dispatch.machine import (
    dependencies,
    families,
    inputs,
    memory,
    records,
    retries,
    task_ends,
    task_starts,
    transition_table,
    workers,
)
from kilnwork.kit import ids

log = logging.getLogger(__name__)

_S = api_task.State
_R = reasons.Reason
_INTENTS: dict[str, records.Intent] = {
    _R.TIMED_OUT: records.Intent.TIMEOUT,
    _R.PENDING_TIMED_OUT: records.Intent.PENDING_TIMEOUT,
    _R.TOTAL_TIMED_OUT: records.Intent.TOTAL_TIMEOUT,
    _R.DEADLOCK: records.Intent.DEADLOCK,
    _R.CLUSTER_DELETED: records.Intent.CLUSTER,
}

Values = Callable[[str | None, Iterable[ids.TaskId]], Mapping[ids.TaskId, calls.Value]]
"""See `port.Reader.values`."""


def restore(mem: memory.Memory, saved: port.Saved, values: Values, now: inputs.Moment) -> None:
    """Fill an empty memory with the stored templates and unfinished runs.

    Call `expect_workers` afterwards.
    """
    # Families and templates first: tasks refer to them.
    sizes = _families(saved)
    templates = _templates(mem, saved)
    loaded: list[tuple[records.Task, task_rows.TaskRow]] = []
    broken: list[records.Task] = []
    for row in saved.unfinished():
        template = templates.get(row.template or 0)
        spec = _spec(row) if template is None else template.spec
        task = _task(mem, row, spec, template)
        own = sizes.get((task.id, task.run))
        if own is not None:
            task.family = own
        parent_ref = row.parent_ref
        if parent_ref is not None and row.child_key is not None:
            # `families` covers every parent that has an unfinished child.
            siblings = sizes[parent_ref.task, parent_ref.run]
            families.adopt(siblings, task, parent_ref, child_key=row.child_key)
        mem.index_key(task)
        # A worker that has an unreadable task may still report its end.
        if spec is None and not task.held:
            broken.append(task)
        else:
            loaded.append((task, row))
    # After all tasks, which may need one another; before any of them ends, since ends are passed on
    # to tasks that need them.
    dependencies.restore(mem, values(None, dependencies.missing(mem)))
    for task in broken:
        _fail_unreadable(mem, task, now)
    for task, row in loaded:
        _resume(mem, task, row, now)


def _families(saved: port.Saved) -> dict[tuple[ids.TaskId, int], records.Family]:
    sizes: dict[tuple[ids.TaskId, int], records.Family] = {}
    for parent, run, declared, state, number in saved.families():
        family = sizes.setdefault((parent, run), records.Family(parent, run, declared=declared))
        _count(family, state, number)
    return sizes


def _templates(mem: memory.Memory, saved: port.Saved) -> dict[int, records.Template]:
    """Return the readable templates by number; a task with an unreadable template is unreadable."""
    found = {}
    for row, namespace, encoded in saved.templates():
        try:
            spec = task_rows.decode_spec(encoded)
        # Another version wrote it; the tasks of other templates start nevertheless.
        except msgspec.MsgspecError as error:
            extra = {"template": row, "error": str(error)}
            log.warning("a template of the journal cannot be read", extra=extra)
            continue
        found[row] = mem.restore_template(row, namespace, spec)
    return found


def _fail_unreadable(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Fail a task whose spec cannot be read."""
    message = "the journal has its spec in a form that this kilnwork cannot read"
    if task.state is _S.KILLING:
        task_ends.finish(mem, task, now, state=_S.KILLED, reason=_R.KILLED, message=message)
    else:
        task_ends.finish(mem, task, now, state=_S.FAILED, reason=_R.INVALID_SPEC, message=message)


def _count(family: records.Family, state: str, number: int) -> None:
    # Children in any state: those that have ended are not in memory.
    family.total += number
    if state == _S.SUCCESS.value:
        family.succeeded += number
    elif api_task.State(state).final:
        family.failed += number


def _task(
    mem: memory.Memory,
    row: task_rows.TaskRow,
    spec: api_task.TaskSpec | None,
    template: records.Template | None,
) -> records.Task:
    attempt_state = row.attempt_state
    task = records.Task(
        row.row,
        row.task,
        row.run,
        row.namespace,
        row.shown_name if template is None else row.name or "",
        mem.cluster(row.namespace, row.cluster),
        bool(row.declared),
        # Stands for a spec that cannot be read, so that the report of a worker finds a record.
        spec or api_task.TaskSpec(cluster_name=row.cluster, run=row.run),
        inputs=row.inputs,
        state=api_task.State(row.state),
        attempt_state=None
        if attempt_state is None
        else transition_table.AttemptState(attempt_state),
    )
    # It has a row: without this line its next change would be written and counted as a new task.
    task.stored = task.state
    task_rows.restore(task, row)
    task.usage = row.usage
    task.template = template
    # A Task object that is a call has its spec on its own row, and shares only the template.
    if template is None:
        mem.prepare(task)
    mem.tasks[task.id] = task
    if task.declared:
        task.cluster.declared.add(task)
    return task


def _spec(row: task_rows.TaskRow) -> api_task.TaskSpec | None:
    try:
        return row.decoded_spec()
    except msgspec.MsgspecError as error:
        log.warning(
            "a task of the journal cannot be read",
            extra={"task": ids.task_text(row.task), "error": str(error)},
        )
        return None


def _resume(
    mem: memory.Memory, task: records.Task, row: task_rows.TaskRow, now: inputs.Moment
) -> None:
    task_starts.watch_deadlines(mem, task, now)
    if task.held:
        _hold(mem, task, row, now)
        return
    # Otherwise the next update of the row would remove the worker from it.
    if row.worker is not None:  # the worker ran the newest attempt, which is over
        task.worker = mem.workers.get(row.session or b"") or _worker(mem, row)
    if task.delegate is not None:
        return  # it waits for the task whose outcome becomes its own
    if row.due > now.wall:
        task.due = row.due
        # A longer delay means that the clock was set back.
        longest = retries.longest_delay_s(task.spec.retry)
        delay = min(row.due - now.wall, longest)
        mem.set_timer(now.mono + delay, memory.Timer.RETRY, task, attempt=task.attempt)
    else:
        dependencies.ready(mem, (task,), now)


def _hold(
    mem: memory.Memory, task: records.Task, row: task_rows.TaskRow, now: inputs.Moment
) -> None:
    """Let the task be held by its worker, which is not connected yet."""
    session = row.session or b""
    worker = mem.workers.get(session)
    if worker is None:
        # A record for a session that may come back; `workers.join` finds it.
        worker = _worker(mem, row)
        worker.from_before = True
        mem.workers[session] = worker
        worker.cluster.workers[session] = worker
    task.worker = worker
    workers.expect(worker, task)
    task_starts.watch_running(mem, task, now)
    # The intent is not stored, but follows from state and reason.
    if task.state is _S.KILLING:
        task.intent = records.Intent.KILL
    else:
        task.intent = _INTENTS.get(task.reason, records.Intent.NONE)


def expect_workers(mem: memory.Memory, now: inputs.Moment) -> None:
    """Give each restored worker a full lease to reconnect, and each attempt that is being stopped
    its time to end.

    `now`: the time after `restore`, which may take longer than a lease: no worker could renew
    meanwhile.
    """
    for worker in mem.workers.values():
        held = (*worker.held.values(), *worker.unclaimed.values())
        # Executors of the manager hold no lease: they join again as soon as the manager is up.
        if not worker.cluster.is_executor or any(
            task.spec.executor in api_task.OUTSIDE for task in held
        ):
            # An earlier dispatcher may have granted longer leases than this one does.
            worker.lease_until = now.mono + mem.longest_lease_s
            workers.watch_lease(mem, worker)
        for task in held:
            if task.intent is not records.Intent.NONE:
                # This sets the timers; the message follows when the worker has joined.
                task_ends.send_stop(mem, task, now)


def _worker(mem: memory.Memory, row: task_rows.TaskRow) -> records.Worker:
    """Return the record of the worker that has, or had, the newest attempt."""
    cluster = mem.cluster(row.namespace, row.cluster)
    return records.Worker(
        cluster.base or cluster,
        row.session or b"",
        row=row.worker or 0,
        name=row.worker_name or "",
        pod_uid=row.pod_uid or "",
        node=row.node or "",
    )


def rerun_refusal(row: task_rows.TaskRow | None, *, force: bool) -> str:
    """Return why a task cannot have another run now, or "".

    `row`: the newest run of the task; None: the task is unknown.
    """
    if row is None:
        return "the journal does not know this task: it was never accepted, or is forgotten"
    if not api_task.State(row.state).final:
        if row.run > 1:
            return f"task {row.shown_name} is running again already, as run {row.run}"
        return f"task {row.shown_name} is {row.state}, not over: cancel it first"
    if row.state == api_task.State.SUCCESS and not force:
        return f"task {row.shown_name} has succeeded: `kiln retry --force` runs it again"
    return ""


def failed_refusal(row: task_rows.TaskRow | None) -> str:
    """Return why no failed task can be run again from this task, or "".

    `row`: the newest run of the task; None: the task is unknown.
    """
    refusal = rerun_refusal(row, force=True)
    if row is None or refusal:
        return refusal
    if row.state == api_task.State.SUCCESS:
        return f"task {row.shown_name} has succeeded: nothing of it failed that could run again"
    return ""


def rerun(
    row: task_rows.TaskRow,
    values: Mapping[ids.TaskId, calls.Value],
    *,
    earlier: inputs.Earlier | None = None,
    family: attempts.AttemptRef | None = None,
) -> inputs.Rerun:
    """Return the input for the run that follows the run of `row`.

    `values`: the outcomes of the tasks whose results the run takes. `earlier`: the children that
    the run continues with. `family`: the attempt whose child the new run is; None: the new run
    joins no family. Raises `RunRefused` when its spec cannot be read.
    """
    try:
        spec = row.decoded_spec()
    except msgspec.MsgspecError as error:
        raise errors.RunRefused(
            f"task {row.shown_name} was written by another version of kilnwork: {error}"
        ) from error
    return inputs.Rerun(
        task=row.task,
        run=row.run + 1,
        namespace=row.namespace,
        name=row.name,
        spec=spec,
        inputs=row.inputs,
        arguments=row.argument_payload,
        needs=row.needed,
        values=values,
        parent=family or row.parent_ref,
        # Outside a family, the key of a child would be taken for one that a driver chose.
        key=row.child_key if row.parent is None or family else None,
        source=row.source or b"",
        digest=row.digest,
        earlier=earlier,
        of_family=family is not None,
    )
