"""What every namespace holds, and how one ends."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import write_types
from support import store_world, waiting

CM, NS = api_resources.CONFIG_MAPS, api_resources.NAMESPACES
ROOT_CA = "kube-root-ca.crt"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        yield found


async def change(world: store_world.World, place: write_types.WriteTarget, **fields: Any) -> None:
    def changed(obj: meta.JsonObject) -> meta.JsonObject:
        found = obj["metadata"] | fields.get("metadata", {})
        return obj | fields | {"metadata": found}

    await world.writer.change(place, changed, write_types.WriteContext())


async def test_namespace_waits_for_its_own_finalizers(world: store_world.World) -> None:
    await world.create(NS, "doomed", metadata={"finalizers": ["a/b"]})
    await world.create(CM, "inside", namespace="doomed")
    await world.delete(NS, "doomed")
    await waiting.wait_until_async(
        lambda: world.get(CM, "inside", namespace="doomed") is None, what="it is empty"
    )
    found = world.get(NS, "doomed")
    assert found is not None
    assert found["status"]["phase"] == "Terminating"
    await change(world, write_types.target_of(NS, None, "doomed"), metadata={"finalizers": []})
    await world.gone(NS, "doomed")


async def test_changed_root_certificate_is_restored(world: store_world.World) -> None:
    place = write_types.target_of(CM, "default", ROOT_CA)
    await change(world, place, data={"ca.crt": "evil"})

    def certificate() -> str:
        found = world.get(CM, ROOT_CA)
        return "" if found is None else str(found["data"]["ca.crt"])

    await waiting.wait_until_async(lambda: certificate() == "CA", what="the certificate is back")
