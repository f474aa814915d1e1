"""A new run of a spawned task that is over, because a person asks for it. Pure.

Used by the hub (`kiln retry`) and `machine`. What the task is comes from the journal, since memory
has let go of it. The new run keeps parent and driver's key for show and for who asks again; it is
no child of the parent's run any more, whose counts stay as they were.
"""

from collections.abc import Mapping

import msgspec

from kilnwork.api import calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import (
    admitting,
    errors,
    inputs,
    lifecycle,
    memory,
    model,
    records,
    task_rows,
)
from kilnwork.kit import ids


def refusal(row: task_rows.TaskRow | None, *, force: bool) -> str:
    """Why the newest run of a task is not to be followed by another; "" when it is."""
    if row is None:
        return "the journal does not know this task: it was never accepted, or is forgotten"
    if row.finished is None:
        return f"task {row.shown_name} is {row.state}, not over: cancel it first"
    if row.state == api_task.State.SUCCESS and not force:
        return f"task {row.shown_name} has succeeded: `kiln retry --force` runs it again"
    return ""


def of_row(row: task_rows.TaskRow, values: Mapping[ids.TaskId, calls.Value]) -> inputs.Rerun:
    """The run after that of `row`. `values`: how the tasks ended whose results it takes.

    Raises `RunRefused` when its spec cannot be read.
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
        parent=row.parent_ref,
        key=row.child_key if row.parent is None else None,
        source=row.source or b"",
    )


def rerun(mem: memory.Memory, item: inputs.Rerun, now: inputs.Moment) -> None:
    """It enters as a task does that is new. Raises `RunRefused` when it has entered already."""
    current = mem.tasks.get(item.task)
    if current is not None and not current.state.final:
        raise errors.RunRefused(f"run {current.run} of it has been started already")
    is_call = item.arguments is not None and item.spec.call is not None
    task = _call(mem, item) if is_call else _command(mem, item)
    task.run, task.parent = item.run, item.parent
    if item.key is not None:
        task.child_key = item.key
        mem.index_key(task)
    if is_call:
        task.created = task.pending_since = now.wall
        admitting.admit(mem, task, item.values, now)
    else:
        lifecycle.admit(mem, task, now)


def _call(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
    template = mem.template(item.namespace, item.spec)
    return records.Task(
        next(mem.task_rows),
        item.task,
        item.run,
        item.namespace,
        item.name or "",
        template.cluster,
        False,
        template.spec,
        template=template,
        arguments=item.arguments,
        needs=item.needs,
        source=item.source,
    )


def _command(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
    submission = model.Submission(
        task=item.task,
        namespace=item.namespace,
        name=item.name or ids.task_text(item.task),
        spec=item.spec,
        inputs=item.inputs,
        declared=False,
    )
    cluster = mem.cluster(item.namespace, item.spec.cluster_name)
    return records.of_submission(next(mem.task_rows), submission, cluster)
