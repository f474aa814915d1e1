"""A whole embedded control plane in this process, with plain HTTP or our own client to it."""

import asyncio
import contextlib
import io
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster
from kilnwork.kube import client

MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Response:
    """What came back. `json` is the decoded body, or its text."""

    status: int
    json: Any
    headers: dict[str, str]

    @property
    def message(self) -> str:
        return str(self.json["message"])


class Http:
    """HTTP with a bearer token; paths below the server's address."""

    def __init__(self, address: str, *, ca: Path, token: str | None) -> None:
        self.address = address
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        tls = ssl.create_default_context(cafile=str(ca))
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self.session = aiohttp.ClientSession(address, connector=connector, headers=headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Response:
        """Send one request; a body that is neither bytes nor a file is sent as JSON."""
        data = body if isinstance(body, bytes | io.BytesIO | None) else json.dumps(body).encode()
        sent = {"Content-Type": content_type} if data is not None else {}
        async with self.session.request(
            method, path, data=data, headers=sent | (headers or {})
        ) as response:
            text = await response.text()
            decoded = json.loads(text) if "json" in response.content_type else text
            return Response(response.status, decoded, dict(response.headers))

    async def get(self, path: str, **more: Any) -> Response:
        return await self.send("GET", path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> Response:
        return await self.send("POST", path, body, **more)

    async def put(self, path: str, body: Any, **more: Any) -> Response:
        return await self.send("PUT", path, body, **more)

    async def patch(
        self, path: str, body: Any, *, content_type: str = MERGE, **more: Any
    ) -> Response:
        return await self.send("PATCH", path, body, content_type=content_type, **more)

    async def delete(self, path: str, body: Any = None, **more: Any) -> Response:
        return await self.send("DELETE", path, body, **more)

    @contextlib.asynccontextmanager
    async def watch(self, path: str, **more: Any) -> AsyncIterator["Stream"]:
        mark = "&" if "?" in path else "?"
        async with self.session.get(f"{path}{mark}watch=1", **more) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


class Stream:
    """The changes of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self, *, timeout_s: float = 30.0) -> tuple[str, Any]:
        """Return (type, object) of the next change; fail if none comes in time."""
        async with asyncio.timeout(timeout_s):
            line = await self._response.content.readline()
        assert line, "the watch has ended"
        decoded = json.loads(line)
        return decoded["type"], decoded["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next `count` changes."""
        found = [await self.next() for _ in range(count)]
        return [(type_, obj["metadata"]["name"]) for type_, obj in found]

    async def ended(self, *, timeout_s: float = 30.0) -> bool:
        """True when the stream ends with nothing more in it."""
        async with asyncio.timeout(timeout_s):
            return await self._response.content.readline() == b""


@contextlib.asynccontextmanager
async def control_plane(directory: Path, *, port: int = 0) -> AsyncIterator[cluster.ControlPlane]:
    """A started control plane on free ports with its data in `directory`."""
    plane = cluster.ControlPlane(
        cluster.ControlPlaneSettings(
            data_dir=directory, port=port, workdir=directory, installed=embedded_crds.EXTENSIONS
        )
    )
    await plane.start()
    try:
        yield plane
    finally:
        await plane.stop()


@contextlib.asynccontextmanager
async def admin_client(directory: Path) -> AsyncIterator[client.Client]:
    """Our client of a new control plane with its data in `directory`."""
    async with (
        control_plane(directory) as plane,
        client.Client(plane.admin_config()) as found,
    ):
        yield found


@contextlib.asynccontextmanager
async def admin_beside_node(directory: Path, *, node: bool = False) -> AsyncIterator[client.Client]:
    """Run a control plane without our kinds, with node `n1` if `node`; yield an admin client."""
    (directory / "work").mkdir()
    plane = cluster.ControlPlane(
        cluster.ControlPlaneSettings(
            data_dir=directory, port=0, workdir=directory / "work", node_name="n1"
        )
    )
    await plane.start()
    try:
        if node:
            await plane.start_node()
        async with client.Client(plane.admin_config(), user_agent="test") as admin:
            yield admin
    finally:
        await plane.stop()


def http(plane: cluster.ControlPlane, *, token: str | None = "admin") -> Http:
    """Return an HTTP client for the control plane: as administrator, with a token, or anonymous for
    None.
    """
    if token == "admin":
        token = (plane.data_dir / "token").read_text().strip()
    return Http(plane.address, ca=plane.certificates.ca_certificate, token=token)
