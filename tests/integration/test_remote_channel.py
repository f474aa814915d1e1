"""Python calls on a worker whose manager is behind TLS: values of any size go there and back."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.channel import client
from kilnwork.sdk import driver
from support import far_manager, worker_process

LARGE = 3_000_000
HERE = Path(__file__)


class House:
    """A manager, a wire to it, a worker at its end; and a driver on the manager's machine."""

    def __init__(
        self, folder: Path, manager: far_manager.FarManager, wire: far_manager.Wire
    ) -> None:
        self.manager = manager
        self.wire = wire
        self.worker = worker_process.WorkerProcess(
            folder,
            channel=Path("/nowhere"),
            KILN_CHANNEL=f"tls://localhost:{wire.port}",
            KILN_CA_FILE=str(manager.ca),
            KILN_PYTHONPATH=f"{HERE.parents[2]}:{HERE.parents[1]}",
        )

    @contextlib.contextmanager
    def driver(self) -> Iterator[driver.Driver]:
        """In a thread: it blocks."""
        opened = driver.Driver(
            connect=lambda: client.unix(str(self.manager.socket)),
            credential=lambda: far_manager.SECRET,
            cluster="counter",
        )
        opened.shares_files = False
        opened.open(timeout_s=10)
        try:
            yield opened
        finally:
            opened.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with (
        far_manager.serving_in(tmp_path) as manager,
        far_manager.Wire(manager.port) as wire,
    ):
        made = House(tmp_path, manager, wire)
        made.worker.start()
        yield made
        made.worker.destroy()


@kiln.task
def double(number: int) -> int:
    return 2 * number


@kiln.task
def make(size: int) -> bytes:
    return b"x" * size


@kiln.task
def length(data: bytes) -> int:
    return len(data)


@kiln.task
def both(size: int) -> int:
    """A child's large result, made and used on workers alone."""
    return length.submit(make.submit(size)).result()


@kiln.task
def slow_make(size: int) -> bytes:
    time.sleep(1)
    return b"y" * size


async def test_calls_run_and_results_come_back(house: House) -> None:
    def story() -> list[int]:
        with house.driver():
            return [future.result(timeout=20) for future in [double.submit(n) for n in range(50)]]

    assert await asyncio.to_thread(story) == [2 * n for n in range(50)]


async def test_large_values_go_there_and_back(house: House) -> None:
    def story() -> tuple[int, bytes, int]:
        with house.driver():
            there = length.submit(os.urandom(LARGE)).result(timeout=20)
            back = make.submit(LARGE).result(timeout=20)
            return there, back, both.submit(LARGE + 1).result(timeout=20)

    assert await asyncio.to_thread(story) == (LARGE, b"x" * LARGE, LARGE + 1)
    assert {method for method, path in house.manager.requests if "blobs" in path} >= {"GET", "PUT"}


async def test_what_a_worker_has_read_it_does_not_read_again(house: House) -> None:
    def story() -> set[int]:
        with house.driver() as opened:
            reference = kiln.put(os.urandom(LARGE))
            assert opened.blobs is not None
            futures = [length.submit(reference) for _ in range(20)]
            return {future.result(timeout=20) for future in futures}

    assert await asyncio.to_thread(story) == {LARGE}
    assert [method for method, path in house.manager.requests if "sha256" in path] == ["GET"]


async def test_a_manager_that_is_away_for_a_moment_costs_no_task(house: House) -> None:
    def story() -> bytes:
        with house.driver():
            assert double.submit(1).result(timeout=20) == 2
            return slow_make.submit(LARGE).result(timeout=20)

    asked = asyncio.create_task(asyncio.to_thread(story))
    for _ in range(10):
        house.wire.cut()
        await asyncio.wait((asked,), timeout=0.3)
    assert len(await asked) == LARGE
