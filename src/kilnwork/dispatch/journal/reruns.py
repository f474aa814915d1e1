"""The request for a new run, made from the journal's row of the run before. Pure.

Used by the hub (`kiln retry`); the machine takes it in (`machine.submissions`).
"""

from collections.abc import Mapping

import msgspec

from kilnwork.api import calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import inputs
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
