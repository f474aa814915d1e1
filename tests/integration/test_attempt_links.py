"""The sidecar link of an attempt: what it receives, what it may request, and who may open it.

A real hub with an executor in its process; the sidecar sends raw frames.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import frames, messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import in_process_links
from kilnwork.dispatch.machine import instructions
from kilnwork.kit import ids
from support import hubs, raw_link, waiting

CHILD = api_task.TaskSpec(command=("true",))
NOTHING = attempts.Payload(attempts.JSON, b"null")
POD = api_task.PodTemplate(spec={"containers": []})


class RawSidecar(raw_link.RawLink[messages.ToWorker]):
    """The sidecar of an attempt; calling `connect` again reconnects."""

    welcome = messages.Welcome

    def __init__(
        self, socket: Path, ref: attempts.AttemptRef, *, namespace: str, credential: str
    ) -> None:
        super().__init__(socket, frames.decode_to_worker)
        self._hello = messages.AttemptHello(
            messages.VERSION, ref, credential, namespace, "p", epoch=0
        )

    def hello(self) -> messages.AttemptHello:
        return self._hello


class World:
    """A hub, its executor `pod`, and one attempt of it."""

    def __init__(self, directory: Path) -> None:
        self.socket = hubs.socket_of(directory)
        self.instructions: list[instructions.ForExecutor] = []
        self.link: in_process_links.ExecutorLink
        self.hub = hubs.make(directory)

    async def start(self) -> None:
        await self.hub.start(self.socket)
        self.link = await self.hub.join_executor(
            "pod", capacity=9, receive=self.instructions.append
        )

    async def attempt(self, inputs: bytes | None = None) -> attempts.AttemptRef:
        """Return an attempt of a new task, given to the executor."""
        spec = api_task.TaskSpec(pod=POD, cluster_name="c")
        task = model.Submission(
            task=ids.new_task_id(), namespace="ns", name="t", spec=spec, inputs=inputs
        )
        await self.hub.submit(task)
        ref = attempts.AttemptRef(task.task, 1, 1)
        given = [
            reported.ref
            for reported in self.instructions
            if isinstance(reported, instructions.RunAttempt)
        ]
        assert ref in given
        return ref

    def sidecar(
        self, ref: attempts.AttemptRef, *, namespace: str = "ns", credential: str = "secret"
    ) -> "RawSidecar":
        return RawSidecar(self.socket, ref, namespace=namespace, credential=credential)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    try:
        yield made
    finally:
        await made.hub.stop()


def spawn(parent: attempts.AttemptRef, serial: int = 1) -> messages.Spawn:
    return messages.Spawn(serial, parent, serial, None, None, CHILD, None)


async def test_inputs_come_first_and_again_after_a_reconnect(world: World) -> None:
    ref = await world.attempt(b'{"a": 1}')
    for _ in range(2):
        async with world.sidecar(ref) as sidecar:
            run = await sidecar.expect(messages.Run)
            assert (run.ref, run.inputs) == (ref, b'{"a": 1}')


async def test_attempt_that_spawns_a_child_counts_as_started(world: World) -> None:
    ref = await world.attempt()
    async with world.sidecar(ref) as sidecar:
        sidecar.say(spawn(ref), spawn(ref), messages.Progress(ref, 0.5, "half"))
        sidecar.say(messages.Renew(7))
        first, again = [await sidecar.expect(messages.Response) for _ in range(2)]
        assert (first.status, again.status) == (201, 200)
        assert first.body == again.body
        assert (await sidecar.expect(messages.Renewed)).number == 7
        view = world.hub.view(ref.task)
        assert view is not None
        assert view.state is api_task.State.RUNNING
        assert view.progress == model.Progress(0.5, "half")
        assert view.children.total == 1
    await world.link.finished(ref, attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded"))


async def test_link_of_an_ended_attempt_is_refused(world: World) -> None:
    ref = await world.attempt()
    async with world.sidecar(ref) as sidecar:
        await world.link.finished(ref, attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded"))
        sidecar.say(spawn(ref), messages.GetTask(2, ref, ref.task, 0.0))
        for _ in range(2):
            response = await sidecar.expect(messages.Response)
            assert (response.status, b"is over" in response.body) == (409, True)
    async with world.sidecar(ref) as sidecar:
        sidecar.say(messages.Renew(1))
        assert (await sidecar.expect(messages.Renewed)).number == 1


async def test_link_cannot_speak_for_another_attempt(world: World) -> None:
    mine, other = await world.attempt(), await world.attempt()
    for message in (
        spawn(other),
        messages.Progress(other, 0.5, ""),
        messages.GetTask(1, other, other.task, 0),
    ):
        async with world.sidecar(mine) as sidecar:
            sidecar.say(message)
            refused = await sidecar.expect(messages.Refused)
            assert (refused.reason, refused.retry) == ("Malformed", False)
    view = world.hub.view(other.task)
    assert view is not None
    assert (view.progress, view.children.total) == (None, 0)


async def test_link_cannot_submit_calls_or_report_ends(world: World) -> None:
    """Its attempt is not a call."""
    ref = await world.attempt()
    for message in (
        messages.CallsEnded(1, ()),
        messages.Watch(()),
        messages.Yielded(ref, 0, NOTHING),
    ):
        async with world.sidecar(ref) as sidecar:
            sidecar.say(message)
            refused = await sidecar.expect(messages.Refused)
            assert (refused.reason, refused.retry) == ("Malformed", False)


@pytest.mark.parametrize(
    ("namespace", "credential", "retry"), [("other", "secret", False), ("ns", "wrong", True)]
)
async def test_link_without_a_valid_token_is_refused(
    world: World, namespace: str, credential: str, *, retry: bool
) -> None:
    ref = await world.attempt(b"{}")
    sidecar = world.sidecar(ref, namespace=namespace, credential=credential)
    await sidecar.connect()
    refused = await sidecar.expect(messages.Refused)
    assert (refused.reason, refused.retry) == ("Credential", retry)
    await sidecar.closed()
    await sidecar.disconnect()


async def test_closed_link_is_forgotten(world: World) -> None:
    ref = await world.attempt()
    memory = world.hub._core.machine.memory
    async with world.sidecar(ref):
        assert list(memory.attempt_links.values()) == [ref]
    await waiting.wait_until_async(lambda: not memory.attempt_links, what="it is forgotten")
