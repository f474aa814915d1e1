"""Index jobs on a dispatcher that the test steps, with a real journal.

Used by tests of `jobs.index_job_service` that kill the process at each of its writes. Tasks outlive
the service; a started task succeeds, or fails if `broken` has it.
"""

import types
from pathlib import Path
from typing import Any

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import instructions
from kilnwork.kit import ids
from support import job_world

_S = api_task.State


class IndexDispatcher(job_world.Dispatcher):
    """Dispatcher of index jobs. `broken_names`: names of tasks that fail."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.broken_names: set[str] = set()

    def finish(self, entry: job_world.Entry) -> None:
        name = entry.submission.name
        self.ran.append(name)
        if name in self.broken_names:
            entry.failures += 1
            entry.state, entry.message = _S.FAILED, "broken"
        else:
            data = entry.submission.inputs or b"1"
            entry.result = attempts.Payload(attempts.JSON, data)
            entry.state = _S.SUCCESS
        self.tell(entry)

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        if name != "task_result":
            return super().select(name, *values)
        assert isinstance(values[0], bytes)
        found = self.tasks.get(ids.TaskId(values[0]))
        if found is None or found.state is not _S.SUCCESS or found.result is None:
            return []
        return [(found.result.media_type, found.result.data, None, None)]

    def view(self, task: ids.TaskId) -> Any:
        found = self.tasks.get(task)
        if found is None:
            return None
        return types.SimpleNamespace(
            state=found.state,
            run=found.run,
            attempt=found.attempt,
            worker="w-0",
            node="",
            placed="",
            reason="",
            message=found.message,
            created=0.0,
            started=None,
            finished=None,
            result=found.result,
        )


class IndexWorld(job_world.World):
    """Consecutive lives of the services in one directory."""

    def __init__(self, directory: Path, *, fuse: job_world.Fuse | None = None) -> None:
        super().__init__(directory, fuse=fuse)
        self.played = IndexDispatcher(directory)
        self.dispatcher = self.played
        self.dispatcher.fuse = self.fuse
