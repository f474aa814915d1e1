"""Stored objects without a store, for tests of rules over objects."""

from collections.abc import Iterable

from kilnwork.api import api_resources, meta


class MemoryLookup:
    """`apiserver.lookup_interface.Lookup` over a dictionary; `add` stores objects."""

    def __init__(self, *objects: tuple[api_resources.Resource, meta.JsonObject]) -> None:
        self._objects: dict[tuple[str, str, str], meta.JsonObject] = {}
        for kind, obj in objects:
            self.add(kind, obj)

    def add(self, kind: api_resources.Resource, obj: meta.JsonObject) -> None:
        """Store an object, replacing one of its name."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        self._objects[kind.qualified, namespace, metadata["name"]] = obj

    def remove(self, kind: api_resources.Resource, namespace: str, name: str) -> None:
        del self._objects[kind.qualified, namespace, name]

    def get(
        self, kind: api_resources.Resource, namespace: str | None, name: str
    ) -> meta.JsonObject | None:
        return self._objects.get((kind.qualified, namespace or "", name))

    def list(
        self, kind: api_resources.Resource, namespace: str | None = None
    ) -> Iterable[meta.JsonObject]:
        return [
            obj
            for (qualified, home, _), obj in self._objects.items()
            if qualified == kind.qualified and namespace in (None, home)
        ]
