"""A real worker whose dispatcher is behind TLS: commands, and network failures."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kilnwork.api import task
from kilnwork.dispatch import model
from kilnwork.kit import ids
from support import certificates, remote_manager, short_paths, tcp_proxy, waiting, worker_process


class World:
    """A manager, a TCP proxy to it, and a worker behind the proxy."""

    def __init__(
        self, directory: Path, manager: remote_manager.RemoteManager, wire: tcp_proxy.TcpProxy
    ) -> None:
        self.manager = manager
        self.wire = wire
        self.worker = worker_process.WorkerProcess(
            directory,
            channel=Path("/nowhere"),
            KILN_CHANNEL=f"tls://localhost:{wire.port}",
            KILN_CA_FILE=str(manager.ca),
        )

    async def submit(self, *command: str) -> ids.TaskId:
        spec = task.TaskSpec(cluster_name="counter", command=command)
        submission = model.Submission(
            task=ids.new_task_id(),
            namespace="default",
            name="task-0",
            spec=spec,
            inputs=None,
            declared=True,
        )
        await self.manager.hub.submit(submission)
        return submission.task

    async def wait_for_state(
        self, asked: ids.TaskId, *, what: Callable[[model.TaskView], bool]
    ) -> model.TaskView:
        def look() -> model.TaskView | None:
            view = self.manager.hub.view(asked)
            return view if view is not None and what(view) else None

        try:
            found = await waiting.wait_until_async(look, what="the task gets there", timeout_s=20)
        except AssertionError:
            log = self.worker.log.read_text()
            raise AssertionError(f"{self.manager.hub.view(asked)}\n{log}") from None
        assert found is not None
        return found

    async def ends(self, asked: ids.TaskId) -> model.TaskView:
        return await self.wait_for_state(asked, what=lambda view: view.state.final)

    def commands(self) -> list[str]:
        found = []
        for pid in self.worker.descendants():
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        return found

    async def logs(self, text: str, *, timeout_s: float = 30.0) -> None:
        await waiting.wait_until_async(
            lambda: text in self.worker.log.read_text(), what=text, timeout_s=timeout_s
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        remote_manager.running(tmp_path) as manager,
        tcp_proxy.TcpProxy(manager.port) as wire,
    ):
        made = World(tmp_path, manager, wire)
        yield made
        made.worker.destroy()


async def test_command_runs_and_returns_result_and_output(world: World) -> None:
    world.worker.start()
    asked = await world.submit("sh", "-c", "echo hello; echo '[1, 2]' > $KILN_OUTPUT")
    view = await world.ends(asked)
    assert (view.state, view.exit_code, view.attempt) == (task.State.SUCCESS, 0, 1)
    assert view.result is not None
    assert json.loads(view.result.data) == [1, 2]
    log = world.manager.hub.log_file(view.task, run=1, attempt=1)
    assert log.read_bytes() == b"hello\n"


async def test_commands_do_not_see_the_relay(world: World) -> None:
    world.worker.start()
    view = await world.ends(await world.submit("sh", "-c", "! env | grep -E 'CHANNEL|RELAY|CA_FI'"))
    assert view.exit_code == 0


async def test_much_output_and_many_tasks_pass(world: World) -> None:
    world.worker.start()
    much = await world.submit("sh", "-c", "yes 0123456789 | head -c 3000000")
    others = [await world.submit("true") for _ in range(20)]
    views = [await world.ends(one) for one in (much, *others)]
    assert {view.state for view in views} == {task.State.SUCCESS}
    log = world.manager.hub.log_file(much, run=1, attempt=1)
    await waiting.wait_until_async(lambda: log.stat().st_size == 3_000_000, what="all output")


async def test_cut_link_harms_no_task(world: World, tmp_path: Path) -> None:
    world.worker.start()
    go = tmp_path / "go"
    asked = await world.submit("sh", "-c", f"while ! [ -e {go} ]; do sleep 0.05; done; echo over")
    await world.wait_for_state(asked, what=lambda view: view.state is task.State.RUNNING)
    for _ in range(3):
        before = world.wire.connections
        world.wire.cut()
        await waiting.wait_until_async(
            lambda before=before: world.wire.connections > before,  # type: ignore[misc]
            what="the worker connects again",
        )
    go.touch()
    view = await world.ends(asked)
    assert (view.state, view.attempt) == (task.State.SUCCESS, 1)


async def test_silent_network_ends_tasks_before_they_start_elsewhere(
    world: World, tmp_path: Path
) -> None:
    world.manager.lease_s = 6.0  # the worker ends its work 1.2 s before
    await world.manager.restart()
    world.worker.start()
    script = f"echo $KILN_ATTEMPT >> {tmp_path}/began; [ $KILN_ATTEMPT = 2 ] || sleep 60"
    asked = await world.submit("sh", "-c", script)
    await world.wait_for_state(asked, what=lambda view: view.state is task.State.RUNNING)
    world.wire.stall()
    await world.wait_for_state(asked, what=lambda view: view.state is task.State.PENDING)
    assert not any("sleep" in command for command in world.commands())
    world.wire.flow()
    view = await world.ends(asked)
    assert (view.state, view.attempt) == (task.State.SUCCESS, 2)
    assert (tmp_path / "began").read_text() == "1\n2\n"


async def test_restarted_manager_finds_the_task_running(world: World, tmp_path: Path) -> None:
    world.worker.start()
    go = tmp_path / "go"
    asked = await world.submit("sh", "-c", f"while ! [ -e {go} ]; do sleep 0.05; done")
    await world.wait_for_state(asked, what=lambda view: view.state is task.State.RUNNING)
    await world.manager.restart()
    go.touch()
    view = await world.ends(asked)
    assert (view.state, view.attempt) == (task.State.SUCCESS, 1)


async def test_worker_waits_for_a_manager_that_is_not_ready(world: World) -> None:
    world.manager.forced_status = 503
    world.worker.start()
    await world.logs("it responds with 503")
    world.manager.forced_status = None
    assert (await world.ends(await world.submit("true"))).exit_code == 0
    await world.logs("the manager can be reached again")


async def test_certificate_of_another_ca_is_refused_with_a_message(
    world: World, tmp_path: Path
) -> None:
    right = world.manager.ca.read_text()
    world.manager.ca.write_text(certificates.Authority().pem)
    world.worker.start()
    await world.logs("its certificate is not the manager's by the CA")
    assert world.manager.requests == []
    world.manager.ca.write_text(right)  # the Secret was mended: no restart is needed
    assert (await world.ends(await world.submit("true"))).exit_code == 0


async def test_no_certificate_is_trusted_without_a_ca(world: World) -> None:
    """Not even one of a CA that the system trusts."""
    world.manager.ca.write_text("")
    world.worker.start()
    await world.logs("cannot be used: it is empty")
    assert world.wire.connections == 0


async def test_wrong_token_is_refused_until_it_is_corrected(world: World, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong")
    world.worker.start()
    await world.logs("not the channel token")
    (tmp_path / "token").write_text(remote_manager.SECRET)
    assert (await world.ends(await world.submit("true"))).exit_code == 0


async def test_stopped_worker_leaves_nothing(world: World) -> None:
    temporary = short_paths.directory()
    world.worker.environment["TMPDIR"] = str(temporary)
    world.worker.start()
    await world.ends(await world.submit("true"))
    assert len(list(temporary.glob("kiln-w-*/channel"))) == 1
    assert world.worker.stop() == 0
    assert list(temporary.iterdir()) == []
    temporary.rmdir()
