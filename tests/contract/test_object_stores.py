"""The contract of every object store (`data.stores.port`)."""

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.stores import local, port
from support import object_stores

LARGE = (8 << 20) + 12_345
KEYS = ("a", "b/c-1-1", "b/c-10-1", "b/c-2-1", "b/c/d", "b0", "z/y/x/w.json")


@pytest.fixture(params=object_stores.KINDS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[port.Store]:
    with object_stores.open_store(request.param, tmp_path) as made:
        yield made


def content_of(store: port.Store, key: str, *, start: int = 0, end: int | None = None) -> bytes:
    with store.read(key, start=start, end=end) as reading:
        return b"".join(reading)


def keys_of(store: port.Store, prefix: str = "", *, after: str = "") -> list[str]:
    return [facts.key for facts in store.list(prefix, after=after)]


def write(store: port.Store, key: str, content: bytes, *, create: bool = False) -> port.ObjectFacts:
    with store.writer(key, create=create) as new:
        for at in range(0, len(content), 700_001):
            new.write(content[at : at + 700_001])
        assert new.bytes == len(content)
        return new.commit()


def test_put_object_is_read_back(store: port.Store) -> None:
    facts = store.put("some/key.json", b"{}")
    assert facts == store.head("some/key.json")
    assert (facts.key, facts.bytes) == ("some/key.json", 2)
    assert content_of(store, "some/key.json") == b"{}"


def test_missing_object_raises_object_missing(store: port.Store) -> None:
    store.put("b/c", b"")
    for key in ("a", "b", "b/c/d", "b/d"):
        with pytest.raises(errors.ObjectMissing, match=key):
            store.head(key)
        with pytest.raises(errors.ObjectMissing, match=key):
            store.read(key)


def test_empty_object_exists(store: port.Store) -> None:
    assert store.put("none", b"").bytes == 0
    with store.writer("nothing") as new:
        new.commit()
    assert content_of(store, "none") == content_of(store, "nothing") == b""
    assert keys_of(store) == ["none", "nothing"]


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a/.lock", "a b", "ä", "a\n", "x" * 201]
)
def test_key_that_is_not_portable_is_refused(store: port.Store, key: str) -> None:
    with pytest.raises(errors.BadKey):
        store.put(key, b"")
    for read in (store.head, store.read, store.writer, lambda key: store.delete([key])):
        with pytest.raises(errors.BadKey):
            read(key)


# conditions


def test_conditional_create_keeps_the_first_object(store: port.Store) -> None:
    store.put("commits/1-1", b"first", create=True)
    with pytest.raises(errors.ObjectExists, match="commits/1-1"):
        store.put("commits/1-1", b"second", create=True)
    with pytest.raises(errors.ObjectExists, match="commits/1-1"):
        write(store, "commits/1-1", b"third", create=True)
    assert content_of(store, "commits/1-1") == b"first"
    assert keys_of(store) == ["commits/1-1"]


def test_conditional_create_of_equal_content_is_refused(store: port.Store) -> None:
    store.put("lock", b"same", create=True)
    with pytest.raises(errors.ObjectExists):
        store.put("lock", b"same", create=True)


def test_deleted_object_can_be_created_again(store: port.Store) -> None:
    store.put("a", b"1", create=True)
    store.delete(["a"])
    store.put("a", b"2", create=True)
    assert content_of(store, "a") == b"2"


def test_unconditional_put_replaces_the_object(store: port.Store) -> None:
    old = store.put("a", b"1")
    new = store.put("a", b"2")
    assert old.etag != new.etag
    assert content_of(store, "a") == b"2"
    assert write(store, "a", b"3").etag not in (old.etag, new.etag)


def test_conditional_put_requires_the_current_etag(store: port.Store) -> None:
    first = store.put("job.json", b"1")
    second = store.put("job.json", b"2", if_match=first.etag)
    with pytest.raises(errors.ObjectChanged, match=r"job\.json"):
        store.put("job.json", b"3", if_match=first.etag)
    assert content_of(store, "job.json") == b"2"
    store.put("job.json", b"1", if_match=second.etag)
    with pytest.raises(errors.ObjectChanged):  # the content was the same, but it is another one
        store.put("job.json", b"4", if_match=second.etag)


