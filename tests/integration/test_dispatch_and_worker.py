"""The real dispatcher and the real worker process on one socket: behaviour that needs both."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kilnwork.api import task
from kilnwork.dispatch import model
from kilnwork.kit import ids
from support import hubs, short_paths, waiting, worker_process


class World:
    """A journal directory with a dispatcher that may be restarted, and a worker."""

    def __init__(self, directory: Path, run: Path) -> None:
        self.directory = directory
        self.socket = run / "channel.sock"
        self.worker = worker_process.WorkerProcess(directory, channel=self.socket)
        self.hub = hubs.make(directory, secret="opensesame")

    async def restart(self) -> None:
        await self.hub.stop()
        self.hub = hubs.make(self.directory, secret="opensesame")
        await self.hub.start(self.socket)

    async def submit(self, *command: str, **more: object) -> ids.TaskId:
        spec = task.TaskSpec(cluster_name="counter", command=command, **more)  # type: ignore[arg-type]
        submission = model.Submission(
            task=ids.new_task_id(),
            namespace="default",
            name="task-0",
            spec=spec,
            inputs=None,
            declared=True,
        )
        await self.hub.submit(submission)
        return submission.task

    async def wait_for_state(
        self, asked: ids.TaskId, *, what: Callable[[model.TaskView], bool], timeout_s: float = 30.0
    ) -> model.TaskView:
        def look() -> model.TaskView | None:
            view = self.hub.view(asked)
            return view if view is not None and what(view) else None

        try:
            found = await waiting.wait_until_async(
                look, what="the task gets there", timeout_s=timeout_s
            )
        except AssertionError:
            raise AssertionError(f"{self.hub.view(asked)}\n{self.worker.log.read_text()}") from None
        assert found is not None
        return found

    async def ends(self, asked: ids.TaskId) -> model.TaskView:
        return await self.wait_for_state(asked, what=lambda view: view.state.final)

    async def runs(self, asked: ids.TaskId) -> model.TaskView:
        return await self.wait_for_state(asked, what=lambda view: view.state is task.State.RUNNING)


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[World]:
    run = short_paths.directory()
    made = World(directory, run)
    await made.hub.start(made.socket)
    made.worker.start()
    try:
        yield made
    finally:
        made.worker.destroy()
        await made.hub.stop()
        run.rmdir()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as made:
        yield made


async def test_command_succeeds_with_its_result(world: World) -> None:
    asked = await world.submit("sh", "-c", "echo hello; echo '[1, 2]' > $KILN_OUTPUT")
    view = await world.ends(asked)
    assert (view.state, view.exit_code, view.attempt) == (task.State.SUCCESS, 0, 1)
    assert view.result is not None
    assert json.loads(view.result.data) == [1, 2]
    assert (view.worker, view.node) == ("counter-0", "node-0")
    assert world.hub.log_file(view.task, run=1, attempt=1).read_bytes() == b"hello\n"


async def test_more_tasks_than_slots_all_succeed(world: World) -> None:
    asked = [await world.submit("true") for _ in range(40)]
    views = [await world.ends(one) for one in asked]
    assert {view.state for view in views} == {task.State.SUCCESS}


async def test_exit_75_is_tried_again_within_the_budget(world: World) -> None:
    retry = task.Retry(max_attempts=2, delay_seconds=0.0)
    view = await world.ends(await world.submit("sh", "-c", "exit 75", retry=retry))
    assert (view.state, view.reason, view.attempt) == (task.State.FAILED, "RetryRequested", 2)


async def test_sigkill_by_another_process_is_a_loss(world: World) -> None:
    script = '[ "$KILN_ATTEMPT" = 2 ] || kill -KILL $$'
    view = await world.ends(await world.submit("sh", "-c", script))
    assert (view.state, view.losses, view.attempt) == (task.State.SUCCESS, 1, 2)
    assert view.loss.startswith("ProcessKilled: ended by SIGKILL")


async def test_running_task_is_killed_with_proof(world: World) -> None:
    asked = await world.submit("sh", "-c", "sleep 60 & setsid sleep 60; sleep 60")
    await world.runs(asked)
    await world.hub.kill(asked, reason="Killed")
    view = await world.ends(asked)
    assert (view.state, view.stopped) == (task.State.KILLED, True)
    assert world.worker.alive() == {world.worker.pid}


async def test_timeout_stops_the_attempt(world: World) -> None:
    limits = task.Timeouts(running_seconds=0.3, kill_grace_seconds=0.2)
    view = await world.ends(await world.submit("sleep", "60", timeouts=limits))
    assert (view.state, view.reason) == (task.State.FAILED, "TimedOut")


async def test_task_outlives_the_dispatcher(world: World) -> None:
    flag = world.directory / "go"
    script = f"echo one; until [ -e {flag} ]; do sleep 0.02; done; echo two"
    asked = await world.submit("sh", "-c", script)
    await world.runs(asked)
    await world.restart()
    flag.touch()
    view = await world.ends(asked)
    assert (view.state, view.attempt) == (task.State.SUCCESS, 1)
    assert world.hub.log_file(view.task, run=1, attempt=1).read_bytes() == b"one\ntwo\n"


async def test_task_ending_while_the_dispatcher_is_away_counts(world: World) -> None:
    flag = world.directory / "go"
    script = f"until [ -e {flag} ]; do sleep 0.02; done; echo '{{}}' > $KILN_OUTPUT"
    asked = await world.submit("sh", "-c", script)
    await world.runs(asked)
    await world.hub.stop()
    flag.touch()
    await waiting.wait_until_async(
        lambda: world.worker.alive() == {world.worker.pid}, what="the command has ended"
    )
    await world.restart()
    view = await world.ends(asked)
    assert (view.state, view.attempt) == (task.State.SUCCESS, 1)


async def test_restarted_worker_container_loses_its_attempts(world: World) -> None:
    asked = await world.submit("sh", "-c", '[ "$KILN_ATTEMPT" = 2 ] || sleep 60')
    await world.runs(asked)
    world.worker.destroy()
    world.worker.start()
    view = await world.ends(asked)
    assert (view.state, view.attempt, view.losses) == (task.State.SUCCESS, 2, 1)


async def test_stopping_worker_returns_its_tasks(world: World) -> None:
    asked = await world.submit("sh", "-c", '[ "$KILN_ATTEMPT" = 2 ] || sleep 60')
    await world.runs(asked)
    assert await asyncio.to_thread(world.worker.stop) == 0
    await world.wait_for_state(asked, what=lambda v: v.state is task.State.PENDING)
    world.worker.start()
    assert (await world.ends(asked)).state is task.State.SUCCESS


@pytest.mark.curl
async def test_task_spawns_children_with_curl_and_waits_for_them(world: World) -> None:
    script = """
    set -e
    call() { curl -sS --fail-with-body --unix-socket "$KILN_SOCKET" "$@"; }
    id=$(call http://t/tasks --json '{"name": "kid", "spec": {"command":
        ["sh", "-c", "echo $TASK_NAME; echo 42 > $KILN_OUTPUT"]}}' | cut -d '"' -f 4)
    call "http://t/tasks/$id?wait=10" > $KILN_OUTPUT
    """
    view = await world.ends(await world.submit("sh", "-c", script))
    assert view.state is task.State.SUCCESS, view
    assert view.result is not None
    child = json.loads(view.result.data)
    assert child["state"] == "Success"
    assert child["result"] in (42, {"value": 42}) or child["result"]["value"] == 42
    assert view.children.total == 1
    kid = world.hub.view(ids.task_id(child["id"]))
    assert kid is None or kid.name == "kid"


async def test_worker_with_a_wrong_token_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        (tmp_path / "token").write_text("guess")
        asked = await world.submit("true")
        await asyncio.sleep(0.3)
        view = world.hub.view(asked)
        assert view is not None
        assert view.state is task.State.PENDING


@pytest.mark.parametrize("seed", range(3))
async def test_each_task_succeeds_once_under_random_kills(world: World, seed: int) -> None:
    """Worker and dispatcher are killed repeatedly while tasks run: none is lost, none fails."""
    entropy = ids.Entropy(seed)
    script = "sleep 0.1; echo $KILN_TASK_ID >> done"
    retry = task.Retry(max_losses=100, delay_seconds=0.0)
    asked = [await world.submit("sh", "-c", script, retry=retry) for _ in range(30)]
    for _ in range(6):
        await asyncio.sleep(entropy.random() * 0.3)
        if entropy.random() < 0.5:
            world.worker.destroy()
            world.worker.start()
        else:
            await world.restart()
    views = [await world.ends(one) for one in asked]
    assert {view.state for view in views} == {task.State.SUCCESS}, f"seed {seed}"
    done = (world.directory / "done").read_text().split()
    assert set(done) == {ids.task_text(one) for one in asked}
    assert len(done) <= sum(view.attempt for view in views)
