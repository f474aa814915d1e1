"""Agents of a pond as processes: snapshots are pinned once, fetched once, shared, and kept
apart.
"""

import asyncio
import functools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from kilnwork.api import data_pond
from kilnwork.controllers.data_pond import model
from kilnwork.data.pond import blob_fetch, blob_files, scrubbing
from kilnwork.pond import connections
from support import file_server, pond_manager, ponds

NODES = ("node-1", "node-2", "node-3")
FILES = {f"d{n % 3}/f{n:02}.csv": (f"{n}\n" * (500 * n)).encode() for n in range(12)}


@pytest.fixture
def lake() -> Iterator[file_server.FileServer]:
    with file_server.FileServer(FILES) as served:
        yield served


@pytest.fixture
async def home(
    tmp_path: Path, lake: file_server.FileServer
) -> AsyncIterator[pond_manager.PondManager]:
    async with pond_manager.PondManager(tmp_path) as made:
        made.declare(http(lake))
        yield made


def http(lake: file_server.FileServer, **more: str) -> data_pond.PondSource:
    return data_pond.PondSource(
        name="lake", uri=lake.uri, allow_addresses=(f"127.0.0.1:{lake.port}",), **more
    )


SOURCE = data_pond.SnapshotSource(source="lake", paths=tuple(FILES))


def market(
    digest: str,
    *,
    paths: tuple[str, ...] | None = None,
    access: str = "read",
    source: data_pond.SnapshotSource | None = SOURCE,
) -> model.WantedSnapshot:
    return model.WantedSnapshot(
        name="market", digest=digest, paths=paths, access=access, source=source
    )


async def pinned(home: pond_manager.PondManager, request: str = "r1") -> str:
    pin = await home.pin(SOURCE, request)
    assert pin.state == model.PINNED, pin
    return pin.digest


