"""Notifies the parent, the submitters and the dependents of a task of its end. No I/O.

Used by `task_ends`, `call_reports`, `submitters` and the modules that add children.
"""

from kilnwork.api import calls
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import memory, records, slot_occupancy

_SUCCESS = api_task.State.SUCCESS


def notify(mem: memory.Memory, task: records.Task) -> None:
    """Notify a task's parent, submitters and dependents of its end."""
    siblings = task.siblings
    if siblings is not None:
        if task.state is _SUCCESS:
            siblings.succeeded += 1
        else:
            siblings.failed += 1
        publish_parent(mem, siblings)
    # Passed on by `dependencies.settle`, not here: a chain of ends must not recurse.
    if task.dependents is not None:
        mem.ended.append(task)
    if mem.waits_by_task:
        slot_occupancy.reoccupy_waiting_slots(mem, task)
    submitter = task.submitter
    if submitter is not None and submitter.link:
        report(mem, task, submitter, task.number)
    for watcher, number in task.watchers or ():
        if watcher.link:
            report(mem, task, watcher, number)


def report(
    mem: memory.Memory, task: records.Task, submitter: records.Submitter, number: int
) -> None:
    """Send the outcome of a task to a submitter as soon as it is on disk.

    `number`: the number by which the submitter refers to the task.
    """
    result = calls.CallResult(number, task.state, task.reason, task.message, task.result)
    results = mem.batch.results.get(submitter.link)
    if results is None:
        mem.batch.results[submitter.link] = [result]
    else:
        results.append(result)


def publish_parent(mem: memory.Memory, family: records.Family) -> None:
    """Publish that the counts of a family changed, if its parent is a Task object.

    The status of a Task object shows these counts.
    """
    if family.declared:
        mem.batch.published.add(family.parent)
