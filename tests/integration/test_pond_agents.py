"""Agents of a pond as processes: pinned once, fetched once, shared, and never mixed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kilnwork.api import data_pond
from kilnwork.controllers.data_pond import model
from support import lakes, pond_homes, ponds

NODES = ("node-1", "node-2", "node-3")
FILES = {f"d{n % 3}/f{n:02}.csv": (f"{n}\n" * (500 * n)).encode() for n in range(12)}


@pytest.fixture
def lake() -> Iterator[lakes.Lake]:
    with lakes.Lake(FILES) as served:
        yield served


@pytest.fixture
async def home(tmp_path: Path, lake: lakes.Lake) -> AsyncIterator[pond_homes.PondHome]:
    async with pond_homes.PondHome(tmp_path) as made:
        made.declare(http(lake))
        yield made


def http(lake: lakes.Lake, **more: str) -> data_pond.PondSource:
    return data_pond.PondSource(
        name="lake", uri=lake.uri, allow_addresses=(f"127.0.0.1:{lake.port}",), **more
    )


def market(digest: str, **changes: object) -> model.WantedSnapshot:
    source = data_pond.SnapshotSource(source="lake", paths=tuple(FILES))
    made = model.WantedSnapshot(name="market", digest=digest, source=source)
    return model.WantedSnapshot(
        **{**{f: getattr(made, f) for f in made.__struct_fields__}, **changes}
    )


async def pinned(home: pond_homes.PondHome, request: str = "r1") -> str:
    pin = await home.pin(data_pond.SnapshotSource(source="lake", paths=tuple(FILES)), request)
    assert pin.state == model.PINNED, pin
    return pin.digest


async def test_a_snapshot_is_read_once_and_is_on_all_nodes(
    home: pond_homes.PondHome, lake: lakes.Lake
) -> None:
    await home.start(*NODES)

    digest = await pinned(home)
    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", *NODES)

    assert digest == ponds.manifest_of(FILES).digest
    for node in NODES:
        assert ponds.read_files(home.run(node, "set-g1") / "market") == FILES
    assert sorted(lake.gets) == sorted(FILES)
    assert sum(home.counters(node).fetched_peers for node in NODES) == 2 * lake.sent


async def test_a_second_run_fetches_nothing(home: pond_homes.PondHome, lake: lakes.Lake) -> None:
    await home.start(*NODES)
    first = await pinned(home)
    home.want("set-g1", market(first))
    await home.until_ready("set-g1", *NODES)
    lake.requests.clear()
    before = {node: home.counters(node) for node in NODES}

    again = await pinned(home, "r2")
    home.want("set-g2", market(again))
    await home.until_ready("set-g2", *NODES)

    assert again == first
    assert lake.gets == []
    for node in NODES:
        assert home.counters(node).fetched_peers == before[node].fetched_peers
        assert home.counters(node).fetched_source == before[node].fetched_source
