"""Python calls on a worker whose manager is behind TLS: values of any size pass both ways."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import kilnwork as kiln
from support import remote_worker_world

LARGE = 3_000_000


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[remote_worker_world.World]:
    async with remote_worker_world.running(tmp_path) as made:
        yield made


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
    """Return the length of a child's large result, which only workers handle."""
    return length.submit(make.submit(size)).result()


@kiln.task
def slow_make(size: int) -> bytes:
    time.sleep(1)
    return b"y" * size


async def test_calls_run_and_results_come_back(world: remote_worker_world.World) -> None:
    def story() -> list[int]:
        with world.driver():
            return [future.result(timeout=30) for future in [double.submit(n) for n in range(50)]]

    assert await asyncio.to_thread(story) == [2 * n for n in range(50)]


async def test_large_values_pass_both_ways(world: remote_worker_world.World) -> None:
    def story() -> tuple[int, bytes, int]:
        with world.driver():
            there = length.submit(os.urandom(LARGE)).result(timeout=30)
            back = make.submit(LARGE).result(timeout=30)
            return there, back, both.submit(LARGE + 1).result(timeout=30)

    assert await asyncio.to_thread(story) == (LARGE, b"x" * LARGE, LARGE + 1)
    assert {method for method, path in world.manager.requests if "blobs" in path} >= {"GET", "PUT"}


async def test_worker_reads_each_value_once(
    world: remote_worker_world.World,
) -> None:
    def story() -> set[int]:
        with world.driver() as opened:
            reference = kiln.put(os.urandom(LARGE))
            assert opened.blobs is not None
            futures = [length.submit(reference) for _ in range(20)]
            return {future.result(timeout=30) for future in futures}

    assert await asyncio.to_thread(story) == {LARGE}
    assert [method for method, path in world.manager.requests if "sha256" in path] == ["GET"]


async def test_manager_that_is_away_for_a_moment_costs_no_task(
    world: remote_worker_world.World,
) -> None:
    def story() -> bytes:
        with world.driver():
            assert double.submit(1).result(timeout=30) == 2
            return slow_make.submit(LARGE).result(timeout=30)

    asked = asyncio.create_task(asyncio.to_thread(story))
    for _ in range(10):
        world.wire.cut()
        await asyncio.wait((asked,), timeout=0.3)
    assert len(await asked) == LARGE
