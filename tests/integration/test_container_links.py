"""Attempts as containers between a worker and the executor: notifications of both, over a real
socket.

A real hub; the worker sends raw frames, the test is the executor.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub as hubs_hub
from kilnwork.dispatch.machine import instructions
from kilnwork.kit import ids
from support import hubs, raw_worker, waiting

ENVIRONMENT = (("KILN_RUN", "1"),)
OVER = attempts.Outcome(attempts.Ending.FAILED, "NonZeroExit", "exit code 3", 3, started=5.0)


class World:
    """A hub, a worker, and the instructions that the executor got."""

    def __init__(self, directory: Path, hub: hubs_hub.Hub) -> None:
        self.socket = hubs.socket_of(directory)
        self.hub = hub
        self.instructions: list[instructions.ForExecutor] = []
        self.worker = raw_worker.RawWorker(self.socket)

    async def attempt(self) -> attempts.AttemptRef:
        """Return an attempt of a new task, given to the worker."""
        spec = api_task.TaskSpec(command=("true",))
        task = model.Submission(task=ids.new_task_id(), namespace="ns", name="t", spec=spec)
        await self.hub.submit(task)
        return (await self.worker.expect(messages.Run)).ref

    async def hears(self, kind: type, count: int = 1) -> instructions.ForExecutor:
        def look() -> list[instructions.ForExecutor]:
            found = [one for one in self.instructions if isinstance(one, kind)]
            return found if len(found) == count else []

        return (await waiting.wait_until_async(look, what=f"{count} {kind.__name__}"))[-1]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with hubs.running(tmp_path) as hub:
        made = World(tmp_path, hub)
        hub.containers.join(made.instructions.append)
        async with made.worker:
            yield made


async def test_worker_is_notified_of_start_and_end(world: World) -> None:
    ref = await world.attempt()
    world.worker.say(messages.StartContainer(ref, ENVIRONMENT))
    reported = await world.hears(instructions.RunContainer)
    assert isinstance(reported, instructions.RunContainer)
    assert (reported.ref, reported.pod, reported.pod_uid) == (ref, "w-0", "uid-w-0")
    assert (reported.environment, reported.task.spec.command) == (ENVIRONMENT, ("true",))
    world.hub.containers.observed(ref, model.Observed("ImagePull", "no such image"))
    view = hubs.view(world.hub, ref.task)
    assert (view.state, view.reason, view.message) == ("Staging", "ImagePull", "no such image")
    world.hub.containers.started(ref, at=5.0, container="abc")
    seen = await world.worker.expect(messages.ContainerSeen)
    assert seen == messages.ContainerSeen(ref, "abc", 5.0, None)
    await world.hub.containers.finished(ref, OVER)
    assert (await world.worker.expect(messages.ContainerSeen)).outcome == OVER
    assert hubs.view(world.hub, ref.task).state == "Staging"  # the worker reports how it ended
    world.worker.finished(ref, OVER)
    await world.worker.wait_until_acknowledged(world.worker.serial)
    assert hubs.view(world.hub, ref.task).reason == "NonZeroExit"


async def test_worker_cannot_request_attempts_that_it_does_not_have(world: World) -> None:
    ref = await world.attempt()
    async with raw_worker.RawWorker(world.socket, name="w-1") as stranger:
        stranger.say(messages.StartContainer(ref, ENVIRONMENT))
        stranger.say(messages.StopContainer(ref, 1.0, "Killed"))
    world.worker.say(messages.StartContainer(attempts.AttemptRef(ref.task, 1, 2), ENVIRONMENT))
    world.worker.say(messages.StartContainer(ref, ENVIRONMENT))
    await world.hears(instructions.RunContainer)
    assert len(world.instructions) == 1


async def test_notifications_follow_the_newest_link(world: World) -> None:
    ref = await world.attempt()
    world.worker.say(messages.StartContainer(ref, ENVIRONMENT))
    await world.hears(instructions.RunContainer)
    await world.worker.disconnect()
    await world.hub.containers.finished(ref, OVER)  # no link is there to receive it
    world.worker.running = [ref]
    await world.worker.connect()
    world.worker.say(messages.StartContainer(ref, ENVIRONMENT))
    world.worker.say(messages.StopContainer(ref, 2.0, "Killed"))
    stop = await world.hears(instructions.StopAttempt)
    assert isinstance(stop, instructions.StopAttempt)
    assert (stop.grace_s, stop.reason) == (2.0, "Killed")
    await world.hub.containers.finished(ref, OVER)
    assert (await world.worker.expect(messages.ContainerSeen)).outcome == OVER


async def test_leftover_container_is_killed_by_the_worker_of_its_pod(world: World) -> None:
    ref = await world.attempt()
    assert not world.hub.containers.kill("uid-w-9", ref, "abc")
    assert world.hub.containers.kill("uid-w-0", ref, "abc")
    assert await world.worker.expect(messages.KillContainer) == messages.KillContainer(ref, "abc")
