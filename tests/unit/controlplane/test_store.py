"""The store: numbering, visibility, durability, compaction, failures."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from kilnwork.api import meta
from kilnwork.controlplane import errors, store, store_types

PODS = "pods"


def key(name: str, namespace: str = "default", resource: str = PODS) -> store_types.Key:
    return store_types.Key(resource, namespace, name)


def obj(name: str, **more: Any) -> meta.JsonObject:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, **more}


async def open_store(path: Path, **settings: int) -> store.Store:
    started_store = store.Store(path, **settings)
    await started_store.start()
    return started_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.db"


@pytest.fixture
async def started_store(path: Path) -> AsyncIterator[store.Store]:
    found = await open_store(path)
    yield found
    await found.stop()


def names(found: Sequence[store_types.Stored]) -> list[str]:
    return [s.key.name for s in found]


async def test_write_gets_a_sequence_number_and_is_readable(started_store: store.Store) -> None:
    first = await started_store.put(key("a"), obj("a"), expected=0)
    second = await started_store.put(key("b"), obj("b"), expected=0)
    assert (first.sequence, second.sequence, started_store.sequence) == (1, 2, 2)
    found = started_store.get(key("a"))
    assert found is not None
    assert found.decode()["metadata"]["resourceVersion"] == "1"


async def test_write_is_invisible_before_commit(started_store: store.Store) -> None:
    writing = asyncio.ensure_future(started_store.put(key("a"), obj("a"), expected=0))
    await asyncio.sleep(0)
    assert started_store.get(key("a")) is None
    head = started_store.head(key("a"))
    assert head is not None
    assert head.sequence == 1
    await writing
    assert started_store.get(key("a")) == head


async def test_writers_build_on_accepted_writes(started_store: store.Store) -> None:
    first = asyncio.ensure_future(started_store.put(key("a"), obj("a", v=1), expected=0))
    await asyncio.sleep(0)
    with pytest.raises(errors.Superseded):
        await started_store.put(key("a"), obj("a", v=2), expected=0)
    stored = await started_store.put(key("a"), obj("a", v=3), expected=1)
    assert (await first).sequence == 1
    assert stored.decode()["v"] == 3


async def test_wait_committed_waits_for_the_commit(started_store: store.Store) -> None:
    writing = asyncio.ensure_future(started_store.put(key("a"), obj("a"), expected=0))
    await asyncio.sleep(0)
    await started_store.wait_committed(key("a"))
    assert started_store.get(key("a")) is not None
    await writing


async def test_cancelled_writer_does_not_undo_the_write(started_store: store.Store) -> None:
    writing = asyncio.ensure_future(started_store.put(key("a"), obj("a"), expected=0))
    await asyncio.sleep(0)
    writing.cancel()
    await started_store.put(key("b"), obj("b"), expected=0)
    assert started_store.get(key("a")) is not None


async def test_remove_returns_last_state_with_new_sequence(
    started_store: store.Store,
) -> None:
    await started_store.put(key("a"), obj("a", v=1), expected=0)
    change = await started_store.remove(key("a"), expected=1)
    assert started_store.get(key("a")) is None
    assert change.action == "DELETED"
    assert change.decode() == {
        "metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "2"},
        "v": 1,
    }
    with pytest.raises(errors.Superseded):
        await started_store.remove(key("a"), expected=1)


async def test_select_sorts_and_filters_by_namespace(started_store: store.Store) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y"), ("ab", "q")):
        await started_store.put(key(name, namespace), obj(name), expected=0)
    assert names(list(started_store.select(PODS))) == ["y", "z", "q", "x"]
    assert names(list(started_store.select(PODS, "a"))) == ["y", "z"]
    assert names(list(started_store.select(PODS, "a", after=("a", "y")))) == ["z"]
    assert names(list(started_store.select(PODS, after=("a", "z")))) == ["q", "x"]
    assert started_store.count(PODS) == 4


async def test_select_at_returns_an_earlier_state(started_store: store.Store) -> None:
    await started_store.put(key("a"), obj("a", v=1), expected=0)
    await started_store.put(key("b"), obj("b"), expected=0)
    await started_store.put(key("a"), obj("a", v=2), expected=1)
    await started_store.remove(key("b"), expected=2)
    await started_store.put(key("c"), obj("c"), expected=0)
    former = started_store.select_at(PODS, 2)
    assert [(s.key.name, s.sequence) for s in former] == [("a", 1), ("b", 2)]
    assert former[0].decode()["v"] == 1
    assert names(started_store.select_at(PODS, 4)) == ["a"]


async def test_followers_get_committed_changes_in_order(started_store: store.Store) -> None:
    heard: list[tuple[int, str]] = []

    def follow(changes: Sequence[store_types.StoreChange]) -> None:
        assert started_store.sequence == changes[-1].sequence
        heard.extend((c.sequence, c.action) for c in changes)

    stop = started_store.follow(follow)
    await asyncio.gather(
        *(started_store.put(key(f"p{i}"), obj(f"p{i}"), expected=0) for i in range(50))
    )
    await started_store.remove(key("p0"), expected=1)
    assert heard == [*((i, "ADDED") for i in range(1, 51)), (51, "DELETED")]
    stop()
    await started_store.put(key("z"), obj("z"), expected=0)
    assert len(heard) == 51


async def test_restart_continues_numbering_and_keeps_the_log(path: Path) -> None:
    started_store = await open_store(path)
    await started_store.put(key("a"), obj("a", v=1), expected=0)
    await started_store.put(key("a"), obj("a", v=2), expected=1)
    await started_store.put(key("b"), obj("b"), expected=0)
    await started_store.remove(key("b"), expected=3)
    before = list(started_store.changes_since(0))
    await started_store.stop()
    again = await open_store(path)
    try:
        assert again.sequence == 4
        assert list(again.changes_since(0)) == before
        assert names(list(again.select(PODS))) == ["a"]
        assert (await again.put(key("c"), obj("c"), expected=0)).sequence == 5
    finally:
        await again.stop()


async def test_old_changes_are_dropped_and_numbering_continues(path: Path) -> None:
    started_store = await open_store(path, keep_changes=100)
    for round_ in range(15):
        await asyncio.gather(
            *(started_store.put(key(f"p{round_}-{i}"), obj("p"), expected=0) for i in range(100))
        )
    with pytest.raises(errors.TooOld, match="too old resource version: 5"):
        started_store.changes_since(5)
    assert len(started_store.changes_since(1450)) == 50
    for stored in list(started_store.select(PODS)):
        await started_store.remove(stored.key, expected=stored.sequence)
    await started_store.stop()
    again = await open_store(path, keep_changes=100)
    try:
        assert (again.sequence, again.count(PODS)) == (3000, 0)
        with pytest.raises(errors.TooOld):
            again.changes_since(1000)
        assert (await again.put(key("n"), obj("n"), expected=0)).sequence == 3001
    finally:
        await again.stop()


async def test_large_previous_states_are_dropped_sooner(path: Path) -> None:
    started_store = await open_store(path, keep_bytes=100_000)
    stored = await started_store.put(key("a"), obj("a", data="x" * 10_000), expected=0)
    for _ in range(40):
        stored = await started_store.put(
            key("a"), obj("a", data="x" * 10_000), expected=stored.sequence
        )
    with pytest.raises(errors.TooOld):
        started_store.changes_since(1)
    assert len(started_store.changes_since(39)) == 2
    await started_store.stop()


async def test_failed_commit_fails_all_its_writers(path: Path) -> None:
    started_store = await open_store(path)
    await started_store.put(key("kept"), obj("kept"), expected=0)
    await started_store.stop()
    disk = apsw.Connection(str(path))
    disk.execute(
        "CREATE TRIGGER full BEFORE INSERT ON object WHEN new.name = 'poison' "
        "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    disk.close()
    started_store = await open_store(path)
    heard: list[store_types.StoreChange] = []
    started_store.follow(heard.extend)
    wanted = ("one", "poison", "two")
    outcomes = await asyncio.gather(
        *(started_store.put(key(n), obj(n), expected=0) for n in wanted), return_exceptions=True
    )
    assert isinstance(outcomes[1], errors.StoreFailed)
    assert "disk full" in str(outcomes[1])
    done = [n for n, o in zip(wanted, outcomes, strict=True) if isinstance(o, store_types.Stored)]
    assert names(list(started_store.select(PODS))) == sorted(["kept", *done])
    assert [c.key.name for c in heard] == done
    after = await started_store.put(key("three"), obj("three"), expected=0)
    assert after.sequence == started_store.sequence == 2 + len(done)
    await started_store.stop()
    again = await open_store(path)
    assert names(list(again.select(PODS))) == sorted(["kept", *done, "three"])
    await again.stop()


async def test_closed_store_refuses_writes(path: Path) -> None:
    started_store = await open_store(path)
    await started_store.stop()
    with pytest.raises(errors.StoreFailed, match="closed"):
        await started_store.put(key("a"), obj("a"), expected=0)


async def test_file_of_a_newer_version_is_refused(path: Path) -> None:
    disk = apsw.Connection(str(path))
    disk.execute("PRAGMA user_version=99")
    disk.close()
    with pytest.raises(errors.StoreBroken, match="newer kilnwork"):
        await open_store(path)


async def test_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(errors.StoreBroken, match="cannot use the database"):
        await open_store(path)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, -4096])
async def test_file_that_lost_its_content_is_refused(path: Path, size: int) -> None:
    """Emptied or cut off, it is no first start; negative: so much is missing at the end."""
    started_store = await open_store(path)
    for i in range(50):
        await started_store.put(key(f"o{i}"), obj(f"o{i}") | {"data": "x" * 1000}, expected=0)
    await started_store.stop()
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(errors.StoreBroken, match=r"move control\.db\* elsewhere"):
            await open_store(path)
    assert path.read_bytes() == before


async def test_fresh_schema_equals_a_migrated_one(path: Path, started_store: store.Store) -> None:
    disk = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = {row[0] for row in disk.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    disk.close()
    assert tables == {"object", "change"}
    assert path.stat().st_mode & 0o777 == 0o600


_WRITER = """
import asyncio, sys
from pathlib import Path
from kilnwork.controlplane import store_types, store

