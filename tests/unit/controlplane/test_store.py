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
from kilnwork.controlplane import errors, objects, store

PODS = "pods"


def key(name: str, namespace: str = "default", resource: str = PODS) -> objects.Key:
    return objects.Key(resource, namespace, name)


def obj(name: str, **more: Any) -> meta.JsonObject:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, **more}


async def opened(path: Path, **settings: int) -> store.Store:
    held = store.Store(path, **settings)
    await held.start()
    return held


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.db"


@pytest.fixture
async def held(path: Path) -> AsyncIterator[store.Store]:
    found = await opened(path)
    yield found
    await found.stop()


def names(found: Sequence[objects.Stored]) -> list[str]:
    return [s.key.name for s in found]


async def test_a_write_is_numbered_and_readable(held: store.Store) -> None:
    first = await held.put(key("a"), obj("a"), expected=0)
    second = await held.put(key("b"), obj("b"), expected=0)
    assert (first.sequence, second.sequence, held.sequence) == (1, 2, 2)
    found = held.get(key("a"))
    assert found is not None
    assert found.decode()["metadata"]["resourceVersion"] == "1"


async def test_nothing_is_visible_before_it_is_committed(held: store.Store) -> None:
    writing = asyncio.ensure_future(held.put(key("a"), obj("a"), expected=0))
    await asyncio.sleep(0)
    assert held.get(key("a")) is None
    head = held.head(key("a"))
    assert head is not None
    assert head.sequence == 1
    await writing
    assert held.get(key("a")) == head


async def test_writers_build_upon_what_is_accepted(held: store.Store) -> None:
    first = asyncio.ensure_future(held.put(key("a"), obj("a", v=1), expected=0))
    await asyncio.sleep(0)
    with pytest.raises(errors.Superseded):
        await held.put(key("a"), obj("a", v=2), expected=0)
    stored = await held.put(key("a"), obj("a", v=3), expected=1)
    assert (await first).sequence == 1
    assert stored.decode()["v"] == 3


async def test_settle_waits_for_the_commit(held: store.Store) -> None:
    writing = asyncio.ensure_future(held.put(key("a"), obj("a"), expected=0))
    await asyncio.sleep(0)
    await held.wait_committed(key("a"))
    assert held.get(key("a")) is not None
    await writing


async def test_a_cancelled_writer_does_not_undo_the_write(held: store.Store) -> None:
    writing = asyncio.ensure_future(held.put(key("a"), obj("a"), expected=0))
    await asyncio.sleep(0)
    writing.cancel()
    await held.put(key("b"), obj("b"), expected=0)
    assert held.get(key("a")) is not None


async def test_remove_tells_the_last_state_with_the_number_of_the_removal(
    held: store.Store,
) -> None:
    await held.put(key("a"), obj("a", v=1), expected=0)
    change = await held.remove(key("a"), expected=1)
    assert held.get(key("a")) is None
    assert change.action == "DELETED"
    assert change.decode() == {
        "metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "2"},
        "v": 1,
    }
    with pytest.raises(errors.Superseded):
        await held.remove(key("a"), expected=1)


async def test_select_sorts_and_keeps_to_the_namespace(held: store.Store) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y"), ("ab", "q")):
        await held.put(key(name, namespace), obj(name), expected=0)
    assert names(list(held.select(PODS))) == ["y", "z", "q", "x"]
    assert names(list(held.select(PODS, "a"))) == ["y", "z"]
    assert names(list(held.select(PODS, "a", after=("a", "y")))) == ["z"]
    assert names(list(held.select(PODS, after=("a", "z")))) == ["q", "x"]
    assert held.count(PODS) == 4


async def test_select_at_shows_an_earlier_moment(held: store.Store) -> None:
    await held.put(key("a"), obj("a", v=1), expected=0)
    await held.put(key("b"), obj("b"), expected=0)
    await held.put(key("a"), obj("a", v=2), expected=1)
    await held.remove(key("b"), expected=2)
    await held.put(key("c"), obj("c"), expected=0)
    former = held.select_at(PODS, 2)
    assert [(s.key.name, s.sequence) for s in former] == [("a", 1), ("b", 2)]
    assert former[0].decode()["v"] == 1
    assert names(held.select_at(PODS, 4)) == ["a"]


async def test_followers_hear_changes_once_committed_and_in_order(held: store.Store) -> None:
    heard: list[tuple[int, str]] = []

    def follow(changes: Sequence[objects.StoreChange]) -> None:
        assert held.sequence == changes[-1].sequence
        heard.extend((c.sequence, c.action) for c in changes)

    stop = held.follow(follow)
    await asyncio.gather(*(held.put(key(f"p{i}"), obj(f"p{i}"), expected=0) for i in range(50)))
    await held.remove(key("p0"), expected=1)
    assert heard == [*((i, "ADDED") for i in range(1, 51)), (51, "DELETED")]
    stop()
    await held.put(key("z"), obj("z"), expected=0)
    assert len(heard) == 51


async def test_a_restart_goes_on_counting_and_keeps_the_log(path: Path) -> None:
    held = await opened(path)
    await held.put(key("a"), obj("a", v=1), expected=0)
    await held.put(key("a"), obj("a", v=2), expected=1)
    await held.put(key("b"), obj("b"), expected=0)
    await held.remove(key("b"), expected=3)
    before = list(held.changes_since(0))
    await held.stop()
    again = await opened(path)
    try:
        assert again.sequence == 4
        assert list(again.changes_since(0)) == before
        assert names(list(again.select(PODS))) == ["a"]
        assert (await again.put(key("c"), obj("c"), expected=0)).sequence == 5
    finally:
        await again.stop()


