"""Stored objects without a store, for tests of rules over objects."""

from collections.abc import Iterable

from kilnwork.api import meta, resource


class MemoryLookup:
    """`apiserver.lookup.Lookup` over a dictionary; `add` stores objects."""

    def __init__(self, *objects: tuple[resource.Resource, meta.JsonObject]) -> None:
        self._objects: dict[tuple[str, str, str], meta.JsonObject] = {}
        for kind, obj in objects:
            self.add(kind, obj)

    def add(self, kind: resource.Resource, obj: meta.JsonObject) -> None:
        """Store an object, replacing one of its name."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        self._objects[kind.qualified, namespace, metadata["name"]] = obj

    def remove(self, kind: resource.Resource, namespace: str, name: str) -> None:
        del self._objects[kind.qualified, namespace, name]

    def get(
        self, kind: resource.Resource, namespace: str | None, name: str
    ) -> meta.JsonObject | None:
        return self._objects.get((kind.qualified, namespace or "", name))

    def list(
        self, kind: resource.Resource, namespace: str | None = None
    ) -> Iterable[meta.JsonObject]:
        return [
            obj
            for (qualified, home, _), obj in self._objects.items()
            if qualified == kind.qualified and namespace in (None, home)
        ]
