"""The program that runs a call in a Pod, as a process of this machine, with a real dispatcher.

The test plays the executor: it starts the process and reports its end, as the executor of Pods
does. `tests/e2e/test_pod_calls.py` has the same under `kiln up`.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import blocking_link, frames, messages
from kilnwork.dispatch.hub import hub as hubs_hub
from kilnwork.dispatch.hub import in_process_links
from kilnwork.dispatch.machine import instructions
from kilnwork.kit import ids
from kilnwork.sdk import driver_session
from support import hubs, pod_functions, raw_link, remote_manager, slot_functions, waiting

E = attempts.Ending


class RawCall(raw_link.RawLink[messages.ToSlot]):
    """The process of a call, as raw frames."""

    welcome = messages.Attached

    def __init__(self, socket: Path, ref: attempts.AttemptRef) -> None:
        super().__init__(socket, frames.decode_to_slot)
        self._ref = ref

    def hello(self) -> messages.AttemptHello:
        version = messages.VERSION
        return messages.AttemptHello(version, self._ref, "secret", "ns", "p", 0, runs_call=True)


PATIENCE_S = 60.0


class World:
    """A dispatcher with executor `pod`, and a driver in a thread."""

    def __init__(self, directory: Path, *, secret: str = "secret") -> None:
        self.directory = directory
        self.socket = hubs.socket_of(directory)
        self.hub: hubs_hub.Hub
        self.link: in_process_links.ExecutorLink
        self.instructions: list[instructions.ForExecutor] = []
        self.driver: driver_session.Driver
        self.processes: dict[attempts.AttemptRef, subprocess.Popen[bytes]] = {}
        self._token = directory / "token"
        self._token.write_text(f"{secret}\n")

    async def start(self) -> None:
        self.hub = hubs.make(
            self.directory, options=hubs_hub.HubOptions(blobs_dir=self.directory / "blobs")
        )
        await self.hub.start(self.socket)
        await self.join()

    async def join(self) -> None:
        self.link = await self.hub.join_executor(
            "pod", capacity=9, receive=self.instructions.append
        )

    async def connect(self) -> None:
        self.driver = driver_session.Driver(
            connect=lambda: blocking_link.unix(str(self.socket)),
            credential=lambda: self._token.read_text().strip(),
            namespace="ns",
        )
        await asyncio.to_thread(self.driver.open, timeout_s=PATIENCE_S)

    async def leave(self) -> None:
        """End everything but the dispatcher."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        await asyncio.to_thread(self.driver.close, 0)

    async def attempt(
        self, number: int = 1, kind: type[Any] = instructions.RunAttempt
    ) -> attempts.AttemptRef:
        """Return the `number`-th attempt that the executor is instructed to run, or to stop."""

        def reported() -> list[attempts.AttemptRef]:
            return [one.ref for one in self.instructions if isinstance(one, kind)]

        await waiting.wait_until_async(
            lambda: len(reported()) >= number, what="the instruction arrives"
        )
        return reported()[number - 1]

    def run(
        self, ref: attempts.AttemptRef, far: remote_manager.RemoteManager | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the process of the Pod of an attempt; `far`: over the network, with blobs there."""
        log = (self.directory / f"{ref.attempt}-{ids.task_text(ref.task)}.log").open("wb")
        environment = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.directory),
            "KILN_TOKEN_FILE": str(self._token),
            "KILN_TASK_ID": ids.task_text(ref.task),
            "KILN_RUN": str(ref.run),
            "KILN_ATTEMPT": str(ref.attempt),
            "KILN_NAMESPACE": "ns",
            "KILN_POD": "p",
            "KILN_CHANNEL": f"unix:{self.socket}",
            "KILN_BLOBS": str(self.directory / "blobs"),
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "MINE": "yes",
        }
        if far is not None:
            del environment["KILN_BLOBS"]
            environment["KILN_CHANNEL"] = f"tls://127.0.0.1:{far.port}"
            environment["KILN_CA"] = far.ca.read_text()
        with log:
            started = subprocess.Popen(
                [sys.executable, "-m", "kilnwork.worker.pod_call"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        self.processes[ref] = started
        return started

    def log(self, ref: attempts.AttemptRef) -> str:
        return (self.directory / f"{ref.attempt}-{ids.task_text(ref.task)}.log").read_text()

    async def ended(self, ref: attempts.AttemptRef) -> int:
        return await asyncio.to_thread(self.processes[ref].wait, PATIENCE_S)

    async def over(self, ref: attempts.AttemptRef, ending: E, reason: str) -> None:
        """Let the executor report the end of the Pod."""
        await self.link.finished(ref, attempts.Outcome(ending, reason))

    async def seen(self, path: Path, text: str = "runs") -> None:
        await waiting.wait_until_async(
            lambda: path.exists() and path.read_text() == text, what=f"{path} says {text}"
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    await made.connect()
    try:
        yield made
    finally:
        await made.leave()
        await made.hub.stop()


def submit(function: Callable[..., Any], *args: Any, **options: Any) -> kiln.Future[Any]:
    future: kiln.Future[Any] = kiln.task(function, pod={}).options(**options).submit(*args)
    return future


async def result(future: kiln.Future[Any]) -> Any:
    return await asyncio.to_thread(future.result, PATIENCE_S)


async def test_call_result_does_not_wait_for_the_pod(world: World) -> None:
    future = submit(pod_functions.add, 2, 3)
    ref = await world.attempt()
    world.run(ref)
    assert await result(future) == 5
    assert await world.ended(ref) == 0
    await world.over(ref, E.SUCCEEDED, "Succeeded")
    assert hubs.view(world.hub, ref.task).state == "Success"


@pytest.mark.parametrize(("mebibytes", "seconds"), [(0, 0), (100, 0.1)])
async def test_usage_of_a_short_call_is_recorded(
    world: World, mebibytes: int, seconds: float
) -> None:
    future = submit(slot_functions.use, mebibytes, seconds)
    ref = await world.attempt()
    world.run(ref)
    await result(future)
    used = hubs.view(world.hub, ref.task).usage
    assert used is not None
    assert seconds <= used.cpu_s < seconds + 1
    assert used.peak_bytes is not None
    assert used.peak_bytes > mebibytes << 20


async def test_exception_is_raised_and_sets_the_exit_code(world: World) -> None:
    future = submit(pod_functions.fail, "no")
    ref = await world.attempt()
    world.run(ref)
    with pytest.raises(ValueError, match="no") as caught:
        await result(future)
    assert "raise ValueError(text)" in str(caught.value.__cause__)
    assert await world.ended(ref) == 1


async def test_results_and_arguments_may_be_large(world: World) -> None:
    future = submit(len, submit(pod_functions.fill, 3_000_000))
    world.run(await world.attempt(1))
    world.run(await world.attempt(2))
    assert await result(future) == 3_000_000
    future = submit(len, b"y" * 2_000_000)
    world.run(await world.attempt(3))
    assert await result(future) == 2_000_000


async def test_result_that_cannot_be_stored_is_lost_and_the_call_repeated(world: World) -> None:
    blobs = str(world.directory / "blobs")
    future = submit(pod_functions.fill_on_second_try, 3_000_000, blobs)
    first = await world.attempt(1)
    world.run(first)
    assert await world.ended(first) == 1
    await world.over(first, E.FAILED, "NonZeroExit")  # its Pod, which comes after the report
    second = await world.attempt(2)
    world.run(second)
    assert len(await result(future)) == 3_000_000
    view = hubs.view(world.hub, second.task)
    assert (view.losses, view.failures) == (1, 0)
    assert view.loss.startswith("ResultLost: BlobNotWritten")


async def test_call_knows_its_attempt_and_hides_own_variables(world: World) -> None:
    future = submit(pod_functions.report, "path")
    ref = await world.attempt()
    world.run(ref)
    assert await result(future) == [1, ids.task_text(ref.task), "False", "yes", "path"]
    assert await world.ended(ref) == 0
    assert world.log(ref) == "printed\n"


async def test_generator_is_a_stream(world: World) -> None:
    future = kiln.task(pod_functions.count, pod={}).submit(3)
    world.run(await world.attempt())
    assert await asyncio.to_thread(list, future) == [0, 1, 2]


async def test_killed_call_is_cancelled_and_killed_when_its_pod_ends(world: World) -> None:
    seen = world.directory / "seen"
    future = submit(pod_functions.stay, str(seen))
    ref = await world.attempt()
    process = world.run(ref)
    await world.seen(seen)
    future.cancel()
    assert await world.attempt(1, instructions.StopAttempt) == ref
    process.terminate()
    assert await world.ended(ref) == 143
    assert seen.read_text() == "cancelled"
    assert hubs.view(world.hub, ref.task).state == "Killing"
    await world.over(ref, E.STOPPED, "Killed")
    with pytest.raises(kiln.Cancelled):
        await result(future)


async def test_call_is_cancelled_while_it_waits_for_a_child(world: World) -> None:
    seen = world.directory / "seen"
    future = submit(pod_functions.stay_waiting, str(seen))
    ref = await world.attempt()
    process = world.run(ref)
    await waiting.wait_until_async(
        lambda: hubs.view(world.hub, ref.task).children.total == 1, what="it has a child"
    )
    process.terminate()
    assert await world.ended(ref) == 143
    await waiting.wait_until_async(seen.with_suffix(".cancelled").exists, what="it was cancelled")
    await world.over(ref, E.LOST, "PodLost")
    assert not future.done()
    assert (await world.attempt(2)).attempt == 2


async def test_call_that_exits_without_a_report_fails(world: World) -> None:
    future = submit(pod_functions.leave, 0)
    ref = await world.attempt()
    world.run(ref)
    assert await world.ended(ref) == 0
    await world.over(ref, E.SUCCEEDED, "Succeeded")
    with pytest.raises(kiln.TaskError, match="before the function had returned"):
        await result(future)


async def test_leftover_threads_do_not_keep_the_pod(world: World) -> None:
    future = submit(pod_functions.leave_a_thread)
    ref = await world.attempt()
    world.run(ref)
    assert await result(future) == "done"
    assert await world.ended(ref) == 0


async def test_forked_process_does_not_report(world: World) -> None:
    future = submit(pod_functions.fork)
    ref = await world.attempt()
    world.run(ref)
    assert await result(future) == "parent"
    assert await world.ended(ref) == 0


async def test_retry_is_another_pod(world: World) -> None:
    future = submit(pod_functions.fail, "again", retries=1, retry_delay=0)
    for number in (1, 2):
        ref = await world.attempt(number)
        assert ref.attempt == number
        world.run(ref)
        assert await world.ended(ref) == 1
    with pytest.raises(ValueError, match="again"):
        await result(future)


async def test_call_end_waits_for_an_absent_dispatcher(world: World) -> None:
    seen, go = world.directory / "seen", world.directory / "go"
    future = submit(pod_functions.wait_for, str(seen), str(go))
    ref = await world.attempt()
    process = world.run(ref)
    await world.seen(seen)
    await world.hub.stop()
    go.touch()
    with pytest.raises(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, 1)
    await world.start()
    assert await world.attempt(2) == ref  # adopted: the executor looks for it, and finds it
    assert await result(future) == "gone on"
    assert await world.ended(ref) == 0


async def test_call_link_is_refused_sidecar_requests(world: World) -> None:
    submit(pod_functions.add, 1, 1)
    ref = await world.attempt()
    for message in (
        messages.Renew(1),
        messages.Spawn(1, ref, 1, None, None, api_task.TaskSpec(command=("true",)), None),
    ):
        peer: raw_link.RawLink[messages.ToSlot] = RawCall(world.socket, ref)
        async with peer:
            peer.say(message)
            refused = await peer.expect(messages.Refused)
            assert (refused.reason, refused.retry) == ("Malformed", False)


async def test_ended_attempt_ends_its_process(world: World) -> None:
    submit(pod_functions.add, 1, 1, max_losses=0)
    ref = await world.attempt()
    await world.over(ref, E.LOST, "PodLost")
    world.run(ref)
    assert await world.ended(ref) == 0


async def test_values_of_any_size_pass_over_the_network(tmp_path: Path) -> None:
    """Over TLS with only the token of its Pod, also after the manager was away."""
    large = b"y" * 1_000_000
    async with remote_manager.running(tmp_path) as far:
        world = World(tmp_path, secret=remote_manager.SECRET)
        world.hub, world.socket = far.hub, far.socket
        await world.join()
        await world.connect()
        try:
            seen, go = tmp_path / "seen", tmp_path / "go"
            future = submit(pod_functions.wait_for, str(seen), str(go), large)
            ref = await world.attempt()
            world.run(ref, far)
            await world.seen(seen)
            await far.restart()
            world.hub = far.hub
            await world.join()
            go.touch()
            assert await result(future) == large
            assert await world.ended(ref) == 0
        finally:
            await world.leave()
    assert {method for method, path in far.requests if path.startswith("/blobs/ns/")} >= {
        "GET", "PUT",
    }  # fmt: skip
