"""The values of a write: its target, who writes and how, and its result.

Used by `crud` and by everything that writes through it.
"""

from collections.abc import Callable, Iterable

import msgspec

from kilnwork.api import meta, resource
from kilnwork.controlplane import objects, store
from kilnwork.controlplane.apiserver import authn, builtin


class WriteTarget(msgspec.Struct, frozen=True):
    """One object to write: how it is served, namespace (empty for cluster-wide kinds), name."""

    served: builtin.ServedResource
    namespace: str = ""
    name: str = ""

    @property
    def kind(self) -> resource.Resource:
        return self.served.resource

    @property
    def key(self) -> objects.Key:
        return objects.Key(self.kind.qualified, self.namespace, self.name)


def target_of(kind: resource.Resource, namespace: str | None, name: str) -> WriteTarget:
    """The write target of an object; the namespace is dropped for cluster-wide kinds."""
    return WriteTarget(builtin.of(kind), (namespace or "") if kind.namespaced else "", name)


class WriteContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes, and how. `dry_run`: check everything, keep nothing.

    `oddities`: of the body itself, such as fields that come twice. `manager`: whose the fields
    become that are written.
    """

    user: authn.User = authn.SERVER
    dry_run: bool = False
    field_validation: str = "Warn"
    oddities: tuple[str, ...] = ()
    manager: str = "kilnwork"


class WriteResult(msgspec.Struct, frozen=True):
    """The result of a write: the object as JSON, and warnings for the person who sent it."""

    raw: bytes
    warnings: tuple[str, ...] = ()
    gone: bool = False
    created: bool = False


Change = Callable[[meta.JsonObject], meta.JsonObject]
"""From the object as it is, which it leaves alone, to what it should be.

With a resourceVersion in the result, the write is refused unless that is the stored one."""


class StoredLookup:
    """`lookup.Lookup` over the store."""

    def __init__(self, held: store.Store) -> None:
        self._store = held

    def get(
        self, kind: resource.Resource, namespace: str | None, name: str
    ) -> meta.JsonObject | None:
        """The committed object, or None."""
        found = self._store.get(target_of(kind, namespace, name).key)
        return None if found is None else found.decode()

    def list(
        self, kind: resource.Resource, namespace: str | None = None
    ) -> Iterable[meta.JsonObject]:
        """Committed objects of a kind."""
        return (s.decode() for s in self._store.select(kind.qualified, namespace))
