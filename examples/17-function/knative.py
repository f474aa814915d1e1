"""Plays Knative Serving: runs the one container of each Service here, as a process.

The controller tries to start it, writes the status of the Service as Knative would, and scales it
to zero. The activator, on a port for each Service, starts it when a request comes, and holds
requests until it listens.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
import yaml

SERVICES = "/apis/serving.knative.dev/v1/namespaces/default/services"
START_S = 60.0
KUBECONFIG = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
CLUSTER, USER = KUBECONFIG["clusters"][0]["cluster"], KUBECONFIG["users"][0]["user"]
AUTHORITY = base64.b64decode(CLUSTER["certificate-authority-data"]).decode()

Message = MutableMapping[str, Any]


class Revision:
    """The process of a Service, or none while no request needs it."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name, self.command = name, command
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._reserved = (
            socket.socket()
        )  # never listens: while it is bound, no other process gets it
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]

    async def start(self) -> None:
        """Start the process unless it runs, and wait until it listens. Raises OSError,
        TimeoutError.
        """
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                print(f"start of {self.name}", flush=True)
                environment = {**os.environ, "PORT": str(self.port)}
                self._process = await asyncio.create_subprocess_exec(*self.command, env=environment)
            async with asyncio.timeout(START_S):
                while not await self._listens():
                    if self._process.returncode is not None:
                        raise OSError(f"it ended with exit code {self._process.returncode}")
                    await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionError:
            return False
        writer.close()
        return True


class Activator(uvicorn.Server):
    """The proxy of one Service: an ASGI application that passes requests on."""

    def __init__(self, revision: Revision) -> None:
        super().__init__(
            uvicorn.Config(self.pass_on, interface="asgi3", lifespan="off", log_level="warning")
        )
        self.revision = revision
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: several servers run in this process, and `main` handles signals."""
        yield

    async def pass_on(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        try:
            await self.revision.start()  # a cold start, if there is no process
            status, kind, content = await self._exchange(scope, body)
        except TimeoutError:
            status, kind, content = 503, b"text/plain", b"no Pod in time"
        except (OSError, aiohttp.ClientError) as error:
            status, kind, content = 502, b"text/plain", str(error).encode()
        headers = [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _exchange(self, scope: Message, body: bytes) -> tuple[int, bytes, bytes]:
        target = f"{scope['path']}?{scope['query_string'].decode()}".rstrip("?")
        headers = [(name.decode(), value.decode()) for name, value in scope["headers"]]
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.revision.port}") as session,
            session.request(scope["method"], target, data=body, headers=headers) as response,
        ):
            kind = response.headers.get("Content-Type", "").encode()
            return response.status, kind, await response.read()


class Knative:
    """The controller, and the processes that it has started."""

    def __init__(self, api: aiohttp.ClientSession, tasks: asyncio.TaskGroup) -> None:
        self.api, self.tasks = api, tasks
        self.activators: dict[str, Activator] = {}

    async def reconcile(self, service: dict[str, Any]) -> None:
        """Try to start a new Service, and write its status."""
        name = service["metadata"]["name"]
        if name in self.activators:
            return
        revision = Revision(name, service["spec"]["template"]["spec"]["containers"][0]["command"])
        activator = self.activators[name] = Activator(revision)
        await self.say(service, "Unknown", "Deploying", f"{name} is being started")
        try:
            await revision.start()
        except (OSError, TimeoutError) as error:
            message = f'Revision "{name}-00001" failed with message: {error}'
            await self.say(service, "False", "RevisionFailed", message)
            return
        await revision.stop()
        self.tasks.create_task(activator.serve([activator.socket]))
        host, port = activator.socket.getsockname()
        await self.say(service, "True", "", "", url=f"http://{host}:{port}")

    async def say(
        self, service: dict[str, Any], state: str, reason: str, message: str, **more: str
    ) -> None:
        """Write conditions as Knative does: the configuration has the cause, and the route that it
        lacks one.
        """
        name, missing = service["metadata"]["name"], ""
        if state != "True":
            missing = f'Configuration "{name}" does not have any ready Revision.'
        said = {"ConfigurationsReady": (reason, message)}
        said |= dict.fromkeys(("RoutesReady", "Ready"), (missing and "RevisionMissing", missing))
        conditions = [
            {"type": type_, "status": state, "reason": why, "message": text}
            for type_, (why, text) in said.items()
        ]
        seen = service["metadata"]["generation"]
        status = {"observedGeneration": seen, "conditions": conditions, **more}
        headers = {"Content-Type": "application/merge-patch+json"}
        path = f"{SERVICES}/{name}/status"
        async with self.api.patch(path, json={"status": status}, headers=headers) as response:
            if response.status != 404:  # it is gone
                response.raise_for_status()

    async def run(self) -> None:
        """Follow Services until cancelled; then stop all processes."""
        try:
            while True:  # a server ends a watch now and then
                async with self.api.get(f"{SERVICES}?watch=1") as response:
                    async for line in response.content:
                        change = json.loads(line)
                        if change["type"] in ("ADDED", "MODIFIED"):
                            await self.reconcile(change["object"])
        finally:
            for activator in self.activators.values():
                await activator.revision.stop()


async def main() -> None:
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    async with (
        aiohttp.ClientSession(
            CLUSTER["server"],
            headers={"Authorization": f"Bearer {USER['token']}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=AUTHORITY)),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as api,
        asyncio.TaskGroup() as tasks,
    ):
        await Knative(api, tasks).run()


with contextlib.suppress(asyncio.CancelledError):
    asyncio.run(main())