async def main():
    held = store.Store(Path(sys.argv[1]))
    await held.start()
    async def write(lane):
        n = 0
        while True:
            key = store_types.Key("pods", "default", f"{sys.argv[2]}-{lane}-{n % 20}")
            head = held.head(key)
            obj = {"metadata": {"name": key.name, "uid": "u"}, "n": n}
            stored = await held.put(key, obj, expected=head.sequence if head else 0)
            print(key.name, stored.sequence, n, flush=True)
            n += 1
    await asyncio.gather(*(write(lane) for lane in range(8)))

asyncio.run(main())
"""


async def test_kill_loses_no_acknowledged_write(path: Path) -> None:
    seed = 20_240_611
    chance = random.Random(seed)
    acknowledged: dict[str, tuple[int, int]] = {}
    newest = 0
    for round_ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(round_)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.uniform(0.02, 0.25))
        os.kill(process.pid, signal.SIGKILL)
        rest, _ = process.communicate()
        for line in (first + rest).splitlines():
            fields = line.decode().split()
            if len(fields) == 3:  # the last line may be cut short
                name, sequence, n = fields[0], int(fields[1]), int(fields[2])
                acknowledged[name] = (sequence, n)
                assert sequence > newest or round_ == 0, f"seed {seed}: number given twice"
        started_store = await open_store(path)
        try:
            for name, (sequence, n) in acknowledged.items():
                found = started_store.get(key(name))
                assert found is not None, f"seed {seed}: {name} is lost"
                assert found.sequence >= sequence
                assert found.decode()["n"] >= n
            assert [c.sequence for c in started_store.changes_since(0)] == list(
                range(1, started_store.sequence + 1)
            )
            newest = started_store.sequence
        finally:
            await started_store.stop()
    assert len(acknowledged) > 20


async def test_object_size_is_limited(path: Path) -> None:
    """One that the database cannot hold would take the writes beside it along."""
    started_store = await open_store(path)
    with pytest.raises(errors.ObjectTooLarge):
        await started_store.put(key("a"), obj("a", data="x" * store.MAX_OBJECT_BYTES), expected=0)
    assert started_store.get(key("a")) is None
    await started_store.put(key("a"), obj("a"), expected=0)
    await started_store.stop()
