"""Blobs that something refers to stay; all others go, an hour later, or minutes after a prune."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from kilnwork.data import blob_renewal, local_blobs
from kilnwork.dispatch.hub import blob_collection
from kilnwork.kit import clock as clocks

HOUR = 3600.0


class World:
    """Blobs of two namespaces, and what is referred to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = clocks.ManualClock(wall=time.time())
        self.used: set[bytes] = set()
        self.asked: list[int] = []
        self.collector = blob_collection.Collector(root, self.referenced, clock=self.clock)

    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        self.asked.append(len(digests))
        return self.used.intersection(digests)

    def put(self, number: int, *, namespace: str = "default", age: float = 0.0) -> bytes:
        kept = local_blobs.Blobs(self.root / namespace, durable=False)
        digest, _ = kept.put([number.to_bytes(4, "big")])
        then = self.clock.wall() - age
        os.utime(kept.path(digest), (then, then))
        return digest

    def there(self, namespace: str = "default") -> set[bytes]:
        kept = local_blobs.Blobs(self.root / namespace, durable=False)
        return {entry.digest for entry in kept.entries()}

    def look(self, seconds: float = blob_collection.MIN_STEADY_S) -> int:
        self.clock.advance(seconds)
        return self.collector.collect()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "blobs")


def test_missing_directory_is_empty(world: World) -> None:
    assert world.look() == 0


def test_unreferenced_blob_is_removed(world: World) -> None:
    mine, other = world.put(1, age=HOUR), world.put(1, namespace="other", age=HOUR)
    assert (world.look(1), world.there()) == (0, {mine}), "the clocks are not known long enough"
    assert (world.look(), world.there(), world.there("other")) == (2, set(), set())
    assert mine == other


def test_referenced_blob_is_kept(world: World) -> None:
    digest = world.put(1, age=100 * HOUR)
    world.put(1, namespace="other", age=100 * HOUR)
    world.used.add(digest)
    for _ in range(3):
        world.look()
    assert (world.there(), world.there("other")) == ({digest}, {digest}), "whose row it may be"
    world.used.clear()
    world.look()
    assert world.there() == set()


def test_young_blob_is_not_looked_up(world: World) -> None:
    digest = world.put(1)
    for _ in range(5):
        world.look(HOUR / 10)
    assert (world.there(), world.asked) == ({digest}, [])


def test_renewed_blob_is_kept(world: World) -> None:
    digest = world.put(1, age=2 * HOUR)
    for _ in range(10):
        world.look()
        world.put(1, age=blob_collection.KEEP_S - 1)  # late, but in time
    assert world.there() == {digest}


def test_a_jump_of_the_clock_leaves_time_to_renew(world: World) -> None:
    """A laptop slept for a week: only the wall clock knows."""
    digest = world.put(1)
    world.look()
    world.clock.jump(7 * 24 * HOUR)
    for _ in range(3):
        world.look(blob_collection.MIN_STEADY_S / 4)
    assert world.there() == {digest}
    world.put(1)
    world.look()
    assert world.there() == {digest}


def test_blob_of_a_forgotten_task_is_removed_within_minutes(world: World) -> None:
    old, new = world.put(1, age=blob_collection.RELEASED_KEEP_S), world.put(2)
    never = world.put(3, age=blob_collection.RELEASED_KEEP_S)
    other = world.put(1, namespace="other", age=blob_collection.RELEASED_KEEP_S)
    world.clock.advance(blob_collection.MIN_STEADY_S)
    world.collector.release([("default", old), ("default", new)])
    assert world.collector.collect_released() == 4, "the size of the new one"
    assert (world.there(), world.there("other")) == ({new, never}, {other})
    world.clock.advance(blob_collection.RELEASED_KEEP_S - blob_collection.MIN_STEADY_S)
    assert world.collector.is_due
    assert world.collector.collect_released() == 4
    world.clock.advance(1)
    assert world.collector.collect_released() == 0
    assert (world.there(), world.collector.is_due) == ({never}, False)


def test_blob_of_a_forgotten_task_is_kept_while_it_is_used(world: World) -> None:
    used, renewed = world.put(1, age=HOUR), world.put(2, age=HOUR)
    world.clock.advance(HOUR / 2)
    world.used.add(used)
    world.collector.release([("default", used), ("default", renewed)])
    for _ in range(5):
        world.put(2, age=blob_renewal.RENEW_S + local_blobs.FRESH_S)
        world.collector.collect_released()
        world.clock.advance(blob_renewal.RENEW_S)
    assert world.there() == {used, renewed}
    world.clock.advance(HOUR / 2)
    world.collector.collect_released()
    assert world.there() == {used}


def test_blob_of_a_forgotten_task_is_kept_after_a_jump_of_the_clock(world: World) -> None:
    digest = world.put(1)
    world.clock.advance(HOUR / 10)
    world.collector.sample()
    world.clock.jump(HOUR)
    world.collector.release([("default", digest)])
    assert world.collector.collect_released() == 4
    world.clock.advance(blob_collection.MIN_STEADY_S)
    assert world.collector.collect_released() == 0
    assert world.there() == set()


def test_blob_set_aside_and_referenced_is_restored(world: World) -> None:
    digest = world.put(1, age=2 * HOUR)
    world.used.add(digest)
    kept = local_blobs.Blobs(world.root / "default", durable=False)
    path = kept.path(digest)
    path.rename(path.with_name(path.name + ".old"))
    world.look()
    assert [entry.aside for entry in kept.entries()] == [False]


def test_blob_set_aside_and_unreferenced_is_removed(world: World) -> None:
    digest = world.put(1, age=2 * HOUR)
    path = local_blobs.Blobs(world.root / "default", durable=False).path(digest)
    path.rename(path.with_name(path.name + ".old"))
    world.look()
    assert not any(path.parent.iterdir())


def test_many_blobs_are_looked_up_in_batches(world: World) -> None:
    digests = {world.put(number, age=2 * HOUR) for number in range(1200)}
    world.used = set(sorted(digests)[::2])
    world.look()
    assert world.asked == [500, 500, 200]
    assert world.there() == world.used


def test_files_that_are_no_blobs_are_ignored(world: World) -> None:
    digest = world.put(1, age=2 * HOUR)
    (world.root / "README").write_text("not a namespace")
    world.look()
    world.look()
    assert digest not in world.there()
    assert (world.root / "README").exists()


@hypothesis.given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "refer", "drop", "look", "wait"]),
            st.integers(0, 3),
            st.integers(1, 30),
        ),
        max_size=40,
    )
)
@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=60
)
def test_referenced_blobs_survive_any_history(
    tmp_path: Path, steps: list[tuple[str, int, int]]
) -> None:
    """What is referred to is there, always; in the end nothing else is."""
    world = World(tmp_path / str(time.time_ns()))
    expected: dict[bytes, float] = {}
    for step, number, minutes in steps:
        if step == "put":
            expected[world.put(number)] = world.clock.wall()
        elif step == "wait":
            world.clock.advance(60.0 * minutes)
        elif step == "look":
            world.look(60.0 * minutes)
        else:
            known = sorted(digest for digest in expected if digest in world.there())
            for digest in known[number : number + 1]:
                if step == "drop":
                    world.used.discard(digest)
                elif world.clock.wall() - expected[digest] < HOUR:
                    world.used.add(digest)
        assert world.used <= world.there()
    world.clock.advance(2 * HOUR)
    world.look()
    world.look()
    assert world.there() == world.used
