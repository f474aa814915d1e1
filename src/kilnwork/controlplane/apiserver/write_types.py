"""Values of a write: its target, its context (who writes and how), and its result.

Used by `object_writer` and by everything that writes through it.
"""

from collections.abc import Callable, Iterable

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import store, store_types
from kilnwork.controlplane.apiserver import authn, builtin


class WriteTarget(msgspec.Struct, frozen=True):
    """The object to write: kind, namespace (empty for cluster-scoped kinds) and name."""

    served: builtin.ServedResource
    namespace: str = ""
    name: str = ""

    @property
    def kind(self) -> api_resources.Resource:
        return self.served.resource

    @property
    def key(self) -> store_types.Key:
        return store_types.Key(self.kind.qualified, self.namespace, self.name)


def target_of(kind: api_resources.Resource, namespace: str | None, name: str) -> WriteTarget:
    """Return the write target of an object; the namespace is dropped for cluster-scoped kinds."""
    return WriteTarget(
        builtin.served_resource(kind), (namespace or "") if kind.namespaced else "", name
    )


class WriteContext(msgspec.Struct, frozen=True, kw_only=True):
    """Context of a write: its user and its options."""

    user: authn.User = authn.SERVER
    dry_run: bool = False
    """Validate everything, but store nothing."""
    field_validation: str = "Warn"
    oddities: tuple[str, ...] = ()
    """Messages about the body itself, such as duplicate fields."""
    manager: str = "kilnwork"
    """Manager that will own the written fields."""


class WriteResult(msgspec.Struct, frozen=True):
    """Result of a write: the object as JSON, and warnings for the client."""

    raw: bytes
    warnings: tuple[str, ...] = ()
    gone: bool = False
    """Whether the object was removed."""
    created: bool = False


Change = Callable[[meta.JsonObject], meta.JsonObject]
"""Function that returns the wanted object for the stored one, which it must not change.

If the result has a resourceVersion other than the stored one, the write is refused.
"""


class StoredLookup:
    """`lookup_interface.Lookup` that reads the store."""

    def __init__(self, held: store.Store) -> None:
        self._store = held

    def get(
        self, kind: api_resources.Resource, namespace: str | None, name: str
    ) -> meta.JsonObject | None:
        """Return the committed object of a built-in kind, or None. Raises KeyError for other
        kinds.
        """
        stored = self._store.get(target_of(kind, namespace, name).key)
        return None if stored is None else stored.decode()

    def list(
        self, kind: api_resources.Resource, namespace: str | None = None
    ) -> Iterable[meta.JsonObject]:
        """Return the committed objects of a kind."""
        return (s.decode() for s in self._store.select(kind.qualified, namespace))