async def test_snapshot_is_read_once_and_is_on_all_nodes(
    home: pond_manager.PondManager, lake: file_server.FileServer
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


async def test_second_run_fetches_nothing(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
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


async def test_nodes_get_the_files_of_their_shards(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    await home.start("node-2")
    some, others = tuple(FILES)[:3], tuple(FILES)[3:5]
    home.want("set-g1", market(digest, paths=some), nodes=["node-2"])
    await home.until_ready("set-g1", "node-2")

    home.want("set-g1", market(digest, paths=some + others), nodes=["node-2"])
    await home.until_ready("set-g1", "node-2")

    found = ponds.read_files(home.run("node-2", "set-g1") / "market")
    assert found == {path: FILES[path] for path in some + others}
    assert home.counters("node-2").fetched_peers == sum(len(FILES[p]) for p in some + others)
    assert set(home.ready("set-g1")) == {"node-2"}


async def test_source_is_used_when_no_peer_responds(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    await home.kill("node-1")
    await home.start("node-2")
    lake.requests.clear()

    home.want("set-g1", market(digest), nodes=["node-2"])
    await home.until_ready("set-g1", "node-2")

    assert sorted(lake.gets) == sorted(FILES)


async def test_peers_are_not_used_when_disabled(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    home.declare(http(lake), fetch=data_pond.PondFetch(from_peers=False))
    await home.start("node-1", "node-2")
    digest = await pinned(home)

    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", "node-1", "node-2")

    assert sorted(lake.gets) == sorted([*FILES, *FILES])
    assert home.counters("node-1").served == home.counters("node-2").served == 0


async def test_changed_source_still_delivers_the_pinned_snapshot(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    lake.files = dict.fromkeys(FILES, b"changed")
    await home.start("node-2")

    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", "node-1", "node-2")

    assert ponds.read_files(home.run("node-2", "set-g1") / "market") == FILES


async def test_changed_source_is_not_delivered_as_the_pinned_snapshot(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    await home.kill("node-1")
    lake.files = dict.fromkeys(FILES, b"changed")
    await home.start("node-2")

    home.want("set-g1", market(digest), nodes=["node-2"])
    await home.until(lambda: home.ready("set-g1")["node-2"].reason == "SourceChanged")

    assert home.ready("set-g1")["node-2"].lasting
    assert not (home.run("node-2", "set-g1") / "market").exists()


async def test_damaged_source_is_data_corruption(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    await home.kill("node-1")
    numbers = iter(range(1000))
    lake.damage = lambda path, content: (
        f"{next(numbers):04}".encode() + content[4:] if path.endswith("f07.csv") else content
    )
    await home.start("node-2")

    home.want("set-g1", market(digest), nodes=["node-2"])
    await home.until(lambda: home.ready("set-g1")["node-2"].reason == "DataCorrupt")

    assert home.counters("node-2").quarantined == blob_fetch.TRIES
    assert not (home.run("node-2", "set-g1") / "market").exists()


async def test_modified_blob_is_fetched_again(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1", "node-2")
    digest = await pinned(home)
    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", "node-1", "node-2")
    _scribble(home.run("node-2", "set-g1") / "market" / tuple(FILES)[4])

    home.want("set-g2", market(digest))
    await home.until_ready("set-g2", "node-1", "node-2")

    for node in ("node-1", "node-2"):
        for lease in ("set-g1", "set-g2"):
            await home.until_ready(lease, node)
            assert ponds.read_files(home.run(node, lease) / "market") == FILES


async def test_modified_tree_is_repaired_by_the_next_agent(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", "node-1")
    _scribble(home.run("node-1", "set-g1") / "market" / tuple(FILES)[4])

    await home.kill("node-1")
    await home.start("node-1")
    await home.until(lambda: home.counters("node-1").quarantined == 1)
    await home.until_ready("set-g1", "node-1")

    assert ponds.read_files(home.run("node-1", "set-g1") / "market") == FILES


async def test_damaged_irreplaceable_blob_is_not_readable(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", "node-1")
    path = tuple(FILES)[4]
    _scribble(home.run("node-1", "set-g1") / "market" / path)
    await home.kill("node-1")
    lake.files = dict.fromkeys(FILES, b"changed")

    await home.start("node-1")
    await home.until(lambda: home.ready("set-g1")["node-1"].reason == "SourceChanged")

    left = {other: content for other, content in FILES.items() if other != path}
    assert ponds.read_files(home.run("node-1", "set-g1") / "market") == left
    lake.files = dict(FILES)
    await home.kill("node-1")
    await home.start("node-1")
    await home.until_ready("set-g1", "node-1")
    assert ponds.read_files(home.run("node-1", "set-g1") / "market") == FILES


def _is_whole(tree: Path) -> bool:
    """Return whether all files are intact; a tree being rebuilt is absent for a moment."""
    try:
        return ponds.read_files(tree) == FILES
    except FileNotFoundError:
        return False


def _scribble(file: Path) -> None:
    file.chmod(0o644)
    file.write_bytes(b"scribble")


async def test_restarted_manager_releases_nothing(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1", "node-2")
    digest = await pinned(home)
    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", "node-1", "node-2")

    await home.restart_manager()
    home.declare(http(lake))
    both = {"node-1", "node-2"}
    await home.until(lambda: home.ledger.nodes(pond_manager.NAMESPACE, pond_manager.POND) == both)

    mine = {(pond_manager.POND, "set-g1")}
    await home.until(lambda: home.ledger.leases(pond_manager.NAMESPACE) == mine)
    assert ponds.read_files(home.run("node-1", "set-g1") / "market") == FILES
    lake.requests.clear()
    home.want("set-g1", market(digest))
    await home.until_ready("set-g1", "node-1", "node-2")
    assert lake.gets == []

    home.ledger.release(pond_manager.NAMESPACE, pond_manager.POND, "set-g1")
    await home.until(lambda: not home.run("node-1", "set-g1").exists())
    await home.until(lambda: not home.run("node-2", "set-g1").exists())


async def test_snapshot_is_found_by_its_digest_after_a_restart(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    await home.restart_manager()
    home.declare(http(lake))
    lake.files = dict.fromkeys(FILES, b"changed")

    def asked() -> model.Pin:
        return home.ledger.want_pin(
            pond_manager.NAMESPACE, pond_manager.POND, SOURCE, request="r", digest=digest
        )

    await home.until(lambda: asked().state != model.PENDING)

    assert (asked().state, asked().digest) == (model.PINNED, digest)


async def test_released_lease_frees_its_data(home: pond_manager.PondManager) -> None:
    home.declare(capacity="1Mi", high_watermark=0.5, low_watermark=0.1)
    await home.start("node-1")
    snapshots = []
    for number in range(4):
        content = {"f": str(number) * 200_000}
        pin = await home.pin(data_pond.SnapshotSource(inline=content), f"r{number}")
        lease = f"set-g{number}"
        home.want(lease, market(pin.digest, source=None))
        await home.until_ready(lease, "node-1")
        home.ledger.release(pond_manager.NAMESPACE, pond_manager.POND, lease)
        snapshots.append(pin.digest)

    def held() -> set[str]:
        nodes = home.ledger.node_views(pond_manager.NAMESPACE, pond_manager.POND) or ()
        return {one.digest for node in nodes for one in node.snapshots}

    await home.until(lambda: snapshots[0] not in held())
    assert snapshots[3] in held()
    assert home.counters("node-1").evicted >= 200_000


async def test_full_pond_is_reported_and_resumes_with_room(
    home: pond_manager.PondManager,
) -> None:
    home.declare(capacity="300k")
    await home.start("node-1")
    first = await home.pin(data_pond.SnapshotSource(inline={"f": "1" * 200_000}), "r1")
    home.want("set-g1", market(first.digest, source=None))
    await home.until_ready("set-g1", "node-1")

    second = data_pond.SnapshotSource(inline={"f": "2" * 200_000})

    def asked() -> model.Pin:
        return home.ledger.want_pin(pond_manager.NAMESPACE, pond_manager.POND, second, request="r2")

    await home.until(lambda: asked().reason == "PondFull")
    assert asked().state == model.PENDING
    state = home.ledger.state(pond_manager.NAMESPACE, pond_manager.POND)
    assert state is not None
    assert [node for node, _ in state.full_nodes()] == ["node-1"]

    home.ledger.release(pond_manager.NAMESPACE, pond_manager.POND, "set-g1")
    await home.until(lambda: asked().state == model.PINNED)


async def test_agent_without_the_token_is_refused(home: pond_manager.PondManager) -> None:
    (home.directory / "token").write_text("a-guess")
    await home.start("node-1")

    await home.until(lambda: "manager does not respond" in home.log("node-1"))

    assert home.ledger.nodes(pond_manager.NAMESPACE, pond_manager.POND) == frozenset()


async def test_nodes_that_share_a_disk_are_served_by_one_agent(
    home: pond_manager.PondManager, lake: file_server.FileServer, tmp_path: Path
) -> None:
    (tmp_path / "node-2").symlink_to(tmp_path / "node-1")
    await home.start("node-1")
    digest = await pinned(home)
    await home.start("node-2")
    both = {"node-1", "node-2"}
    await home.until(lambda: home.ledger.nodes(pond_manager.NAMESPACE, pond_manager.POND) == both)

    home.want("set-g1", market(digest), nodes=["node-2"])
    await home.until_ready("set-g1", "node-2")

    assert ponds.read_files(home.run("node-2", "set-g1") / "market") == FILES
    await home.kill("node-1")
    lake.requests.clear()
    home.want("set-g2", market(digest), nodes=["node-2"])
    await home.until_ready("set-g2", "node-2")
    assert lake.gets == []


async def test_directory_of_another_pond_is_refused(
    home: pond_manager.PondManager, tmp_path: Path
) -> None:
    theirs = ponds.opened(tmp_path / "node-2", pond="other/lake")
    await home.start("node-2")

    def trouble() -> list[str]:
        views = home.ledger.node_views(pond_manager.NAMESPACE, pond_manager.POND) or ()
        return [one.reason for one in views if one.node == "node-2"]

    await home.until(lambda: trouble() == ["PondInUse"])
    theirs.close()
    shutil.rmtree(tmp_path / "node-2")
    await home.until(lambda: trouble() == [""])


async def test_agent_stops_on_sigterm(home: pond_manager.PondManager) -> None:
    await home.start("node-1")
    await home.until(lambda: len(home.ledger.nodes(pond_manager.NAMESPACE, pond_manager.POND)) == 1)

    assert await home.kill("node-1", signal.SIGTERM) == 0


async def test_agent_ends_when_its_server_is_gone(home: pond_manager.PondManager) -> None:
    await home.start("node-1", absence_s=3)
    await home.until(lambda: len(home.ledger.nodes(pond_manager.NAMESPACE, pond_manager.POND)) == 1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(home.agents["node-1"].wait(), 5)

    await home.stop_manager()

    assert await asyncio.wait_for(home.agents["node-1"].wait(), 30) == 0
    await home.start_manager()


async def test_killed_agent_fetches_nothing_twice(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    """Killed repeatedly at seeded moments, it resumes where it was."""
    seed = int(os.environ.get("POND_SEED", "7"))
    chance = Random(seed)
    lake.files = {f"f{n}": chance.randbytes(300_000) for n in range(12)}
    lake.pause_s = 0.03
    source = data_pond.SnapshotSource(source="lake", paths=tuple(lake.files))
    home.declare(http(lake), fetch=data_pond.PondFetch(parallel=2))

    def asked() -> model.Pin:
        return home.ledger.want_pin(pond_manager.NAMESPACE, pond_manager.POND, source, request="r1")

    def whole() -> dict[str, int]:
        """How often each file was asked for that the agent knows to be in the pond: it notes that
        once its blob is there (`pin_journal`), and reads again what it was killed before noting."""
        blobs = {path.name for path in (home.root("node-1") / "blobs").glob("*/*")}
        journals = (home.root("node-1") / "sources").glob("*.ndjson")
        lines = b"".join(path.read_bytes() for path in journals).splitlines()
        noted = {json.loads(line)[0] for line in lines if line}
        assert {ponds.digest_of(lake.files[path])[7:] for path in noted} <= blobs
        return {path: lake.gets.count(path) for path in noted}

    def enough(target: int) -> bool:
        return lake.sent >= target or asked().state == model.PINNED

    before: dict[str, int] = {}
    for _ in range(6):
        await home.start("node-1")
        await home.until(functools.partial(enough, lake.sent + chance.randrange(1, 900_000)))
        await home.kill("node-1")
        now = whole()
        assert before == {path: now.get(path) for path in before}, f"seed {seed}"
        before = now

    await home.start("node-1")
    await home.until(lambda: asked().state == model.PINNED)
    assert asked().digest == ponds.manifest_of(lake.files).digest
    assert before == {path: lake.gets.count(path) for path in before}, f"seed {seed}"


async def test_agent_killed_during_delivery_resumes(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> None:
    """Including trees and leases: at every moment a run sees all of the snapshot or none of it."""
    seed = int(os.environ.get("POND_SEED", "7"))
    chance = Random(seed)
    lake.files = {f"d{n % 5}/f{n}": chance.randbytes(40_000) for n in range(60)}
    made = ponds.manifest_of(lake.files)
    lake.pause_s = 0.01
    source = data_pond.SnapshotSource(source="lake", paths=tuple(lake.files))
    home.declare(http(lake), fetch=data_pond.PondFetch(parallel=2))
    home.ledger.put_manifest(pond_manager.NAMESPACE, pond_manager.POND, made)
    for access in ("read", "copy"):
        home.want(f"set-{access}", market(made.digest, access=access, source=source))

    for _ in range(5):
        await home.start("node-1")
        target = lake.sent + chance.randrange(1, 1_000_000)
        both = {"set-read", "set-copy"}
        await home.until(functools.partial(_sent_or_ready, home, lake, target=target, leases=both))
        await asyncio.sleep(chance.random() * 0.05)
        await home.kill("node-1")
        for access in ("read", "copy"):
            run = home.run("node-1", f"set-{access}")
            if (run / ".market.ready").exists():
                assert ponds.read_files(run / "market") == lake.files, f"seed {seed}"

    await home.start("node-1")
    for access in ("read", "copy"):
        await home.until_ready(f"set-{access}", "node-1")
        run = home.run("node-1", f"set-{access}")
        assert ponds.read_files(run / "market") == lake.files, f"seed {seed}"
        assert not list(run.glob(".*.new")), f"seed {seed}"


def _sent_or_ready(
    home: pond_manager.PondManager, lake: file_server.FileServer, *, target: int, leases: set[str]
) -> bool:
    ready = (home.ready(lease).get("node-1") for lease in leases)
    return lake.sent >= target or all(one is not None and one.ready for one in ready)


async def test_snapshots_have_the_names_of_expressions(home: pond_manager.PondManager) -> None:
    await home.start("node-1")
    wanted = msgspec.structs.replace(market(await pinned(home)), name="dailyTrades")

    home.want("set-g1", wanted)
    await home.until_ready("set-g1", "node-1")

    assert ponds.read_files(home.run("node-1", "set-g1") / "dailyTrades") == FILES


# file jobs


async def test_snapshot_waits_for_a_running_file_job(home: pond_manager.PondManager) -> None:
    home.jobs["quant/one/parts"] = None
    await home.start("node-1")
    source = data_pond.SnapshotSource(files="one", path="parts")

    def waits() -> bool:
        found = home.ledger.want_pin("quant", "lake", source, request="r1")
        return found.reason == "SourceUnreachable" and "1 of 2 parts" in found.message

    await home.until(waits)
    files = {"00001.ndjson": b"1\n", "00002.ndjson": b"2\n"}
    home.jobs["quant/one/parts"] = files
    pin = await home.pin(source)

    assert pin.digest == ponds.manifest_of(files).digest


async def test_file_job_of_another_namespace_is_not_found(home: pond_manager.PondManager) -> None:
    home.jobs["other/one/results"] = {"results.ndjson": b"secret"}
    await home.start("node-1")

    pin = await home.pin(data_pond.SnapshotSource(files="one"))

    assert (pin.state, pin.reason) == ("Failed", "SourceMissing")


# sources that hang


@pytest.fixture
async def stuck(
    home: pond_manager.PondManager, lake: file_server.FileServer
) -> AsyncIterator[file_server.FileServer]:
    """Make the source accept requests without responding; an agent waits for it with all its
    threads.
    """
    with file_server.FileServer({f"f{n}": b"x" for n in range(40)}) as made:
        made.hangs = True
        slow = data_pond.PondSource(
            name="slow", uri=made.uri, allow_addresses=(f"127.0.0.1:{made.port}",)
        )
        home.declare(http(lake), slow)
        await home.start("node-1")
        source = data_pond.SnapshotSource(source="slow", paths=tuple(made.files))
        for number in range(12):
            home.ledger.want_pin("quant", "lake", source, request=f"slow-{number}")
        await home.until(lambda: len(made.requests) >= 8)
        yield made


async def test_hanging_source_does_not_block_others(
    home: pond_manager.PondManager, stuck: file_server.FileServer
) -> None:
    digest = await pinned(home)
    home.want("one", market(digest), nodes=["node-1"])
    await home.until_ready("one", "node-1")

    assert ponds.read_files(home.run("node-1", "one") / "market") == FILES
    hung = home.ledger.want_pin(
        "quant", "lake", data_pond.SnapshotSource(source="slow"), request="slow-0"
    )
    assert hung.state == model.PENDING


async def test_agent_stops_although_a_source_hangs(
    home: pond_manager.PondManager, stuck: file_server.FileServer
) -> None:
    async with asyncio.timeout(connections.STALL_S / 4):
        assert await home.kill("node-1", signal.SIGTERM) == 0


# ponds that are deleted


def is_removed(home: pond_manager.PondManager, *nodes: str) -> bool:
    state = home.ledger.state("quant", "lake")
    return state is not None and all(state.agents[node].report.removed for node in nodes)


async def test_deleted_pond_leaves_nothing_on_its_nodes(home: pond_manager.PondManager) -> None:
    await home.start(*NODES[:2])
    digest = await pinned(home)
    home.want("one", market(digest), market2(digest))
    await home.until_ready("one", *NODES[:2])

    home.ledger.remove("quant", "lake")
    await home.until(lambda: is_removed(home, *NODES[:2]))

    assert [home.root(node).exists() for node in NODES[:2]] == [False, False]


def market2(digest: str) -> model.WantedSnapshot:
    return model.WantedSnapshot(name="own", digest=digest, access="copy", source=SOURCE)


async def test_interrupted_removal_is_finished_by_the_next_agent(
    home: pond_manager.PondManager,
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    home.want("one", market(digest))
    await home.until_ready("one", "node-1")
    await home.kill("node-1")
    shutil.rmtree(home.root("node-1") / "blobs")
    home.ledger.remove("quant", "lake")

    await home.start("node-1")
    await home.until(lambda: is_removed(home, "node-1"))

    assert not home.root("node-1").exists()


async def test_directory_of_another_pond_is_unchanged(home: pond_manager.PondManager) -> None:
    other = ponds.opened(home.root("node-1"), pond="quant/other")
    await home.start("node-1")
    await home.until(lambda: "node-1" in home.ledger.nodes("quant", "lake"))

    home.ledger.remove("quant", "lake")
    await home.until(lambda: is_removed(home, "node-1"))

    assert (home.root("node-1") / "identity").exists()
    other.close()


# damage at rest


@pytest.mark.parametrize("cut", [False, True])
async def test_damage_at_rest_is_found_and_the_run_reads_intact_files(
    home: pond_manager.PondManager, *, cut: bool
) -> None:
    await home.start("node-1")
    digest = await pinned(home)
    home.want("one", market(digest))
    await home.until_ready("one", "node-1")
    await home.kill("node-1")
    path = max(FILES, key=lambda name: len(FILES[name]))
    name = ponds.digest_of(FILES[path])[7:]
    blob = home.root("node-1") / "blobs" / name[:2] / name
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        if cut:
            file.truncate(len(FILES[path]) - 1)
        else:
            file.write(b"!")
    os.utime(blob, ns=(blob_files.STAMP_NS, blob_files.STAMP_NS))
    scrubbing.position_path(home.root("node-1")).write_bytes(b"{}")

    await home.start("node-1")
    await home.until(lambda: home.counters("node-1").quarantined == 1)
    await home.until(lambda: _is_whole(home.run("node-1", "one") / "market"))
    await home.until_ready("one", "node-1")

    counters = home.counters("node-1")
    assert counters.fetched_source == len(FILES[path])
    assert (home.root("node-1") / "quarantine" / name).exists()


async def test_damaged_peer_repairs_itself(home: pond_manager.PondManager) -> None:
    """An agent that fetches from it still gets intact files, from the source."""
    await home.start("node-1")
    digest = await pinned(home)
    home.want("one", market(digest), nodes=["node-1"])
    await home.until_ready("one", "node-1")
    path = max(FILES, key=lambda name: len(FILES[name]))
    name = ponds.digest_of(FILES[path])[7:]
    blob = home.root("node-1") / "blobs" / name[:2] / name
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.write(b"!")
    os.utime(blob, ns=(blob_files.STAMP_NS, blob_files.STAMP_NS))

    await home.start("node-2")
    home.want("two", market(digest), nodes=["node-2"])
    await home.until_ready("two", "node-2")
    await home.until(lambda: _is_whole(home.run("node-1", "one") / "market"))

    await home.until(lambda: home.counters("node-1").quarantined == 1)

    assert ponds.read_files(home.run("node-2", "two") / "market") == FILES
