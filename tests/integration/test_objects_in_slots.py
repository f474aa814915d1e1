"""Parts of a file mapped and merged by a worker that reaches its manager over the network."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kilnwork as kiln
from kilnwork.api import filejobs
from kilnwork.data import part_commits
from kilnwork.data.stores import local, port
from kilnwork.jobs.work import part as parts
from kilnwork.jobs.work import reduce
from support import remote_worker_world

LINES = 20_000
PARTS = 4


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[remote_worker_world.World]:
    async with remote_worker_world.running(tmp_path) as made:
        yield made


@kiln.task
def run_part(work: dict[str, Any]) -> dict[str, Any]:
    return parts.run(work)


@kiln.task
def run_reduce(work: dict[str, Any]) -> dict[str, Any]:
    return reduce.run(work)


def part_works() -> tuple[bytes, list[filejobs.PartWork]]:
    """Return the work on each part of an input of lines."""
    lines = [b'{"line": %d}\n' % number for number in range(1, LINES + 1)]
    content, each = b"".join(lines), LINES // PARTS
    made, at = [], 0
    for number in range(1, PARTS + 1):
        mine = b"".join(lines[(number - 1) * each : number * each])
        part = filejobs.Part(
            number=number,
            start=at,
            end=at + len(mine),
            first_line=(number - 1) * each + 1,
            lines=each,
            crc32=zlib.crc32(mine),
        )
        at += len(mine)
        made.append(
            filejobs.PartWork(
                store="kiln:default/j",
                job="j",
                input="input",
                format=filejobs.InputSpec(),
                part=part,
                run=1,
                mapper=filejobs.Mapper(builtin="identity"),
            )
        )
    return content, made


async def test_parts_go_through_the_manager_and_back(world: remote_worker_world.World) -> None:
    content, made = part_works()
    job = local.LocalStore(world.manager.files.directory / "default" / "j")
    job.put("input", content)
    reducing = filejobs.ReduceWork(
        store="kiln:default/j",
        job="j",
        parts=tuple((work.part.number, work.run) for work in made),
        run=1,
    )

    def story() -> list[filejobs.Commit]:
        with world.driver():
            sent = [run_part.submit(msgspec.to_builtins(work)) for work in made]
            reported = [future.result(timeout=30) for future in sent]
            again = run_part.submit(msgspec.to_builtins(made[0])).result(timeout=30)
            assert again == reported[0]
            run_reduce.submit(msgspec.to_builtins(reducing)).result(timeout=30)
            return [msgspec.convert(each, filejobs.Commit) for each in reported]

    asked = asyncio.create_task(asyncio.to_thread(story))
    for _ in range(4):  # and the network is bad
        world.wire.cut()
        await asyncio.wait((asked,), timeout=0.4)
    reported = await asked
    assert reported == [part_commits.find(job, number, 1) for number in range(1, PARTS + 1)]
    assert all(commit.records.succeeded == LINES // PARTS for commit in reported)
    result = part_commits.find(job, 0, 1)
    assert result is not None
    assert result.output is not None
    assert port.read_all(job, result.output.key) == content
    assert {method for method, path in world.manager.requests if "objects" in path} >= {
        "GET",
        "PUT",
    }
