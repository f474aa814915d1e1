"""Subjects of the executor contract that are not part of the manager: `external`, `http`,
`function`.

Each is a separate process and a peer of the dispatcher; here it is a service in the test that
outlives the manager. An order starts an attempt and ends it; an attempt has no name that another
client could take. Orders received and reports sent are the steps.
"""

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import task as api_task
from kilnwork.channel import blocking_link, messages, worker_side
from kilnwork.dispatch.hub import hub as hubs
from kilnwork.executors import attempt_base, external, port, service
from kilnwork.executors.http import attempt as http_attempt
from kilnwork.executors.http import service as http_service
from kilnwork.kit import clock, ids
from support import executor_world, http_executors, http_test_server, waiting

GRACE_S = 1.0
"""Between SIGTERM and SIGKILL of a program."""

_STEPS = {messages.Run: "run", messages.Stop: "stop"}


class Programs:
    """Scripts that run as processes."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.subprocess.Process] = {}

    async def run(self, script: str, identity: tuple[str, str, str]) -> int:
        """Run a script and return its exit code. Cancelling this kills the script."""
        names = ("KILN_TASK_ID", "KILN_RUN", "KILN_ATTEMPT")
        variables = dict(zip(names, identity, strict=True), PATH=os.environ["PATH"])
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", script, env=variables, start_new_session=True
        )
        name = "-".join(identity)
        self.running[name] = process
        try:
            return await process.wait()
        finally:
            await self._end(process)
            del self.running[name]

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), GRACE_S)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


class SteppingLink:
    """The link of an attempt, whose reports are steps."""

    def __init__(self, link: attempt_base.Link, home: "PeerSubject") -> None:
        self._link, self._home = link, home
        self.send = link.send

    def report(self, make: Callable[[int], messages.Started | messages.Finished]) -> None:
        what = type(make(0)).__name__.lower()
        self._home.steps.count_step(f"before {what}")
        self._link.report(make)
        self._home.steps.count_step(f"after {what}")

    async def store(self, make: Callable[[int], messages.Started | messages.Finished]) -> None:
        self._home.steps.count_step("before started")
        await self._link.store(make)
        self._home.steps.count_step("after started")


class Stepping(service.ExecutorService):
    """A service whose orders are steps."""

    home: "PeerSubject"

    def received(self, order: worker_side.Order) -> None:
        what = _STEPS.get(type(order))
        if what is not None:
            self.home.steps.count_step(f"before {what}")
        super().received(order)
        if what is not None:
            self.home.steps.count_step(f"after {what}")


class SteppingExternal(Stepping, external.ExternalService):
    """A user's program whose attempts report in steps."""

    def make(self, run: messages.Run) -> external.ExternalAttempt:
        made = super().make(run)
        made._link = SteppingLink(made._link, self.home)
        return made


