"""A call enters, and submitters hear of it: what `submissions` and `lookups` share. Pure."""

from collections.abc import Mapping

from kilnwork.api import calls
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import completion, dependencies, inputs, lifecycle, memory, records
from kilnwork.kit import ids

_S = api_task.State


def new(
    mem: memory.Memory,
    submitter: records.Submitter,
    template: records.Template,
    call: calls.CallItem,
    now: inputs.Moment,
) -> records.Task:
    """The task of a call; nothing knows it yet."""
    wall = now.wall
    return records.Task(
        next(mem.task_rows),
        call.task,
        1,
        submitter.namespace,
        call.name or "",
        template.cluster,
        False,
        template.spec,
        created=wall,
        pending_since=wall,
        template=template,
        arguments=call.arguments,
        needs=call.needs,
        submitter=submitter,
        number=call.number,
        source=submitter.source,
    )


def admit(
    mem: memory.Memory,
    task: records.Task,
    values: Mapping[ids.TaskId, calls.Value],
    now: inputs.Moment,
) -> None:
    """It is there: it waits for its turn, or for what it needs. `values`: how those have ended."""
    mem.tasks[task.id] = task
    mem.batch.dirty[task] = None
    template = task.template
    if template is not None and template.timed:
        lifecycle.watch_deadlines(mem, task, now)
    if task.needs:
        dependencies.attach(mem, task, values)
        dependencies.ready(mem, (task,), now)
    else:
        lifecycle.enqueue(mem, task)


def subscribe(
    mem: memory.Memory, task: records.Task, submitter: records.Submitter, number: int
) -> None:
    """This submitter gets the result of `task` under `number`, at once if it is over."""
    if task.namespace != submitter.namespace:
        report_unknown(mem, submitter, number)
    elif task.state.final:
        completion.report(mem, task, submitter, number)
    elif task.submitter is None or not task.submitter.link:
        task.submitter, task.number = submitter, number
    elif task.watchers is None:
        task.watchers = [(submitter, number)]
    else:
        task.watchers.append((submitter, number))


def tell(mem: memory.Memory, submitter: records.Submitter, result: calls.CallResult) -> None:
    """Push a result, once what it says is kept."""
    mem.batch.results.setdefault(submitter.link, []).append(result)


def report_unknown(mem: memory.Memory, submitter: records.Submitter, number: int) -> None:
    """Not final and no reason: so a submitter knows that there is no such task."""
    tell(mem, submitter, calls.CallResult(number, _S.PENDING, "", "there is no such task"))


def report_known(
    mem: memory.Memory, submitter: records.Submitter, number: int, known: calls.Value
) -> None:
    """Say how a task has ended that memory has let go of."""
    result = calls.CallResult(number, known.state, known.reason, known.message, known.payload)
    tell(mem, submitter, result)