def test_conditional_put_of_a_missing_object_fails(store: port.Store) -> None:
    old = store.put("job.json", b"1")
    store.delete(["job.json"])
    for key in ("job.json", "never"):
        with pytest.raises(errors.ObjectChanged):
            store.put(key, b"2", if_match=old.etag)
    assert keys_of(store) == []


def race(story: Callable[[int], object], *, count: int) -> list[object]:
    """Call `story` in that many threads at once; return each result, or its StoreError."""
    gate = threading.Barrier(count)

    def run(number: int) -> object:
        gate.wait()
        try:
            return story(number)
        except errors.StoreError as error:
            return error

    with futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.parametrize("by", ["put", "writer"])
def test_one_of_twenty_concurrent_creators_wins(store: port.Store, by: str) -> None:
    def create(number: int) -> bytes:
        content = b"by %d" % number
        if by == "put":
            store.put("commits/7-1", content, create=True)
        else:
            write(store, "commits/7-1", content, create=True)
        return content

    ended = race(create, count=20)
    won = [each for each in ended if isinstance(each, bytes)]
    assert [content_of(store, "commits/7-1")] == won
    assert sum(isinstance(each, errors.ObjectExists) for each in ended) == 19


def test_concurrent_conditional_puts_lose_no_update(store: port.Store) -> None:
    store.put("count", b"0")

    def add(_: int) -> None:
        done = 0
        while done < 5:
            with store.read("count") as reading:
                found, etag = int(b"".join(reading)), reading.facts.etag
            try:
                store.put("count", b"%d" % (found + 1), if_match=etag)
                done += 1
            except errors.ObjectChanged:
                continue

    assert race(add, count=8) == [None] * 8
    assert content_of(store, "count") == b"40"


# ranges


