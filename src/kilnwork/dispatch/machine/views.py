"""Views of facts that only memory knows: why a task waits, and clusters with their workers.

Does no I/O. Used by the hub, and by `task_ends` for the message of a task that has waited too long.
The store's reader returns the stored part of a view; this module adds the facts in memory.
"""

from collections.abc import Iterator

import msgspec

from kilnwork.api import reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import records
from kilnwork.kit import ids

_R = reasons.Reason
NAMED_HOLDERS = 3
"""Maximum number of tasks that a message names; more would not fit a line."""


def shown_reason(task: records.Task) -> tuple[str, str] | None:
    """Return reason and message of a task that waits now, or None if its stored row has them."""
    if task.ticket is not None:
        return explain(task)
    if task.waiting:
        return _R.WAITING_FOR_CHILD, "it waits for other tasks, and its slot is free for others"
    if task.observed is not None and task.held and task.intent is records.Intent.NONE:
        return task.observed.reason, task.observed.message
    if task.unmet and not task.suspended and not task.state.final:
        all_of_them = len(set(task.needs))
        return _R.WAITING_FOR_INPUT, f"{task.unmet} of its {all_of_them} inputs are not over yet"
    return None


def explain(task: records.Task) -> tuple[str, str]:
    """Return reason and message of a task that waits in the queue of its cluster."""
    cluster = task.cluster
    name = (cluster.base or cluster).key[1]
    if cluster.is_executor:
        return _explain_executor(task)
    eligible = list(cluster.eligible)
    ready = [worker for worker in eligible if worker.ready]
    ahead = cluster.queue.ahead(task, priority=task.spec.priority)
    line = f"; {ahead} wait before it" if ahead else ""
    again = f" ({task.message})" if task.reason == _R.TAKEN_BACK and task.message else ""
    if not eligible and cluster.portion is not None:
        text = f"no worker of TaskCluster {name} is on a node that holds portion {cluster.portion}"
        return _R.NO_WORKER, f"{text} of the data{line}{again}"
    if not ready and any(worker.connected for worker in eligible):
        text = f"the workers of TaskCluster {name} are to go, and get nothing new"
        return _R.NO_WORKER, f"{text}{line}{again}"
    if not ready:
        return _R.NO_WORKER, f"no worker of TaskCluster {name} is connected{line}{again}"
    slots = sum(worker.slots for worker in ready)
    if task.template is not None and all(worker.misses for worker in ready):
        return _R.NO_FREE_SLOT, f"no slot of TaskCluster {name} could be opened{line}{again}"
    holders = [holder for worker in ready for holder in _holders(worker)]
    named = ", ".join(_label(holder) for holder in holders[:NAMED_HOLDERS])
    more = ", …" if len(holders) > NAMED_HOLDERS else ""
    by = f" by {named}{more}" if named else ""
    taken = f"all {slots} slots of TaskCluster {name} are taken{by}"
    return _R.NO_FREE_SLOT, f"{taken}{line}{again}"


def _explain_executor(task: records.Task) -> tuple[str, str]:
    cluster = task.cluster
    executor = task.spec.executor
    ahead = cluster.queue.ahead(task, priority=task.spec.priority)
    line = f"; {ahead} wait before it" if ahead else ""
    external = task.spec.external
    capacity = sum(worker.slots for worker in cluster.eligible if worker.ready)
    if capacity:
        name = executor if external is None else external.executor
        return _R.NO_FREE_SLOT, f"executor {name} runs {capacity} attempts, its limit{line}"
    if executor not in api_task.OUTSIDE:
        return _R.EXECUTOR_UNAVAILABLE, f"this manager has no executor {executor}{line}"
    if external is not None:
        message = (
            f"no program claims tasks of executor {external.executor} in namespace"
            f" {task.namespace}{line}"
        )
        return _R.EXECUTOR_UNAVAILABLE, message
    labels = ",".join(f"{key}={value}" for key, value in cluster.required.items())
    which = f" with labels {labels}" if labels else ""
    start = f"kiln executor {executor}" + (f" --labels {labels}" if labels else "")
    message = f"no executor {executor}{which} is connected: start one with `{start}`{line}"
    return _R.EXECUTOR_UNAVAILABLE, message


def _holders(worker: records.Worker) -> Iterator[records.Task]:
    """Yield the tasks that occupy a worker: commands, and the current call of each occupied
    slot.
    """
    yield from worker.held.values()
    for slot in worker.processes.values():
        if slot.occupied:
            # The first one that does not wait runs; calls queued behind it occupy no slot.
            waiting = {wait.task for wait in slot.stack}
            yield from [task for task in slot.held.values() if task not in waiting][:1]


def _label(task: records.Task) -> str:
    return task.name or ids.task_text(task.id)


def with_current_facts(view: model.TaskView, record: records.Task | None) -> model.TaskView:
    """Return a stored view completed with facts that only memory knows, if memory has the same
    state.
    """
    # Memory may be ahead of the disk: facts of two different states would contradict each other.
    if record is None or record.run != view.run or record.state is not view.state:
        return view
    reason, message = view.reason, view.message
    shown = shown_reason(record)
    if shown is not None:
        reason, message = shown
    return msgspec.structs.replace(
        view,
        reason=reason,
        message=message,
        node=record.placed or view.node,
        progress=record.progress,
    )


def of_cluster(seen: records.Cluster) -> model.ClusterView:
    """Return a TaskCluster as the dispatcher sees it."""
    workers = tuple(
        model.WorkerView(
            name=worker.name,
            pod_uid=worker.pod_uid,
            node=worker.node,
            slots=worker.slots,
            busy=worker.busy,
            ready=worker.ready,
            holding=worker.holding,
            draining=worker.draining,
            connected=worker.connected,
        )
        for worker in seen.workers.values()
    )
    namespace, name = seen.key
    return model.ClusterView(
        namespace=namespace,
        cluster=name,
        workers=workers,
        queued=sum(len(one.queue) for one in seen.queues or (seen,)),
        draining=seen.draining,
    )
