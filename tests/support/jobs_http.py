"""The Jobs API on a real port, with a fake service behind it, and a client that returns raw
responses.

Tokens: `good` has all rights in every namespace, `reader` may only read. Without a token a request
is anonymous.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kilnwork.kit import asgi, clock, serving
from kilnwork.server import ports
from kilnwork.server.jobs import app, settings
from support import fake_file_jobs


class User(NamedTuple):
    """A user with a token."""

    name: str


class Rights:
    """Rights: `reader` may get and list, in one namespace at a time."""

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        assert question.resource == "jobs"
        if user.name == "reader" and question.verb not in ("get", "list"):
            return f'jobs.kilnwork.dev is forbidden: User "reader" cannot {question.verb}'
        if user.name == "reader" and not question.namespace:
            return 'jobs.kilnwork.dev is forbidden: User "reader" cannot list at the cluster scope'
        return None


class Clusters:
    """Two namespaces, with TaskClusters `default` and `second` in each."""

    def namespaces(self) -> Sequence[str]:
        return ["default", "team"]

    def clusters(self, namespace: str) -> Sequence[ports.ClusterSummary]:
        return [
            ports.ClusterSummary(name=name, workers=0, slots=0, busy=0, queued=0)
            for name in ("default", "second")
        ]


class Reply(NamedTuple):
    """A complete response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def assert_problem(self, status: int, text: str) -> None:
        """Check that it is a refusal with that status and that its detail contains the text."""
        assert self.status == status, self.body
        assert text in self.json["detail"]


class World:
    """The listening server (`port`) and its fake service."""

    def __init__(self, directory: Path, chosen: settings.JobsApiSettings | None) -> None:
        self.jobs = fake_file_jobs.FakeFileJobs(directory / "files")
        self.directory = directory
        self._chosen = chosen
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        self.app = app.App(
            self.jobs, Rights(), Clusters(), time=clock.SystemClock(), chosen=self._chosen
        )
        listening = serving.bind("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        listener = serving.Listener(self._named, listening)
        await listener.start()
        try:
            yield self
        finally:
            await listener.stop(timeout_s=1)
            await self.app.close()

    async def _named(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        token = dict(scope["headers"]).get(b"x-kiln-token", b"").decode()
        scope[asgi.USER] = User(token) if token else None
        await self.app(scope, receive, send)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        token: str = "good",
        **headers: str,
    ) -> Reply:
        """Send one request on its own connection; `_` in header names stands for a dash."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(head(method, path, token=token, length=len(body), **headers) + body)
            return await reply(reader, method=method)
        finally:
            writer.transport.abort()  # `close` would wait for a server that never reads

    async def curl(self, *arguments: str) -> Reply:
        """Run curl; `URL` in an argument stands for the server's URL."""
        url = f"http://127.0.0.1:{self.port}"
        command = ["curl", "-s", "-i", *(one.replace("URL", url) for one in arguments)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        shown, _ = await process.communicate()
        reader = asyncio.StreamReader()
        reader.feed_data(shown)
        reader.feed_eof()
        return await reply(reader, method="GET")

    def stored(self) -> list[str]:
        """Return the keys in the store, including files that are being written."""
        root = self.directory / "files"
        found = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
        return sorted(str(path.relative_to(root)) for path in found)


def head(
    method: str, path: str, *, token: str = "good", length: int | None = 0, **headers: str
) -> bytes:
    """Return the bytes of a request up to its body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if token:
        lines.append(f"X-Kiln-Token: {token}")
    if length is not None and not (method in ("GET", "HEAD") and not length):
        lines.append(f"Content-Length: {length}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


async def reply(reader: asyncio.StreamReader, *, method: str = "GET") -> Reply:
    """Read the next response whose status is not 100."""
    while True:
        status, headers = await reply_head(reader)
        if status != 100:
            break
    if method == "HEAD" or status in (204, 304):
        body = b""
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = b"".join([piece async for piece in chunks(reader)])
    return Reply(status, headers, body)


async def reply_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value for name, value in headers.items()}


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readline(), 16):
        yield (await reader.readexactly(size + 2))[:-2]


def form(data: bytes, *, name: str = "file", boundary: str = "xyz", **fields: str) -> bytes:
    """Return a multipart body with fields, then a file."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in fields.items()
    ]
    start = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="a b.jsonl"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return "".join(parts).encode() + start.encode() + data + f"\r\n--{boundary}--\r\n".encode()
