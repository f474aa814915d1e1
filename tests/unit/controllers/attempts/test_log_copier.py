"""Output of attempts: followed while it is read, and copied once, wherever copying is
interrupted.
"""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from kilnwork.api import attempts, task
from kilnwork.controllers.attempts import log_copier as outputs
from kilnwork.executors import port
from kilnwork.kit import ids
from kilnwork.kube import errors
from support import waiting

REF = attempts.AttemptRef(ids.task_id("00000000-0000-7000-8000-000000000001"), 1, 1)
AWAY = errors.Unavailable(0, "", "the node is away")


class Container:
    """A container that prints the text set by the test, until it ends."""

    def __init__(self, name: str, *, life: int = 0) -> None:
        self.name = name
        self.life = life
        self.printed = b""
        self.over = False
        self.cut = 0
        """Readers are cut off so often."""
        self.readers = 0


class Executor:
    """The part of `port.Executor` that concerns output."""

    name = "pod"

    def __init__(self, *containers: Container) -> None:
        self.containers = containers
        self.is_away = False

    async def outputs(self, attempt: port.Attempt) -> list[port.AttemptOutput]:
        several = len(self.containers) > 1
        return [
            port.AttemptOutput(c.name if several else "", c.name, c.life, c.over)
            for c in self.containers
        ]

    async def logs(
        self, attempt: port.Attempt, output: port.AttemptOutput, how: port.LogRange
    ) -> AsyncGenerator[bytes, None]:
        if self.is_away:
            raise AWAY
        [found] = [c for c in self.containers if (c.name, c.life) == (output.source, output.life)]
        found.readers += 1
        at, cuts = how.skip, found.cut
        try:
            while True:
                if at < len(found.printed):
                    yield found.printed[at : at + 5]
                    at = min(at + 5, len(found.printed))
                elif not how.follow or found.over:
                    return
                if found.cut != cuts:
                    raise AWAY
                await asyncio.sleep(0)
        finally:
            found.readers -= 1


class Link:
    """Stores output as the dispatcher does: a piece that is already stored, by its offset, is
    skipped.
    """

    def __init__(self) -> None:
        self.kept = b""

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        assert offset <= len(self.kept)
        self.kept += data[len(self.kept) - offset :]

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        self.kept = b""


class World:
    """An attempt, its output copies and the link that stores them."""

    def __init__(self, *containers: Container) -> None:
        self.link = Link()
        self.executor = Executor(*containers)
        self.outputs = outputs.OutputCopies(lambda name: self.link)  # type: ignore[arg-type,return-value]

    def begin(self) -> None:
        made = port.Attempt(
            ref=REF, namespace="n", name="a", owner_uid="", spec=task.TaskSpec(), began=True
        )
        self.outputs.begin(self.executor, made)  # type: ignore[arg-type]

    async def wait_until_stored(self, kept: bytes) -> None:
        async def has() -> bool:
            return self.link.kept == kept

        await waiting.wait_until_async(has, what=f"{kept!r} is kept")


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "AGAIN_S", 0.01)


async def test_output_is_followed_while_read_and_completed_at_the_end() -> None:
    main = Container("main")
    world = World(main)
    world.begin()
    async with world.outputs.following(REF):
        main.printed = b"one\ntw"
        await world.wait_until_stored(b"one\ntw")
        main.printed += b"o\n"
        await world.wait_until_stored(b"one\ntwo\n")

    async def unread() -> bool:
        return main.readers == 0

    await waiting.wait_until_async(unread, what="no client reads any more")
    main.printed += b"three\n"
    main.over = True
    await world.outputs.finish(REF)
    assert world.link.kept == b"one\ntwo\nthree\n"


async def test_reader_that_starts_before_the_attempt_gets_all_output() -> None:
    main = Container("main")
    world = World(main)
    async with world.outputs.following(REF), world.outputs.following(REF):
        await world.outputs.catch_up(REF)
        world.begin()
        main.printed = b"one\n"
        await world.wait_until_stored(b"one\n")
        assert main.readers == 1


async def test_lost_connection_is_resumed_at_the_copied_offset() -> None:
    main, other = Container("main"), Container("other")
    main.printed, other.printed = b"1\n2\n3", b"a\nb\nc"
    world = World(main, other)
    world.begin()
    async with world.outputs.following(REF):
        for _ in range(3):
            main.cut += 1
            other.cut += 1
            main.printed += b"+\n4"
            other.printed += b"+\nd"
            await asyncio.sleep(0.02)

        async def all_whole() -> bool:
            return len(world.link.kept.splitlines()) == 10

        await waiting.wait_until_async(all_whole, what="whole lines are kept")
    main.over = other.over = True
    await world.outputs.finish(REF)
    kept = world.link.kept.decode().splitlines()
    assert [line for line in kept if line.startswith("[main] ")] == _named("main", main)
    assert [line for line in kept if line.startswith("[other] ")] == _named("other", other)
    assert len(kept) == 12


def _named(name: str, container: Container) -> list[str]:
    return [f"[{name}] {line}" for line in container.printed.decode().splitlines()]


async def test_output_is_not_duplicated_after_a_manager_restart() -> None:
    main = Container("main")
    main.printed = b"one\n"
    world = World(main)
    world.begin()
    await world.outputs.catch_up(REF)
    world.outputs = outputs.OutputCopies(lambda name: world.link)  # type: ignore[arg-type,return-value]
    main.printed += b"two\n"
    world.begin()
    await world.outputs.catch_up(REF)
    await world.outputs.catch_up(REF)
    assert world.link.kept == b"one\ntwo\n"


async def test_output_of_a_restarted_container_is_appended() -> None:
    main = Container("main")
    main.printed = b"one\n"
    world = World(main)
    world.begin()
    await world.outputs.catch_up(REF)
    again = Container("main", life=1)
    again.printed = b"one\n"
    world.executor.containers = (again,)
    await world.outputs.finish(REF)
    assert world.link.kept == b"one\none\n"


async def test_unreachable_node_fails_catch_up_but_not_finish() -> None:
    world = World(Container("main"))
    world.begin()
    world.executor.is_away = True
    with pytest.raises(errors.Unavailable, match="the node is away"):
        await world.outputs.catch_up(REF)
    await world.outputs.finish(REF)
    assert world.link.kept == b""


async def test_follower_of_an_unreachable_node_gets_output_after_its_return() -> None:
    main = Container("main")
    main.printed = b"one\n"
    world = World(main)
    world.executor.is_away = True
    world.begin()
    async with world.outputs.following(REF):
        await asyncio.sleep(0.03)
        world.executor.is_away = False
        await world.wait_until_stored(b"one\n")
