"""Why a queued task waits for a slot, in words. Pure.

Used by the hub when it makes a view: facts of the moment, never written to the journal.
"""

from kilnwork.api import reasons
from kilnwork.dispatch import records
from kilnwork.kit import ids

_R = reasons.Reason
NAMED_HOLDERS = 3
"""Tasks that a message names; more would not fit a line."""


def explain(task: records.Task) -> tuple[str, str]:
    """Reason and message of a task that waits in the queue of its cluster."""
    cluster = task.cluster
    name = cluster.key[1]
    ready = [worker for worker in cluster.workers.values() if worker.ready]
    ahead = cluster.queue.ahead(task, priority=task.spec.priority)
    line = f"; {ahead} wait before it" if ahead else ""
    again = f" ({task.message})" if task.reason == _R.TAKEN_BACK and task.message else ""
    if not ready:
        return _R.NO_WORKER, f"no worker of TaskCluster {name} is connected{line}{again}"
    slots = sum(worker.slots for worker in ready)
    holders = [held for worker in ready for held in worker.held.values()]
    named = ", ".join(_label(holder) for holder in holders[:NAMED_HOLDERS])
    more = ", …" if len(holders) > NAMED_HOLDERS else ""
    by = f" by {named}{more}" if named else ""
    taken = f"all {slots} slots of TaskCluster {name} are taken{by}"
    return _R.NO_FREE_SLOT, f"{taken}{line}{again}"


def _label(task: records.Task) -> str:
    return task.name or ids.task_text(task.id)
