"""HTTP executors on a real hub and journal, without an API server.

Blobs go to a directory, Secrets come from a dict.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib import parse

import msgspec

from kilnwork.api import task as api_task
from kilnwork.channel import blocking_link
from kilnwork.data import local_blobs
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.executors import service as executors_service
from kilnwork.executors.http import knative_services, service
from kilnwork.kit import clock, egress, ids
from kilnwork.kube import errors as kube_errors
from support import hubs as hub_support
from support import waiting

NS = "default"
LOCAL = egress.Policy(allowed=(egress.parse_allowance("127.0.0.0/8"),))


class DirectoryStore:
    """A `service.BlobStore` in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, digest: bytes, file: Path) -> None:
        with local_blobs.Blobs(self.directory, durable=False).writer() as new:
            new.write(file.read_bytes())
            assert new.commit()[0] == digest

    def close(self) -> None:
        pass


class EmptyReader:
    """A `service.ApiReader` without any Secret or Service."""

    async def secret(self, namespace: str, name: str) -> Mapping[str, Any]:
        raise kube_errors.NotFound(404, f"secrets {name} not found")

    async def url(self, namespace: str, name: str, waits: knative_services.Waits) -> str:
        raise kube_errors.NotFound(404, f"services {name} not found")


def spec(url: str, **more: Any) -> api_task.TaskSpec:
    """Return the spec of a task that requests a URL.

    `more`: fields of `spec.http` and of its request, in JSON; `spec`: fields of the spec;
    `function`: makes it a task of `spec.function`.
    """
    fields, kind = more.pop("spec", {}), "http"
    if more.pop("function", False) or "service" in more:
        kind, parts = "function", parse.urlsplit(url)
        more.setdefault("service", f"port-{parts.port}")
        url = url[len(f"{parts.scheme}://{parts.netloc}") :] if parts.netloc else url
    request = {"method": "GET", "url": url, **more.pop("request", {})}
    return msgspec.convert({kind: {"request": request, **more}, **fields}, api_task.TaskSpec)


def executor(
    directory: Path,
    settings: service.HttpExecutorSettings,
    reader: service.ApiReader,
    *,
    on_failure: Callable[[str], None],
) -> service.HttpService:
    """Return an executor, not started, that connects to the hub of that directory
    (`support.hubs`).
    """
    socket = str(hub_support.socket_of(directory))
    return service.HttpService(
        settings,
        executors_service.Manager(
            connect=lambda: blocking_link.unix(socket),
            credential=lambda: "secret",
            store=lambda namespace: DirectoryStore(directory / "blobs" / namespace),
            place=socket,
        ),
        reader,
        time=clock.SystemClock(),
        entropy=ids.system_entropy(),
        on_failure=on_failure,
    )


class World:
    """A hub, and executors that connect and disconnect."""

    def __init__(self, directory: Path, hub: hubs.Hub) -> None:
        self.directory = directory
        self.hub = hub
        self.secrets: dict[str, Mapping[str, Any]] = {}
        self.functions: knative_services.Services | None = None
        """Where functions are; None: a Service is called after its port on this machine."""
        self.failures: list[str] = []
        self.services: list[service.HttpService] = []

    async def secret(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a Secret, as `secret_values.SecretReader`."""
        if name not in self.secrets:
            raise kube_errors.NotFound(404, f"secrets {name} not found")
        return self.secrets[name]

    async def url(self, namespace: str, name: str, waits: knative_services.Waits) -> str:
        """Return the URL of a Service, as `knative_services.Services`."""
        if self.functions is None:
            return f"http://127.0.0.1:{name.removeprefix('port-')}"
        return await self.functions.url(namespace, name, waits)

    async def executor(
        self,
        name: str = "e",
        *,
        slots: int = 10,
        labels: Mapping[str, str] | None = None,
        policy: egress.Policy = LOCAL,
    ) -> service.HttpService:
        settings = service.HttpExecutorSettings(
            name=name, slots=slots, labels=labels or {}, policy=policy
        )
        made = executor(self.directory, settings, self, on_failure=self.failures.append)
        self.services.append(made)
        await made.start(say=lambda _: None)
        return made

    async def restart_hub(self, **options: Any) -> None:
        """Replace the manager; executors connect to the new one."""
        await self.hub.stop()
        self.hub = hub_support.make(self.directory, options=hubs.HubOptions(**options))
        await self.hub.start(hub_support.socket_of(self.directory))

    async def die(self, executor: service.HttpService) -> None:
        """Drop an executor as kill -9 does: without a message, with its connection closed."""
        self.services.remove(executor)
        await executor._background.stop()
        await executor._sessions.close()

    async def stop(self, executor: service.HttpService) -> None:
        self.services.remove(executor)
        await executor.stop(say=lambda _: None)

    async def submit(self, url: str, **more: Any) -> ids.TaskId:
        task = ids.new_task_id()
        inputs = more.pop("inputs", None)
        submission = model.Submission(
            task=task,
            namespace=NS,
            name=f"t-{task.hex()[-8:]}",
            spec=spec(url, **more),
            inputs=inputs,
        )
        await self.hub.submit(submission)
        return task

    def view(self, task: ids.TaskId) -> model.TaskView:
        return hub_support.view(self.hub, task)

    async def wait_for_state(
        self, task: ids.TaskId, state: str, reason: str = "", *, timeout_s: float = 30.0
    ) -> model.TaskView:
        """Wait until a task is in that state, for that reason."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            view = self.view(task)
            if view.state == state and reason in ("", view.reason):
                return view
            over = asyncio.get_running_loop().time() > deadline
            if over or (view.state.final and state != "Killed"):
                raise AssertionError(
                    f"wanted {state}/{reason}, is {view.state}/{view.reason}: {view.message}"
                )
            await asyncio.sleep(0.01)

    async def runs(self, url: str, **more: Any) -> model.TaskView:
        """Submit a task and wait for its end."""
        task = await self.submit(url, **more)
        return await self.ends(task)

    async def ends(self, task: ids.TaskId) -> model.TaskView:
        def look() -> model.TaskView | None:
            view = self.view(task)
            return view if view.state.final else None

        found = await waiting.wait_until_async(look, what="the task is over")
        assert found is not None
        return found

    async def kill(self, task: ids.TaskId) -> None:
        await self.hub.kill(task, reason="Killed")

    def log(self, view: model.TaskView) -> dict[str, Any]:
        """Return the HAR log of the newest attempt."""
        path = self.hub.log_file(view.task, run=view.run, attempt=view.attempt)
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes())["log"]
        return found

    def result(self, view: model.TaskView) -> Any:
        assert view.result is not None
        return msgspec.json.decode(view.result.data)


@contextlib.asynccontextmanager
async def running(directory: Path, **options: Any) -> AsyncIterator[World]:
    async with hub_support.running(directory, options=hubs.HubOptions(**options)) as hub:
        world = World(directory, hub)
        try:
            yield world
        finally:
            await asyncio.gather(*(world.stop(one) for one in list(world.services)))
            if world.hub is not hub:
                await world.hub.stop()
