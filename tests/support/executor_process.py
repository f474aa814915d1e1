"""`python -m support.executor_process`: a manager of executor `pod` that kills itself.

Arguments: a folder, a kubeconfig, a task's id, and the name of the step at which it gets SIGKILL,
or "" for none; then it prints the state of the task and the steps, when the task is over and
nothing is left. The program of the task ends when there is a file `gate` in the folder.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from kilnwork.kit import ids
from kilnwork.kube import client, config
from support import executor_subjects, executor_world, waiting


class FatalSteps(executor_world.Steps):
    """The process does not survive the step of this name."""

    def __init__(self, last: str) -> None:
        super().__init__(None)
        self._fatal = last

    def pass_by(self, name: str) -> bool:
        if name == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().pass_by(name)


async def main(folder: Path, kubeconfig: Path, task: ids.TaskId, last: str) -> None:
    """One life."""
    async with client.Client(config.load(kubeconfig), user_agent="process") as admin:
        world = executor_world.World(folder, executor_subjects.PodSubject(admin))
        await world.start(steps=FatalSteps(last))
        await world.submit(f"until [ -e {folder}/gate ]; do sleep 0.05; done", task=task)
        await waiting.wait_until_async(lambda: world.view(task).state.final, what="it is over")
        await world.nothing_is_left()
        view = world.view(task)
        await world.end()
    print(view.state, view.attempt, view.losses, "|".join(world.steps.names))


if __name__ == "__main__":
    given = sys.argv
    asyncio.run(main(Path(given[1]), Path(given[2]), ids.task_id(given[3]), given[4]))
