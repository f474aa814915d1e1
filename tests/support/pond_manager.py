"""The pond part of a manager, over HTTP in the test's loop, with agents as processes."""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from kilnwork.api import data_pond, pond_messages
from kilnwork.controllers.data_pond import ledger, model, tls_certificate
from kilnwork.kit import asgi, clock, serving
from kilnwork.server import errors, pond_exchange

NAMESPACE, POND, TOKEN = "quant", "lake", "token-of-the-pond"
PATIENCE_S = 60.0


class _Verifier:
    async def verify(self, namespace: str, pond: str, credential: str) -> bool:
        return (namespace, pond, credential) == (NAMESPACE, POND, TOKEN)


class JobFiles:
    """Files of file jobs in memory, by `NAMESPACE/JOB/DIRECTORY`; None for a job that still
    runs.
    """

    def __init__(self, directories: dict[str, dict[str, bytes] | None]) -> None:
        self._directories = directories

    async def listing(self, namespace: str, job: str, directory: str) -> bytes:
        files = self._files(f"{namespace}/{job}/{directory}")
        listed = [
            pond_messages.ListedFile(path=path, size=len(content), digest=_hex(content))
            for path, content in files.items()
        ]
        return msgspec.json.encode(pond_messages.FileList(files=tuple(listed)))

    async def send(
        self, request: asgi.Request, place: tuple[str, str, str, str], response: asgi.Response
    ) -> None:
        content = self._files("/".join(place[:3]))[place[3]]
        etag = [(b"etag", f'"{_hex(content)}"'.encode())]
        await response.send(200, "application/octet-stream", content, headers=etag)

    def _files(self, directory: str) -> dict[str, bytes]:
        if directory not in self._directories:
            raise errors.NotFound(f"there is no {directory}")
        found = self._directories[directory]
        if found is None:
            raise errors.Conflict("file job is Running: 1 of 2 parts are done")
        return found


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class PondManager:
    """A pond manager and its agents, as an async context manager. `directory` has all their
    data.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ledger = ledger.Ledger(clock.SystemClock())
        self.jobs: dict[str, dict[str, bytes] | None] = {}
        """Files by `NAMESPACE/JOB/DIRECTORY`, as `/ponds` serves them."""
        self.agents: dict[str, asyncio.subprocess.Process] = {}
        self._port = 0
        self._listener: serving.Listener | None = None

    async def __aenter__(self) -> Self:
        pair = self.directory / "certificates"
        pair.mkdir(parents=True, exist_ok=True)
        made = tls_certificate.create(now=clock.SystemClock().wall())
        (pair / "tls.crt").write_bytes(made.certificate)
        (pair / "tls.key").write_bytes(made.key)
        (self.directory / "token").write_text(TOKEN)
        (self.directory / "secrets").mkdir(exist_ok=True)
        await self.start_manager()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in tuple(self.agents):
            await self.kill(node)
        await self.stop_manager()

    async def start_manager(self) -> None:
        """Start a manager without any state."""
        listening = serving.bind("127.0.0.1", self._port)
        self._port = int(listening.getsockname()[1])
        app = pond_exchange.PondExchange(self.ledger, _Verifier(), JobFiles(self.jobs))
        self._listener = serving.Listener(app, listening)
        await self._listener.start()

    async def stop_manager(self) -> None:
        if self._listener is not None:
            self.ledger.close()
            await self._listener.stop(timeout_s=2)
            self._listener = None

    async def restart_manager(self) -> None:
        await self.stop_manager()
        self.ledger = ledger.Ledger(clock.SystemClock())
        await self.start_manager()

    def declare(self, *sources: data_pond.PondSource, **spec: object) -> None:
        """Declare a DataPond with these sources."""
        made = data_pond.DataPondSpec(sources=sources, **spec)  # type: ignore[arg-type]
        self.ledger.pond_changed(NAMESPACE, POND, made, root="/on/each/node")

    def root(self, node: str) -> Path:
        return self.directory / node

    def run(self, node: str, lease: str) -> Path:
        return self.root(node) / "runs" / NAMESPACE / lease

    async def start(self, *nodes: str, absence_s: float | None = None) -> None:
        """Start agents as separate processes."""
        for node in nodes:
            environment = {
                **os.environ,
                "KILN_MANAGER": f"http://127.0.0.1:{self._port}",
                "KILN_NAMESPACE": NAMESPACE,
                "KILN_POND": POND,
                "KILN_NODE": node,
                "KILN_TOKEN_FILE": str(self.directory / "token"),
                "KILN_POND_PATH": str(self.root(node)),
                "KILN_POND_CERTIFICATES": str(self.directory / "certificates"),
                "KILN_POND_SECRETS": str(self.directory / "secrets"),
                "KILN_POND_HOST": "127.0.0.1",
                "KILN_POND_ABSENCE_S": "" if absence_s is None else f"{absence_s}",
            }
            with (self.directory / f"{node}.log").open("ab") as log:
                self.agents[node] = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "kilnwork.pond", env=environment, stderr=log
                )

    async def kill(self, node: str, number: int = signal.SIGKILL) -> int:
        """Kill an agent; return its exit code."""
        running = self.agents.pop(node)
        if running.returncode is None:
            running.send_signal(number)
        return await running.wait()

    def log(self, node: str) -> str:
        return (self.directory / f"{node}.log").read_text()

    async def until(self, holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
        """Wait until `holds` is true, checked after each change."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    await self.ledger.changed(within_s=0.2)
        except TimeoutError:
            logs = "\n".join(self.log(node) for node in self.agents)
            raise AssertionError(f"it never came to that\n{logs}") from None

    async def pin(self, source: data_pond.SnapshotSource, request: str = "r1") -> model.Pin:
        """Wait until a source is pinned, or has failed."""

        def asked() -> model.Pin:
            return self.ledger.want_pin(NAMESPACE, POND, source, request=request)

        await self.until(lambda: asked().state != model.PENDING)
        return asked()

    def want(
        self,
        lease: str,
        *snapshots: model.WantedSnapshot,
        nodes: Sequence[str] | None = None,
    ) -> None:
        self.ledger.want(NAMESPACE, POND, lease, nodes=nodes, snapshots=snapshots)

    def ready(self, lease: str) -> dict[str, model.Readiness]:
        return self.ledger.ready(NAMESPACE, POND, lease)

    async def until_ready(self, lease: str, *nodes: str) -> None:
        """Wait until these nodes are ready for the lease."""

        def holds() -> bool:
            found = self.ready(lease)
            return set(nodes) <= {node for node, one in found.items() if one.ready}

        await self.until(holds)

    def counters(self, node: str) -> pond_messages.Counters:
        [found] = [
            one.counters
            for one in self.ledger.node_views(NAMESPACE, POND) or ()
            if one.node == node
        ]
        return found
