"""The dispatcher as jobs need it, and the tasks that work on parts.

Used by the engine. A part is a spawned task: a call of `kilnwork.jobs.work` in a slot, with all
that it must know in its one argument. Its id follows from job and part, so that submitting it again
changes nothing; its run is that of the part.
"""

import hashlib
from collections.abc import Callable, Container, Iterable
from typing import Any, Protocol

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.data.stores import opening
from kilnwork.dispatch import model as task_model
from kilnwork.dispatch.hub import commits, subscriptions
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import model, records
from kilnwork.kit import ids

MAP = "kilnwork.jobs.work.part:run"
REDUCE = "kilnwork.jobs.work.reduce:run"


class TaskHub(Protocol):
    """What jobs need of the dispatcher (`dispatch.hub.hub.Hub`); see there."""

    @property
    def epoch(self) -> int: ...

    @property
    def refused(self) -> str | None: ...

    def follow(
        self, tasks: Container[ids.TaskId], tell: subscriptions.Tell
    ) -> Callable[[], None]: ...

    def participate(self, participant: commits.Participant) -> Callable[[], None]: ...

    def wake(self) -> None: ...

    async def write(self, writes: instructions.Writes) -> None: ...

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]: ...

    def submit_now(
        self, submissions: Iterable[task_model.Submission], *, new: bool = False
    ) -> list[subscriptions.Change]: ...

    def kill_now(self, tasks: Iterable[ids.TaskId], *, reason: str, message: str) -> None: ...

    def suspend_now(self, tasks: Iterable[ids.TaskId], *, suspended: bool) -> None: ...

    def unfinished(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]: ...

    def knows(self, task: ids.TaskId) -> bool: ...

    def states(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]: ...

    def view(self, task: ids.TaskId) -> task_model.TaskView | None: ...

    def cluster(self, namespace: str, name: str) -> task_model.ClusterView | None: ...


def task_id(job: bytes, part: int) -> ids.TaskId:
    """A UUIDv8 (RFC 9562 §5.8): the same for ever; 0: the reducer."""
    raw = bytearray(hashlib.sha256(job + part.to_bytes(4, "big")).digest()[:16])
    raw[6] = 0x80 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return ids.TaskId(bytes(raw))


class Submissions:
    """Makes them of parts. `url`: of the store, as workers open it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def submission(self, job: records.Job, part: int) -> task_model.Submission:
        """The task of a part; 0: the reducer."""
        spec = job.spec
        work = self._part(job, part) if part else self._reducer(job)
        mapper = spec.mapper if part else spec.reducer
        call = api_task.Call(
            function=MAP if part else REDUCE,
            args=(work,),
            environment=None if mapper is None else mapper.environment,
        )
        return task_model.Submission(
            task=task_id(job.id.uuid, part),
            namespace=job.namespace,
            name=f"{job.id.text}-{part}",
            spec=api_task.TaskSpec(
                cluster_name=spec.cluster_name,
                call=call,
                priority=spec.priority,
                retry=spec.retry.of_task,
                timeouts=spec.timeouts if part else api_task.Timeouts(),
                run=job.run_of(part),
            ),
            declared=False,
            source=job.id.uuid,
        )

    def _folder_url(self, folder: str) -> str:
        return opening.inside(self._url, *folder.split("/"))

    def _part(self, job: records.Job, part: int) -> filejobs.PartWork:
        spec, folder, name = job.spec, None, model.FOLDER_INPUT
        if job.source is not None:
            folder, _, name = job.source.rpartition("/")
        return filejobs.PartWork(
            store=self._folder_url(job.folder),
            job=job.id.text,
            input=name,
            format=spec.input,
            part=job.part(part),
            run=job.run_of(part),
            mapper=spec.mapper,
            bad_records=spec.bad_records,
            header=job.manifest.header,
            input_store=None if folder is None else self._folder_url(folder),
        )

    def _reducer(self, job: records.Job) -> filejobs.ReduceWork:
        return filejobs.ReduceWork(
            store=self._folder_url(job.folder),
            job=job.id.text,
            parts=tuple((n, job.run_of(n)) for n in range(1, job.size + 1)),
            run=job.run,
            reducer=job.spec.reducer,
            format=job.manifest.format,
        )
