"""Views of what memory knows: tasks at this moment, clusters with their workers. Pure.

Used by the hub. What is on disk comes from the store's reader, and is completed here.
"""

import msgspec

from kilnwork.dispatch import model
from kilnwork.dispatch.machine import records, wait_reasons


def task(view: model.TaskView, record: records.Task | None) -> model.TaskView:
    """What is on disk, with the facts of the moment if memory has the same state."""
    if record is None or record.run != view.run or record.state is not view.state:
        return view
    reason, message = view.reason, view.message
    shown = wait_reasons.shown(record)
    if shown is not None:
        reason, message = shown
    return msgspec.structs.replace(view, reason=reason, message=message, progress=record.progress)


def cluster(seen: records.Cluster) -> model.ClusterView:
    """A TaskCluster as the dispatcher sees it."""
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
        )
        for worker in seen.workers.values()
    )
    namespace, name = seen.key
    return model.ClusterView(
        namespace=namespace,
        cluster=name,
        workers=workers,
        queued=len(seen.queue),
        draining=seen.draining,
    )
