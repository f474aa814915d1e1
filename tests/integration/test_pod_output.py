"""Output of tasks in Pods, fetched while they run, with a real node, journal and API server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest

from kilnwork.api import attempts
from kilnwork.cli.wiring import port_adapters
from kilnwork.kit import ids
from kilnwork.kube import client, errors
from kilnwork.server import errors as server_errors
from support import pod_world, short_paths, waiting


@pytest.fixture
async def world() -> AsyncIterator[pod_world.World]:
    made = pod_world.World(short_paths.directory())
    await made.plane.start()
    try:
        await made.plane.start_node()
        async with client.Client(made.plane.admin_config(), user_agent="test") as made.kube:
            await made.start()
            yield made
            await made.end()
    finally:
        await made.plane.stop()


class Reader:
    """Reads the output of the first attempt of a task."""

    def __init__(self, world: pod_world.World, uid: str) -> None:
        self._world = world
        self.ref = attempts.AttemptRef(ids.task_id(uid), 1, 1)

    @property
    def outputs(self) -> port_adapters.LiveOutputs:
        return port_adapters.LiveOutputs(self._world.controllers)

    @property
    def kept(self) -> bytes:
        path: Path = self._world.hub.log_file(self.ref.task, run=1, attempt=1)
        return path.read_bytes() if path.exists() else b""

    async def until(self, wanted: bytes) -> None:
        async def has() -> bool:
            return self.kept == wanted

        await waiting.wait_until_async(has, what=f"{wanted!r} is kept")


async def a_reader(world: pod_world.World, gate: Path) -> Reader:
    script = f"echo one; until [ -e {gate} ]; do sleep 0.02; done; echo two"
    uid = await world.task("a", script)
    await world.wait_for_state("a", "Running")
    return Reader(world, uid)


async def test_manager_may_restart_while_it_follows_a_log(world: pod_world.World) -> None:
    gate = world.directory / "gate"
    reader = await a_reader(world, gate)
    async with reader.outputs.following(reader.ref):
        await reader.until(b"one\n")
        await world.end()
        gate.touch()
        await world.start()
        await world.wait_for_state("a", "Success")
    assert reader.kept == b"one\ntwo\n"


async def test_output_of_a_failed_init_container_is_kept_by_name(
    world: pod_world.World,
) -> None:
    init = [
        pod_world.worker_container("echo fine", "first"),
        pod_world.worker_container("echo no such bucket >&2; printf exit; exit 3", "second"),
    ]
    reader = Reader(world, await world.task("a", pod={"initContainers": init}))
    await world.wait_for_state("a", "Failed", "NonZeroExit")
    assert reader.kept == b"[second] no such bucket\n[second] exit\n"


async def test_absent_node_is_named_and_its_output_is_fetched_later(
    world: pod_world.World,
) -> None:
    gate = world.directory / "gate"
    reader = await a_reader(world, gate)
    assert world.plane.node is not None
    await world.plane.node.abandon()
    world.plane.node = None
    with pytest.raises(server_errors.NoOutput, match=r"cannot read its output: .*node n1 "):
        await reader.outputs.catch_up(reader.ref)
    async with reader.outputs.following(reader.ref):
        await world.plane.start_node()
        await reader.until(b"one\n")
        gate.touch()
        await world.wait_for_state("a", "Success")
    assert reader.kept == b"one\ntwo\n"


async def test_manager_without_the_right_to_logs_names_it(
    world: pod_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = world.directory / "gate"
    reader = await a_reader(world, gate)
    text = 'pods "a" is forbidden: User "m" cannot get resource "pods/log"'

    def refuse(*given: object, **more: object) -> NoReturn:
        raise errors.Forbidden(403, "Forbidden", text)

    monkeypatch.setattr(world.manager, "stream", refuse)
    with pytest.raises(server_errors.NoOutput, match='cannot get resource "pods/log"'):
        await reader.outputs.catch_up(reader.ref)
    gate.touch()
    await world.wait_for_state("a", "Success")
    assert reader.kept == b""
