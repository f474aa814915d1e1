"""External executors on a real hub, journal and links, without an API server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import task as api_task
from kilnwork.channel import blocking_link
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.executors import external, service
from kilnwork.kit import clock, ids
from support import http_executors, waiting
from support import hubs as hub_support

NS = "default"


class World:
    """A hub, and executors that connect and disconnect."""

    def __init__(self, directory: Path, hub: hubs.Hub) -> None:
        self.directory, self.hub = directory, hub
        self.services: list[external.ExternalService] = []

    async def executor(
        self, call: external.Run, *, name: str = "mine", slots: int = 1, namespace: str = NS
    ) -> external.ExternalService:
        socket = str(hub_support.socket_of(self.directory))
        made = external.ExternalService(
            call,
            service.ExecutorSettings(
                queue=external.queue(name), name="e", slots=slots, namespace=namespace
            ),
            service.Manager(
                connect=lambda: blocking_link.unix(socket),
                credential=lambda: "secret",
                store=lambda namespace: http_executors.DirectoryStore(self.directory / "blobs"),
                place=socket,
            ),
            time=clock.SystemClock(),
            entropy=ids.system_entropy(),
            on_failure=lambda _: None,
        )
        self.services.append(made)
        await made.start(say=lambda _: None)
        return made

    async def die(self, executor: external.ExternalService) -> None:
        """Drop an executor as kill -9 does: without a message, with its connection closed."""
        self.services.remove(executor)
        await executor._background.stop()

    async def submit(self, payload: Any = None, **more: Any) -> ids.TaskId:
        task = ids.new_task_id()
        given = {"external": {"executor": "mine", "payload": payload}, **more}
        spec = msgspec.convert(given, api_task.TaskSpec)
        await self.hub.submit(
            model.Submission(task=task, namespace=NS, name=f"t-{task.hex()[-8:]}", spec=spec)
        )
        return task

    async def wait_for_state(
        self, task: ids.TaskId, state: str, reason: str = "", *, timeout_s: float = 30.0
    ) -> model.TaskView:
        def look() -> model.TaskView | None:
            view = hub_support.view(self.hub, task)
            assert not view.state.final or view.state == state, (view.state, view.message)
            return view if view.state == state and reason in ("", view.reason) else None

        found = await waiting.wait_until_async(look, what=f"{state} {reason}", timeout_s=timeout_s)
        assert found is not None
        return found


@contextlib.asynccontextmanager
async def running(directory: Path, **options: Any) -> AsyncIterator[World]:
    async with hub_support.running(directory, options=hubs.HubOptions(**options)) as hub:
        world = World(directory, hub)
        try:
            yield world
        finally:
            await asyncio.gather(*(one.stop(say=lambda _: None) for one in world.services))