class SteppingHttp(Stepping, http_service.HttpService):
    """A `kiln executor http` whose attempts report in steps."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._own = self._tools

    def make(self, run: messages.Run) -> http_attempt.HttpAttempt:
        self._tools = dataclasses.replace(self._own, link=SteppingLink(self.link, self.home))
        return super().make(run)


class PeerSubject(executor_world.Subject):
    """Base of these subjects. `remove` kills the process as by SIGKILL and starts another."""

    creates, deletes, releases = "run", "stop", ""
    waits = ("Pending", "ExecutorUnavailable", "")
    unheard = ("Running", "Started")
    knows_programs = False
    options = hubs.HubOptions(lease_s=3.0, renew_s=0.3)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.programs = Programs()
        self.steps = executor_world.Steps(None)
        self._absent = False
        self._socket: socket.socket | None = None
        self._service: service.ExecutorService | None = None

    def life(self, steps: executor_world.Steps) -> executor_world.Life:
        self.steps = steps
        return executor_world.Life(None)

    async def joined(self, hub: hubs.Hub) -> None:
        await super().joined(hub)
        if self._service is None:
            self._service = made = self.make(self._manager())
            made.home = self
            await made.start(say=_ignore)

    def make(self, manager: service.Manager) -> Stepping:
        """Return a process of this executor."""
        raise NotImplementedError

    async def die(self) -> None:
        """End the process without a message."""
        if self._service is not None:
            gone, self._service = self._service, None
            await gone._background.stop()

    async def objects(self) -> list[str]:
        return sorted(self.programs.running)

    async def held(self) -> list[str]:
        return []

    async def remove(self, name: str, *, by_force: bool) -> None:
        await self.die()
        if self.hub is not None:
            await self.joined(self.hub)

    async def occupy(self, attempt: port.Attempt) -> str:
        raise NotImplementedError("an attempt has no name that could be taken")

    async def is_unchanged(self, name: str) -> bool:
        raise NotImplementedError("an attempt has no name that could be taken")

    async def absent(self, *, now: bool) -> None:
        self._absent = now
        if now and self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            await waiting.wait_until_async(lambda: not self._is_ready(), what="the link is gone")

    def _is_ready(self) -> bool:
        """Return whether the dispatcher would give it a task."""
        if self.hub is None or self._service is None:
            return False
        settings = self._service._settings
        view = self.hub.cluster(settings.namespace, settings.queue)
        return view is not None and any(one.ready for one in view.workers)

    def _connect(self) -> socket.socket:
        if self._absent:
            raise ConnectionRefusedError("made unavailable by the test")
        self._socket = made = blocking_link.unix(str(self.directory / executor_world.SOCKET))
        return made

    def _manager(self) -> service.Manager:
        blobs = http_executors.DirectoryStore(self.directory / "blobs")
        return service.Manager(
            connect=self._connect,
            credential=lambda: "secret",
            store=lambda namespace: blobs,
            place="the test",
        )


class ExternalSubject(PeerSubject):
    """A program with `kilnwork.executor` that runs the script in the payload."""

    failed = "Raised"

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        given = {"external": {"executor": "mine", "payload": {"script": script}}}
        return msgspec.structs.replace(msgspec.convert(given, api_task.TaskSpec), **more)

    def make(self, manager: service.Manager) -> Stepping:
        settings = service.ExecutorSettings(
            queue=external.queue("mine"), name="e", slots=4, namespace=executor_world.NS
        )
        return SteppingExternal(
            self._run,
            settings,
            manager,
            time=clock.SystemClock(),
            entropy=ids.system_entropy(),
            on_failure=_ignore,
        )

    async def _run(self, task: external.ClaimedTask) -> None:
        identity = (task.id, str(task.run), str(task.attempt))
        code = await self.programs.run(task.payload["script"], identity)
        if code:
            raise external.Failed(f"exit code {code}")


class Ports(http_executors.EmptyReader):
    """Resolves each Service to the port of its name on this machine."""

    async def url(self, namespace: str, name: str, waits: Any) -> str:
        return f"http://127.0.0.1:{name.removeprefix('port-')}"


class HttpSubject(PeerSubject):
    """`kiln executor http`, and a server that runs the script in the request (`serve_scripts`)
    until it has ended or the connection is closed. With `function` the server is a Knative Service.
    """

    failed = "ResponseRejected"
    too_large_reason = "ResponseTooLarge"
    function = False

    def __init__(self, directory: Path, base: str) -> None:
        super().__init__(directory)
        self._base = base

    def spec(self, script: str, **more: Any) -> api_task.TaskSpec:
        names = {"X-Task": "id", "X-Run": "run", "X-Attempt": "attempt"}
        headers = [{"name": name, "value": f"${{task.{it}}}"} for name, it in names.items()]
        request = {
            "method": "POST",
            "headers": headers,
            "postData": {"mimeType": "text/plain", "text": script},
        }
        made = http_executors.spec(
            f"{self._base}/run", request=request, function=self.function, idempotent=True
        )
        return msgspec.structs.replace(made, **more)

    def too_large(self, script: str, **more: Any) -> api_task.TaskSpec:
        made = self.spec(script, **more)
        given = made.http or made.function
        assert given is not None
        smaller = msgspec.structs.replace(given.response, max_bytes=1)
        changed = msgspec.structs.replace(given, response=smaller)
        kind = "http" if made.http else "function"
        return msgspec.structs.replace(made, **{kind: changed})

    def make(self, manager: service.Manager) -> Stepping:
        return SteppingHttp(
            http_service.HttpExecutorSettings(name="e", slots=4, policy=http_executors.LOCAL),
            manager,
            Ports(),
            time=clock.SystemClock(),
            entropy=ids.system_entropy(),
            on_failure=_ignore,
        )

    async def die(self) -> None:
        gone = self._service
        await super().die()
        if isinstance(gone, http_service.HttpService):
            await gone._sessions.close()


class FunctionSubject(HttpSubject):
    """The same with a function instead of a URL."""

    function = True


def serve_scripts(site: http_test_server.HttpServer, programs: Programs) -> None:
    """Run the body of each request for `/run` as a script."""

    async def run(
        site: http_test_server.HttpServer,
        request: http_test_server.Request,
        writer: asyncio.StreamWriter,
    ) -> None:
        task, number, attempt = (
            str(request.header(name)) for name in ("X-Task", "X-Run", "X-Attempt")
        )
        code = await programs.run(request.body.decode(), (task, number, attempt))
        status = "500 Internal Server Error" if code else "200 OK"
        writer.write(http_test_server.response(b"{}", status=status))

    site.routes["/run"] = run


def _ignore(text: str) -> None:
    """Drop messages for users."""


@contextlib.asynccontextmanager
async def on_external(directory: Path) -> AsyncIterator[ExternalSubject]:
    """Run executor `external`."""
    made = ExternalSubject(directory)
    try:
        yield made
    finally:
        await made.die()


@contextlib.asynccontextmanager
async def on_http(
    directory: Path, subject: type[HttpSubject] = HttpSubject
) -> AsyncIterator[HttpSubject]:
    """Run executor `http`."""
    async with http_test_server.running() as site:
        made = subject(directory, site.base)
        serve_scripts(site, made.programs)
        try:
            yield made
        finally:
            await made.die()


@contextlib.asynccontextmanager
async def on_functions(directory: Path) -> AsyncIterator[HttpSubject]:
    """Run executor `function`."""
    async with on_http(directory, FunctionSubject) as made:
        yield made
