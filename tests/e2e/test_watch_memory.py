"""Memory of `kiln up` while clients watch everything, and after they have disconnected."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import aiohttp
import pytest

from kilnwork.kube import config
from support import up_server as ups
from support import waiting

WATCHES = 1000
OPENED_AT_ONCE = 50
CONFIG_MAPS = 100
BYTES = 2000
PATH = "/api/v1/namespaces/default/configmaps"


def resident_mib(pid: int) -> float:
    """Return VmRSS of a process (proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


async def make_config_maps(http: aiohttp.ClientSession) -> None:
    for number in range(CONFIG_MAPS):
        body = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * BYTES}}
        async with http.post(PATH, json=body) as response:
            assert response.status == 201, await response.text()


async def watch_and_leave(http: aiohttp.ClientSession, pid: int) -> float:
    """Open all watches, read the beginning of each, close them; return the memory while all were
    open.
    """

    async def opened() -> aiohttp.ClientResponse:
        response = await http.get("/api/v1/configmaps", params={"watch": "1"})
        stack.callback(response.close)
        assert await response.content.readany()
        return response

    with contextlib.ExitStack() as stack:
        for _ in range(WATCHES // OPENED_AT_ONCE):
            await asyncio.gather(*(opened() for _ in range(OPENED_AT_ONCE)))
        return resident_mib(pid)


@pytest.mark.timeout(180)
async def test_ended_watches_release_their_memory(up: ups.UpServer) -> None:
    settings = config.load(up.data / "kubeconfig")
    tls = ssl.create_default_context(cadata=settings.ca_data)
    session = aiohttp.ClientSession(
        settings.server,
        connector=aiohttp.TCPConnector(limit=0, ssl=tls),
        headers={"Authorization": f"Bearer {settings.token}"},
        timeout=aiohttp.ClientTimeout(total=None),
    )
    assert up.process is not None
    pid = up.process.pid
    async with session as http:
        await make_config_maps(http)
        before = resident_mib(pid)
        for _ in range(2):
            during = await watch_and_leave(http, pid)
            assert during < before + 0.3 * WATCHES, f"{before:.0f} MiB, then {during:.0f} MiB"
            await waiting.wait_until_async(
                lambda: resident_mib(pid) < 1.3 * before,
                what=f"the memory is near {before:.0f} MiB again, from {during:.0f} MiB",
            )