@pytest.mark.parametrize("size", [0, 1, 1000, LARGE])
def test_range_reads_equal_slices(store: port.Store, size: int) -> None:
    content = random.Random(size).randbytes(size)
    facts = write(store, "input", content)
    assert facts.bytes == size
    places = [(0, None), (0, 0), (0, 1), (1, size), (size // 2, size), (size // 3, size // 2)]
    places += [
        (size, None),
        (size, size + 5),
        (size - 1 if size else 0, size + 100),
        (size + 9, None),
    ]
    for start, end in places:
        with store.read("input", start=start, end=end) as reading:
            assert reading.facts == facts
            pieces = list(reading)
            assert all(0 < len(piece) <= 1 << 20 for piece in pieces)
            assert reading.end - reading.start == sum(map(len, pieces))
        assert b"".join(pieces) == content[start:end], (start, end)


def test_open_read_continues_after_the_object_is_deleted(store: port.Store) -> None:
    content = os.urandom(3 << 20)
    write(store, "result", content)
    with store.read("result") as reading:
        pieces = iter(reading)
        found = next(pieces)
        store.delete(["result"])
        assert found + b"".join(pieces) == content


def test_read_that_is_left_early_releases_its_connection(store: port.Store) -> None:
    write(store, "result", bytes(LARGE))
    for _ in range(50):
        with store.read("result") as reading:
            assert next(iter(reading))
        store.read("result").close()
    assert content_of(store, "result", end=3) == bytes(3)


# objects in pieces


def test_uncommitted_object_is_invisible(store: port.Store) -> None:
    with store.writer("out/1-1-1.ndjson") as new:
        new.write(b"x" * 100_000)
        with pytest.raises(errors.ObjectMissing):
            store.head("out/1-1-1.ndjson")
        assert keys_of(store) == list(store.directories()) == []
        facts = new.commit()
    assert facts == store.head("out/1-1-1.ndjson")
    new.abort()
    assert keys_of(store) == ["out/1-1-1.ndjson"]


def test_abandoned_or_aborted_writer_leaves_no_object(store: port.Store) -> None:
    store.put("kept", b"old")
    for key in ("kept", "new"):
        with store.writer(key) as new:
            new.write(bytes(LARGE))
        with contextlib.suppress(KeyError), store.writer(key) as new:
            new.write(b"x")
            raise KeyError
        new = store.writer(key)
        new.write(b"x")
        new.abort()
        new.abort()
    assert keys_of(store) == ["kept"]
    assert content_of(store, "kept") == b"old"


def test_caller_may_reuse_the_buffer_of_a_write(store: port.Store) -> None:
    buffer = bytearray(b"one")
    with store.writer("a") as new:
        new.write(buffer)
        buffer[:] = b"two"
        new.write(memoryview(buffer))
        new.write(b"")
        new.commit()
    assert content_of(store, "a") == b"onetwo"


# listing and deleting


def test_list_is_ordered_by_key(store: port.Store) -> None:
    for key in reversed(KEYS):
        store.put(key, key.encode())
    assert keys_of(store) == sorted(KEYS)
    assert [facts.bytes for facts in store.list()] == [len(key) for key in sorted(KEYS)]
    assert next(store.list("b/c-10")) == store.head("b/c-10-1")


def test_list_honours_prefix_and_after(store: port.Store) -> None:
    for key in KEYS:
        store.put(key, b"")
    for prefix in ("", "a", "b", "b/", "b/c", "b/c-1", "b/c/", "z/y/x", "q", "b/c-1-1"):
        for after in ("", "a", "b", "b/", "b/c-1-1", "b/c-10", "b/c/d", "b/c/", "b/z", "zz"):
            wanted = [key for key in sorted(KEYS) if key.startswith(prefix) and key > after]
            assert keys_of(store, prefix, after=after) == wanted, (prefix, after)


@pytest.mark.parametrize("prefix", ["/", "../", "/etc/", "a/../", "a//", "./a"])
def test_list_of_a_prefix_outside_the_store_is_refused(store: port.Store, prefix: str) -> None:
    for look in (store.list, store.directories):
        with pytest.raises(errors.BadKey):
            list(look(prefix))


def test_long_list_is_complete(store: port.Store) -> None:
    wanted = sorted(f"commits/{number}-1" for number in range(1, 2501))
    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b""), wanted))
    assert keys_of(store, "commits/") == wanted
    assert keys_of(store, after=wanted[1200]) == wanted[1201:]
    assert port.clear(store, "commits/1") == sum(key.startswith("commits/1") for key in wanted)
    assert keys_of(store) == [key for key in wanted if not key.startswith("commits/1")]


def test_directories_are_the_next_path_segments(store: port.Store) -> None:
    for key in KEYS:
        store.put(key, b"")
    assert list(store.directories()) == ["b", "z"]
    assert list(store.directories("b/")) == ["c"]
    assert list(store.directories("z/y/")) == ["x"]
    assert list(store.directories("q/")) == list(store.directories("b/c/")) == []
    with pytest.raises(errors.BadKey):
        list(store.directories("b"))
    store.delete(["z/y/x/w.json"])
    assert list(store.directories()) == ["b"]


def test_delete_is_idempotent(store: port.Store) -> None:
    for key in KEYS:
        store.put(key, b"")
    store.delete(["a", "b/c/d", "never", "no/such/directory"])
    store.delete(["a"])
    store.delete([])
    assert keys_of(store) == sorted(set(KEYS) - {"a", "b/c/d"})
    assert port.clear(store, "") == len(KEYS) - 2
    assert keys_of(store) == []
    store.put("a", b"again")
    assert content_of(store, "a") == b"again"


def test_concurrent_writes_and_deletes_in_one_directory_succeed(store: port.Store) -> None:
    def story(number: int) -> None:
        for turn in range(20):
            key = f"x/y/{number}-{turn}"
            store.put(key, b"1", create=True)
            assert content_of(store, key) == b"1"
            store.delete([key])

    assert race(story, count=6) == [None] * 6
    assert keys_of(store) == []


def test_url_opens_the_same_store(store: port.Store) -> None:
    store.put("ns/job/a", b"1")
    assert content_of(object_stores.reopen(store), "ns/job/a") == b"1"
    assert content_of(object_stores.reopen(store, "ns", "job"), "a") == b"1"
    assert not isinstance(store, local.LocalStore) or store.url.startswith("file:///")
