"""The store of the API server with its writer and deleter, in process and without HTTP.

For tests of components that follow the store.
"""

import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import store
from kilnwork.controlplane.apiserver import deletion, namespaces, object_writer, write_types
from kilnwork.kit import clock, ids
from support import waiting


@dataclass(frozen=True)
class World:
    """The store, its writer and deleter, and shortcuts for tests."""

    store: store.Store
    writer: object_writer.ObjectWriter
    deleter: deletion.Deleter
    clock: clock.ManualClock

    async def create(
        self, kind: api_resources.Resource, name: str, *, namespace: str = "default", **more: Any
    ) -> meta.JsonObject:
        """Create an object; `metadata=` adds to its name."""
        metadata = {"name": name, **more.pop("metadata", {})}
        place = write_types.target_of(kind, namespace, "")
        outcome = await self.writer.create(
            place, {"metadata": metadata, **more}, write_types.WriteContext()
        )
        assert outcome.raw
        found = self.get(kind, name, namespace=namespace)
        assert found is not None
        return found

    def get(
        self, kind: api_resources.Resource, name: str, *, namespace: str = "default"
    ) -> meta.JsonObject | None:
        return self.writer.lookup.get(kind, namespace, name)

    async def delete(
        self, kind: api_resources.Resource, name: str, **asked: Any
    ) -> write_types.WriteResult:
        """Delete an object of namespace `default`."""
        place = write_types.target_of(kind, "default", name)
        return await self.deleter.delete(place, deletion.DeleteOptions(**asked))

    async def gone(self, kind: api_resources.Resource, name: str) -> None:
        """Wait until an object of namespace `default` is gone."""
        await waiting.wait_until_async(lambda: self.get(kind, name) is None, what=f"{name} is gone")


@contextlib.asynccontextmanager
async def open_world(
    directory: Path, *, keep_changes: int = store.KEEP_CHANGES
) -> AsyncIterator[World]:
    """Open a new store in `directory` with its basic namespaces; nothing follows it yet."""
    held = store.Store(directory / "control.db", keep_changes=keep_changes)
    await held.start()
    now = clock.ManualClock()
    writer = object_writer.ObjectWriter(
        held, clock=now, new_uid=ids.new_uid, entropy=random.Random(1)
    )
    deleter = deletion.Deleter(writer)
    keeper = namespaces.NamespaceController(writer, deleter, ca="CA")
    await keeper.start()
    try:
        yield World(held, writer, deleter, now)
    finally:
        await keeper.stop()
        await held.stop()


def owned_by(*owners: meta.JsonObject, block: bool = False) -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return {"ownerReferences": references}
