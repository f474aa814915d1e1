"""A manager process with an executor that kills itself at a given step: `python -m
support.executor_process`.

Arguments: `pod`, `object`, `workflow` or `http`; a directory; a kubeconfig, or for `http` the URL
of a server that runs scripts; the id of a task; and the name of the step at which the process gets
SIGKILL, or "" for none. Without one it prints the state of the task and the steps once the task has
finished and nothing is left. The program of the task ends when a file `gate` exists in the
directory.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from kilnwork.api import task as api_task
from kilnwork.kit import ids
from kilnwork.kube import client, config
from support import (
    executor_subjects,
    executor_world,
    object_subject,
    peer_subjects,
    waiting,
    workflow_subject,
)

KINDS: dict[str, Callable[[client.Client], executor_world.Subject]] = {
    "pod": executor_subjects.PodSubject,
    "object": object_subject.ObjectSubject,
    "workflow": workflow_subject.ScriptSubject,
}
LOSSES = 20
"""More than a manager has lives: one whose process is also the executor loses attempts."""


class FatalSteps(executor_world.Steps):
    """Steps of which the one with this name kills the process."""

    def __init__(self, last: str) -> None:
        super().__init__(None)
        self._fatal = last

    def count_step(self, name: str) -> bool:
        if name == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().count_step(name)


@contextlib.asynccontextmanager
async def subject(kind: str, directory: Path, where: str) -> AsyncIterator[executor_world.Subject]:
    """Start the executor under test."""
    if kind == "http":
        http = peer_subjects.HttpSubject(directory, where)
        yield http
        await http.die()
        return
    async with client.Client(config.load(Path(where)), user_agent="process") as admin:
        yield KINDS[kind](admin)


async def main(kind: str, directory: Path, where: str, *, task: ids.TaskId, last: str) -> None:
    """Run one life of the manager."""
    async with subject(kind, directory, where) as of:
        world = executor_world.World(directory, of)
        await world.start(steps=FatalSteps(last))
        await world.submit(
            f"until [ -e {directory}/gate ]; do sleep 0.05; done",
            task=task,
            retry=api_task.Retry(max_losses=LOSSES, delay_seconds=0.01),
        )
        await waiting.wait_until_async(lambda: world.view(task).state.final, what="it is over")
        await world.wait_until_clean()
        view = world.view(task)
        await world.end()
    print(view.state, view.attempt, view.losses, "|".join(world.steps.names))


if __name__ == "__main__":
    given = sys.argv
    asyncio.run(main(given[1], Path(given[2]), given[3], task=ids.task_id(given[4]), last=given[5]))
