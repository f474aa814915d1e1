"""A client of a scripted server."""

from collections.abc import AsyncIterator

import aiohttp.web
import pytest

from kilnwork.kube import client, config
from support import scripted_apiserver


@pytest.fixture
async def stand() -> AsyncIterator[scripted_apiserver.ScriptedApiServer]:
    stand = scripted_apiserver.ScriptedApiServer()
    app = aiohttp.web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", stand.serve)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stand.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield stand
    await runner.cleanup()


@pytest.fixture
async def kube(stand: scripted_apiserver.ScriptedApiServer) -> AsyncIterator[client.Client]:
    async with client.Client(
        config.Config(server=stand.url, token="t0ken"), user_agent="kiln-test"
    ) as kube:
        yield kube
