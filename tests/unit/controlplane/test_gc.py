"""Objects go when their owners are gone, and only then."""

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane import gc
from kilnwork.controlplane.apiserver import deletion, patches, write_types
from kilnwork.kit import clock
from support import store_world, waiting

CM = api_resources.CONFIG_MAPS


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        collector = gc.GarbageCollector(found.writer, found.deleter)
        collector.start()
        yield found
        await collector.stop()


async def run_collector(world: store_world.World) -> None:
    """Give the collector every chance to do what it should not."""
    for _ in range(20):
        await asyncio.sleep(0)
        await world.store.wait_all_committed()


async def test_chain_of_dependents_is_deleted(world: store_world.World) -> None:
    first = await world.create(CM, "first")
    second = await world.create(CM, "second", metadata=store_world.owned_by(first))
    await world.create(CM, "third", metadata=store_world.owned_by(second))
    await world.delete(CM, "first")
    await world.gone(CM, "third")
    assert world.get(CM, "second") is None


async def test_dependent_with_one_existing_owner_is_kept(world: store_world.World) -> None:
    one, two = await world.create(CM, "one"), await world.create(CM, "two")
    await world.create(CM, "child", metadata=store_world.owned_by(one, two))
    await world.delete(CM, "one")

    def owner_names() -> list[str]:
        child = world.get(CM, "child")
        assert child is not None
        return [r["name"] for r in child["metadata"]["ownerReferences"]]

    await waiting.wait_until_async(
        lambda: owner_names() == ["two"], what="the reference is dropped"
    )
    await world.delete(CM, "two")
    await world.gone(CM, "child")


async def test_new_object_with_name_of_the_owner_is_no_owner(world: store_world.World) -> None:
    owner = await world.create(CM, "owner")
    await world.delete(CM, "owner")
    await world.create(CM, "owner")
    await world.create(CM, "child", metadata=store_world.owned_by(owner))
    await world.gone(CM, "child")
    assert world.get(CM, "owner") is not None


async def test_object_in_another_namespace_is_no_owner(world: store_world.World) -> None:
    owner = await world.create(CM, "owner", namespace="kube-system")
    await world.create(CM, "child", metadata=store_world.owned_by(owner))
    await world.gone(CM, "child")
    assert world.get(CM, "owner", namespace="kube-system") is not None


async def test_dependent_of_unserved_owner_kind_is_left_alone(world: store_world.World) -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}
    await world.create(CM, "child", metadata={"ownerReferences": [reference]})
    await run_collector(world)
    assert world.get(CM, "child") is not None


async def test_dependent_with_finalizer_is_only_marked_deleted(world: store_world.World) -> None:
    owner = await world.create(CM, "owner")
    metadata = store_world.owned_by(owner) | {"finalizers": ["x.io/f"]}
    await world.create(CM, "child", metadata=metadata)
    await world.delete(CM, "owner")

    def is_marked_deleted() -> bool:
        child = world.get(CM, "child")
        return child is not None and "deletionTimestamp" in child["metadata"]

    await waiting.wait_until_async(is_marked_deleted, what="the dependent is marked")


async def test_foreground_deletion_waits_for_blocking_dependents(world: store_world.World) -> None:
    owner = await world.create(CM, "owner")
    held = store_world.owned_by(owner, block=True) | {"finalizers": ["x.io/f"]}
    await world.create(CM, "child", metadata=held)
    await world.delete(CM, "owner", propagation="Foreground")

    def is_marked_deleted() -> bool:
        child = world.get(CM, "child")
        return child is not None and "deletionTimestamp" in child["metadata"]

    await waiting.wait_until_async(is_marked_deleted, what="the dependent is being deleted")
    await run_collector(world)
    assert world.get(CM, "owner") is not None

    def without_finalizers(obj: dict[str, Any]) -> dict[str, Any]:
        del obj["metadata"]["finalizers"]
        return obj

    await world.writer.change(
        write_types.target_of(CM, "default", "child"),
        without_finalizers,
        write_types.WriteContext(),
    )
    await world.gone(CM, "owner")


async def test_foreground_deletion_without_dependents_completes(world: store_world.World) -> None:
    await world.create(CM, "owner")
    await world.create(CM, "bystander")
    await world.delete(CM, "owner", propagation="Foreground")
    await world.gone(CM, "owner")
    assert world.get(CM, "bystander") is not None


@pytest.mark.parametrize("length", [2, 5])
async def test_cycle_of_owners_is_deleted(world: store_world.World, length: int) -> None:
    await world.create(CM, "bystander")
    made = [await world.create(CM, f"c{i}") for i in range(length)]
    for i, owner in enumerate(made):
        place = write_types.target_of(CM, "default", f"c{(i + 1) % length}")
        change = functools.partial(
            patches.merge, patch={"metadata": store_world.owned_by(owner, block=True)}
        )
        await world.writer.change(place, change, write_types.WriteContext())
    await world.delete(CM, "c0", propagation="Foreground")
    for i in range(length):
        await world.gone(CM, f"c{i}")
    assert world.get(CM, "bystander") is not None


async def test_orphaned_dependents_are_kept_without_the_reference(world: store_world.World) -> None:
    owner = await world.create(CM, "owner")
    await world.create(CM, "child", metadata=store_world.owned_by(owner))
    await world.delete(CM, "owner", propagation="Orphan")
    await world.gone(CM, "owner")
    await run_collector(world)
    child = world.get(CM, "child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]


async def test_missed_deletions_are_handled_at_the_next_start(tmp_path: Path) -> None:
    async with store_world.open_world(tmp_path) as world:
        owner = await world.create(CM, "owner")
        await world.create(CM, "child", metadata=store_world.owned_by(owner))
        await world.delete(CM, "owner")
        assert world.get(CM, "child") is not None
        collector = gc.GarbageCollector(world.writer, world.deleter)
        collector.start()
        await world.gone(CM, "child")
        await collector.stop()


async def test_kube_events_are_kept_for_an_hour(world: store_world.World) -> None:
    def event(last_s: float) -> dict[str, Any]:
        return {
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "Started",
            "type": "Normal",
            "lastTimestamp": clock.rfc3339(last_s),
        }

    now = world.clock.wall()
    await world.create(api_resources.EVENTS, "old", **event(now))
    await world.create(api_resources.EVENTS, "seen", **event(now + 3000))
    world.clock.advance(3700)
    collector = gc.GarbageCollector(world.writer, world.deleter)
    await collector.sweep_events()
    assert world.get(api_resources.EVENTS, "old") is None
    assert world.get(api_resources.EVENTS, "seen") is not None


async def test_second_reconcile_writes_nothing(world: store_world.World) -> None:
    owner = await world.create(CM, "owner")
    await world.create(CM, "child", metadata=store_world.owned_by(owner, block=True))
    await run_collector(world)
    before = world.store.sequence
    again = gc.GarbageCollector(world.writer, world.deleter)
    again.start()
    await run_collector(world)
    await again.stop()
    assert world.store.sequence == before
    assert deletion.FOREGROUND not in str(world.get(CM, "owner"))
