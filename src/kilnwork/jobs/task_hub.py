"""Task hub: the interface of the dispatcher for jobs, and construction of the tasks that work on
items.

Used by the engine, the services and the listings. The task of an item is a spawned task. Its id is
derived from job and item, so that submitting it again has no effect; its run is that of the item.
"""

import hashlib
from collections.abc import Callable, Container, Iterable
from typing import Any, Protocol

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model as task_model
from kilnwork.dispatch.hub import commits, subscriptions
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import item_source, live_job_state
from kilnwork.kit import ids


class TaskHub(Protocol):
    """Interface of the dispatcher for jobs; documented at `dispatch.hub.commit_participation`."""

    @property
    def epoch(self) -> int: ...

    @property
    def refused(self) -> str | None: ...

    def follow(
        self, tasks: Container[ids.TaskId], on_changes: subscriptions.OnChanges
    ) -> Callable[[], None]: ...

    def participate(self, participant: commits.Participant) -> Callable[[], None]: ...

    def wake(self) -> None: ...

    async def write(self, writes: instructions.Writes) -> None: ...

    def write_next(self, writes: instructions.Writes) -> None: ...

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]: ...

    def submit_now(
        self,
        submissions: Iterable[task_model.Submission],
        *,
        new: bool = False,
        shown: bool = False,
    ) -> list[subscriptions.Change]: ...

    def kill_now(self, tasks: Iterable[ids.TaskId], *, reason: str, message: str) -> None: ...

    def suspend_now(self, tasks: Iterable[ids.TaskId], *, suspended: bool) -> None: ...

    def forget_now(
        self, runs: Iterable[tuple[ids.TaskId, int]], *, childless: bool = False
    ) -> None: ...

    def unfinished(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]: ...

    def knows(self, task: ids.TaskId) -> bool: ...

    def states(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]: ...

    def view(self, task: ids.TaskId) -> task_model.TaskView | None: ...

    def result(self, task: ids.TaskId) -> attempts.Payload | None: ...

    def cluster(self, namespace: str, name: str) -> task_model.ClusterView | None: ...


_UUID8 = 0x8 << 76 | 0b10 << 62
"""Version and variant of a UUIDv8; all other bits are free."""
_FREE_BITS = (1 << 128) - 1 - (0xF << 76 | 0b11 << 62)
_VERSION_BYTE = 6
_FREE_FROM = 12
"""Offset of the last four bytes of an id, which have no fixed bits and room for the number of any
item."""


def task_id(job: bytes, item: int) -> ids.TaskId:
    """Return the id of an item's task, a UUIDv8 (RFC 9562 §5.8) that never changes. Item 0 stands
    for the finalizer.

    Only jobs of flows have a UUID that is a UUIDv8 itself (`extra_id`). The ids of their tasks are
    consecutive, hence adjacent in the journal's index, so that fewer of the index's pages are
    written.
    """
    if job[_VERSION_BYTE] >> 4 == 8:
        last = (int.from_bytes(job[_FREE_FROM:], "big") + item) & 0xFFFF_FFFF
        return ids.TaskId(job[:_FREE_FROM] + last.to_bytes(4, "big"))
    return _stable(job + item.to_bytes(4, "big"))


def extra_id(job: bytes, key: str) -> ids.TaskId:
    """Return the id of a task that does not work on an item, made like `task_id`."""
    return _stable(job + key.encode())


def _stable(what: bytes) -> ids.TaskId:
    number = int.from_bytes(hashlib.sha256(what).digest()[:16], "big")
    return ids.TaskId((number & _FREE_BITS | _UUID8).to_bytes(16, "big"))


def extra_submission(job: live_job_state.Job, task: item_source.ExtraTask) -> task_model.Submission:
    """Return the submission of a task that does not work on an item."""
    return task_model.Submission(
        task=extra_id(job.id.uuid, task.key),
        namespace=job.namespace,
        name=task.name,
        spec=task.spec,
        inputs=task.inputs,
        declared=False,
        source=job.id.uuid,
    )


def refused(job: live_job_state.Job, item: int, why: str) -> subscriptions.Change:
    """Return the change of a task that failed because no task can be made for its item."""
    task, run = task_id(job.id.uuid, item), job.run_of(item)
    failed = api_task.State.FAILED
    return subscriptions.Change(task, run, failed, "TaskUnusable", why, 0, 1, 0, "", None, False)


def submission(job: live_job_state.Job, item: int, task: ids.TaskId) -> task_model.Submission:
    """Return the submission of an item's task; item 0 stands for the finalizer."""
    work = job.source.work(job, item)
    return task_model.Submission(
        task=task,
        namespace=job.namespace,
        name=job.source.task_name(job, item),
        spec=work.spec,
        inputs=work.inputs,
        arguments=work.arguments,
        declared=False,
        source=job.id.uuid,
    )