async def test_old_changes_are_forgotten_but_not_the_numbering(path: Path) -> None:
    held = await opened(path, keep_changes=100)
    for round_ in range(15):
        await asyncio.gather(
            *(held.put(key(f"p{round_}-{i}"), obj("p"), expected=0) for i in range(100))
        )
    with pytest.raises(errors.TooOld, match="too old resource version: 5"):
        held.changes_since(5)
    assert len(held.changes_since(1450)) == 50
    for stored in list(held.select(PODS)):
        await held.remove(stored.key, expected=stored.sequence)
    await held.stop()
    again = await opened(path, keep_changes=100)
    try:
        assert (again.sequence, again.count(PODS)) == (3000, 0)
        with pytest.raises(errors.TooOld):
            again.changes_since(1000)
        assert (await again.put(key("n"), obj("n"), expected=0)).sequence == 3001
    finally:
        await again.stop()


async def test_large_former_states_are_forgotten_sooner(path: Path) -> None:
    held = await opened(path, keep_bytes=100_000)
    stored = await held.put(key("a"), obj("a", data="x" * 10_000), expected=0)
    for _ in range(40):
        stored = await held.put(key("a"), obj("a", data="x" * 10_000), expected=stored.sequence)
    with pytest.raises(errors.TooOld):
        held.changes_since(1)
    assert len(held.changes_since(39)) == 2
    await held.stop()


async def test_a_refused_commit_fails_all_its_writers_and_leaves_no_trace(path: Path) -> None:
    held = await opened(path)
    await held.put(key("kept"), obj("kept"), expected=0)
    await held.stop()
    disk = apsw.Connection(str(path))
    disk.execute(
        "CREATE TRIGGER full BEFORE INSERT ON object WHEN new.name = 'poison' "
        "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    disk.close()
    held = await opened(path)
    heard: list[objects.StoreChange] = []
    held.follow(heard.extend)
    wanted = ("one", "poison", "two")
    outcomes = await asyncio.gather(
        *(held.put(key(n), obj(n), expected=0) for n in wanted), return_exceptions=True
    )
    assert isinstance(outcomes[1], errors.StoreFailed)
    assert "disk full" in str(outcomes[1])
    done = [n for n, o in zip(wanted, outcomes, strict=True) if isinstance(o, objects.Stored)]
    assert names(list(held.select(PODS))) == sorted(["kept", *done])
    assert [c.key.name for c in heard] == done
    after = await held.put(key("three"), obj("three"), expected=0)
    assert after.sequence == held.sequence == 2 + len(done)
    await held.stop()
    again = await opened(path)
    assert names(list(again.select(PODS))) == sorted(["kept", *done, "three"])
    await again.stop()


async def test_a_closed_store_refuses_writes(path: Path) -> None:
    held = await opened(path)
    await held.stop()
    with pytest.raises(errors.StoreFailed, match="closed"):
        await held.put(key("a"), obj("a"), expected=0)


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    disk = apsw.Connection(str(path))
    disk.execute("PRAGMA user_version=99")
    disk.close()
    with pytest.raises(errors.StoreBroken, match="newer kilnwork"):
        await opened(path)


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(errors.StoreBroken, match="cannot use the database"):
        await opened(path)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, -4096])
async def test_a_file_that_lost_its_content_is_refused(path: Path, size: int) -> None:
    """Emptied or cut off, it is no first start; negative: so much is missing at the end."""
    held = await opened(path)
    for i in range(50):
        await held.put(key(f"o{i}"), obj(f"o{i}") | {"data": "x" * 1000}, expected=0)
    await held.stop()
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(errors.StoreBroken, match=r"move control\.db\* elsewhere"):
            await opened(path)
    assert path.read_bytes() == before


async def test_a_fresh_schema_equals_a_migrated_one(path: Path, held: store.Store) -> None:
    disk = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = {row[0] for row in disk.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    disk.close()
    assert tables == {"object", "change"}
    assert path.stat().st_mode & 0o777 == 0o600


_WRITER = """
import asyncio, sys
from pathlib import Path
from kilnwork.controlplane import objects, store

async def main():
    held = store.Store(Path(sys.argv[1]))
    await held.start()
    async def write(lane):
        n = 0
        while True:
            key = objects.Key("pods", "default", f"{sys.argv[2]}-{lane}-{n % 20}")
            head = held.head(key)
            obj = {"metadata": {"name": key.name, "uid": "u"}, "n": n}
            stored = await held.put(key, obj, expected=head.sequence if head else 0)
            print(key.name, stored.sequence, n, flush=True)
            n += 1
    await asyncio.gather(*(write(lane) for lane in range(8)))

asyncio.run(main())
"""


async def test_kill_at_any_moment_loses_no_acknowledged_write(path: Path) -> None:
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
        held = await opened(path)
        try:
            for name, (sequence, n) in acknowledged.items():
                found = held.get(key(name))
                assert found is not None, f"seed {seed}: {name} is lost"
                assert found.sequence >= sequence
                assert found.decode()["n"] >= n
            assert [c.sequence for c in held.changes_since(0)] == list(range(1, held.sequence + 1))
            newest = held.sequence
        finally:
            await held.stop()
    assert len(acknowledged) > 20


async def test_objects_have_a_size(path: Path) -> None:
    """One that the database cannot hold would take the writes beside it along."""
    held = await opened(path)
    with pytest.raises(errors.ObjectTooLarge):
        await held.put(key("a"), obj("a", data="x" * store.MAX_OBJECT_BYTES), expected=0)
    assert held.get(key("a")) is None
    await held.put(key("a"), obj("a"), expected=0)
    await held.stop()
