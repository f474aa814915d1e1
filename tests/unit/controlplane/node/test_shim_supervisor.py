"""The supervisor with a shim that is played: what it hears, and in which order."""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.controlplane.node import shim, shim_container, shim_supervisor
from kilnwork.kit import locks
from support import short_paths

RUNNING = shim_container.ContainerRecord("uid/main/0", "/f", pid=5, started_at=100.0)
ENDED = RUNNING._replace(exit_code=0, finished_at=101.0)

Reply = Callable[[dict[str, Any]], list[dict[str, Any]]]
"""Messages of the shim to a request; they are sent together."""


@pytest.fixture
def directory() -> Iterator[Path]:
    made = short_paths.directory()
    yield made
    shutil.rmtree(made)


@contextlib.asynccontextmanager
async def played_shim(directory: Path, reply: Reply) -> AsyncIterator[None]:
    """A process that listens as a shim does and sends what `reply` returns."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            request = json.loads(line)
            messages = [json.dumps(message) + "\n" for message in reply(request)]
            writer.write("".join(messages).encode())
        writer.close()

    server = await asyncio.start_unix_server(serve, directory / "s")
    async with server:
        yield


async def test_end_that_arrives_with_the_hello_comes_after_it(directory: Path) -> None:
    heard: list[shim_container.ContainerRecord] = []

    def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
        known = {"version": shim.PROTOCOL, "containers": [RUNNING._asdict()]}
        end = {"event": "ended", "container": ENDED._asdict()}
        return [{"n": request["n"], **known}, end]

    async with played_shim(directory, reply):
        minder = shim_supervisor.Supervisor(
            directory, directory / "s", on_ended=heard.append, on_opened=heard.extend
        )
        await minder.start()
        await minder.detach()
    assert heard == [RUNNING, ENDED]


async def test_shim_of_another_version_that_does_not_leave_is_tried_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim, "LEAVE_GRACE_S", 0.01)
    held = locks.OwnerLock(directory / shim.LOCK)
    held.take()  # a shim that is launched meanwhile ends
    versions = iter([shim.PROTOCOL - 1])

    def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
        version = next(versions, shim.PROTOCOL)
        return [{"n": request["n"], "version": version, "containers": [RUNNING._asdict()]}]

    heard: list[shim_container.ContainerRecord] = []
    async with played_shim(directory, reply):
        minder = shim_supervisor.Supervisor(
            directory, directory / "s", on_ended=heard.append, on_opened=heard.extend
        )
        await minder.start()
        await minder.detach()
    for pid in minder._pids:  # no process may be left, not even as a zombie
        os.waitpid(pid, 0)
    assert heard == [RUNNING]
