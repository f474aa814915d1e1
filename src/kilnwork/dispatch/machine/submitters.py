"""Drivers, slots and Pods of calls as submitters: they define templates, watch tasks and cancel
them.

Does no I/O. Used by `machine`, by `submissions`, which accepts the calls that they submit, and by
`in_process_executors`, for the Pods of calls. Slots attach in `slot_lifecycle`.
"""

from kilnwork.api import calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    end_notifications,
    inputs,
    instructions,
    memory,
    records,
    task_ends,
)

_S = api_task.State
_R = reasons.Reason

DEFAULT_CLUSTER = "default"
"""Name of the cluster where tasks of a driver run unless they name another."""

MAX_TEMPLATES = 65_536
"""Maximum number of templates of one link: several times as many as a driver needs, even if each of
its unconfirmed calls has a template of its own.
"""


def attach(mem: memory.Memory, item: inputs.Attach) -> None:
    """Let a driver attach to its session; an older link of the same session is closed."""
    for link, other in list(mem.submitters.items()):
        # The end of the old connection may be noticed after the new one is made.
        if other.session == item.session and other.slot is None:
            message = "the same session has connected again"
            mem.send(instructions.CloseLink(link, "replaced", message))
            detach(mem, link)
    mem.submitters[item.link] = records.Submitter(item.session, item.namespace, item.link)
    mem.send(instructions.AttachPeer(item.link, item.namespace, DEFAULT_CLUSTER))


def detach(mem: memory.Memory, link: int) -> None:
    """Handle the closed link of a driver or call process, whose tasks continue."""
    submitter = mem.submitters.pop(link, None)
    if submitter is not None:
        # Tasks still refer to this record, but report to it no more.
        submitter.link = 0
        mem.unconfirmed.pop(submitter, None)


def define(mem: memory.Memory, item: inputs.Define) -> None:
    """Store a template under the number that the link's submitter gave it.

    Closes the link if the template is invalid or one too many.
    """
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return
    if item.spec.call is None and item.spec.executor not in api_task.WITHOUT_PROGRAM:
        message = f"template {item.number} is of a task with a program, and has no call"
        mem.send(instructions.CloseLink(item.link, "template", message))
        return
    if len(submitter.templates) >= MAX_TEMPLATES:
        message = f"more than {MAX_TEMPLATES} templates: forget those that are not used"
        mem.send(instructions.CloseLink(item.link, "template", message))
        return
    submitter.templates[item.number] = mem.template(submitter.namespace, item.spec)


def undefine(mem: memory.Memory, item: inputs.Undefine) -> None:
    """Forget the templates of a link with these numbers; tasks keep their templates."""
    submitter = mem.submitters.get(item.link)
    if submitter is not None:
        for number in item.numbers:
            submitter.templates.pop(number, None)


def watch(mem: memory.Memory, item: inputs.WatchTasks) -> None:
    """Watch tasks for a submitter, which gets their results."""
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return
    for watched in item.items:
        task = mem.tasks.get(watched.task)
        known = item.values.get(watched.task)
        if task is not None:
            subscribe(mem, task, submitter, watched.number)
        elif known is not None:
            report_known(mem, submitter, watched.number, known)
        else:
            report_unknown(mem, submitter, watched.number)


def cancel(mem: memory.Memory, item: inputs.CancelTasks, now: inputs.Moment) -> None:
    """Kill tasks that a submitter cancels, if they are in its namespace."""
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return
    for name in item.tasks:
        task = mem.tasks.get(name)
        if task is None or task.namespace != submitter.namespace:
            continue
        if item.recursive:
            task_ends.kill(mem, task, now, reason=_R.KILLED, message="cancelled")
        else:
            task_ends.stop(
                mem, task, now,
                intent=records.Intent.KILL, reason=_R.KILLED, message="cancelled",
            )  # fmt: skip


def subscribe(
    mem: memory.Memory, task: records.Task, submitter: records.Submitter, number: int
) -> None:
    """Send the result of `task` to this submitter under `number`, now or when the task ends."""
    if task.namespace != submitter.namespace:
        report_unknown(mem, submitter, number)
    elif task.state.final:
        end_notifications.report(mem, task, submitter, number)
    # It replaces a submitter that is gone, most likely itself before it connected again.
    elif task.submitter is None or not task.submitter.link:
        task.submitter, task.number = submitter, number
    elif task.watchers is None:
        task.watchers = [(submitter, number)]
    else:
        task.watchers.append((submitter, number))


def report(mem: memory.Memory, submitter: records.Submitter, result: calls.CallResult) -> None:
    """Push a result to a submitter, once it is stored."""
    mem.batch.results.setdefault(submitter.link, []).append(result)


def report_unknown(mem: memory.Memory, submitter: records.Submitter, number: int) -> None:
    """Report to a submitter that there is no such task: a state that is not final, without a
    reason.
    """
    report(mem, submitter, calls.CallResult(number, _S.PENDING, "", "there is no such task"))


def report_known(
    mem: memory.Memory, submitter: records.Submitter, number: int, known: calls.Value
) -> None:
    """Send a submitter the outcome of a task that is no longer in memory."""
    result = calls.CallResult(number, known.state, known.reason, known.message, known.payload)
    report(mem, submitter, result)
