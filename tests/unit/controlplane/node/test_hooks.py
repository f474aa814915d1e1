"""Lifecycle hooks: what runs, and why it failed."""

import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from kilnwork.controlplane.node import hooks, pod_types, probes
from kilnwork.controlplane.node import shim_container as containers
from kilnwork.kit import clock

RECORD = containers.ContainerRecord("c1", "/nowhere")


def container(**lifecycle: Any) -> pod_types.Container:
    obj = {"name": "c", "image": "i", "lifecycle": lifecycle or None}
    return msgspec.convert(obj, pod_types.Container)


def running(code: int, output: bytes = b"") -> tuple[hooks.Hooks, list[tuple[Any, ...]]]:
    asked: list[tuple[Any, ...]] = []

    async def run(container_id: str, argv: Sequence[str], limit_s: float) -> tuple[int, bytes]:
        asked.append((container_id, *argv, limit_s))
        return code, output

    def ignore(*_: object) -> None:
        raise AssertionError("no container is probed here")

    probers = probes.Probers(run, ignore, address="127.0.0.1", now=clock.ManualClock())
    return hooks.Hooks(run, probers), asked


COMMAND = {"exec": {"command": ["a", "b"]}}


async def test_without_a_hook_nothing_runs() -> None:
    found, asked = running(1)
    assert await found.post_start(container(preStop=COMMAND), RECORD) == ""
    assert await found.pre_stop(container(), RECORD, grace_s=3) == ""
    assert asked == []


async def test_command_hook_runs_within_the_grace_period() -> None:
    found, asked = running(0)
    hook = container(preStop=COMMAND)
    assert await found.pre_stop(hook, RECORD, grace_s=3) == ""
    assert asked == [("c1", "a", "b", 3)]


async def test_failed_command_hook_reports_code_and_output() -> None:
    found, _ = running(2, b"no\n")
    hook = container(postStart=COMMAND)
    why = await found.post_start(hook, RECORD)
    assert why == "command exited with 2: no"


async def test_slow_hook_fails() -> None:
    found, _ = running(0)
    hook = container(preStop={"sleep": {"seconds": 60}})
    why = await found.pre_stop(hook, RECORD, grace_s=0.01)
    assert why == "it did not end within 0.01 s"


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    """Yield the port of an HTTP server: `/status/404` responds with that, `/loop` with itself."""

    async def respond(request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["status"]))

    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/loop"})

    app = web.Application()
    app.router.add_get("/status/{status}", respond)
    app.router.add_get("/loop", redirect)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/status/200", ""),
        ("/status/302", ""),
        ("/status/404", ""),
        ("/status/500", ""),
        ("/loop", "stopped after 10 redirects"),
    ],
)
async def test_http_hook_succeeds_with_any_response(port: int, path: str, why: str) -> None:
    found, _ = running(0)
    hook = container(postStart={"httpGet": {"port": port, "path": path}})
    assert await found.post_start(hook, RECORD) == why
    await found.probers.stop()


async def test_http_hook_without_a_response_fails() -> None:
    found, _ = running(0)
    with socket.socket() as bound:  # does not listen
        bound.bind(("127.0.0.1", 0))
        hook = container(postStart={"httpGet": {"port": bound.getsockname()[1]}})
        assert "Cannot connect to host 127.0.0.1" in await found.post_start(hook, RECORD)
    await found.probers.stop()


@pytest.mark.parametrize("name", ["postStart", "preStop"])
def test_has_hook_functions(name: str) -> None:
    found = container(**{name: COMMAND})
    assert hooks.has_post_start(found) is (name == "postStart")
    assert hooks.has_pre_stop(found) is (name == "preStop")
    assert not hooks.has_pre_stop(None)
