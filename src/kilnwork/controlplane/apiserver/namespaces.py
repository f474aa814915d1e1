"""Namespaces: what each one must hold, and their slow end.

Used by `cluster` and `resources`. A new namespace gets ServiceAccount `default` and ConfigMap
`kube-root-ca.crt` before its creation is answered; a deleted one is emptied, and goes when nothing
is left in it. Refusing new content meanwhile is admission's part.
"""

from collections.abc import Callable, Sequence

from kilnwork.api import meta, resource
from kilnwork.controlplane import errors, objects, work
from kilnwork.controlplane.apiserver import crud, deletion, statuses

BASIC = ("default", "kube-system", "kube-public", "kube-node-lease")
"""Namespaces that are there from the beginning and stay."""

_NAMESPACES = resource.NAMESPACES.qualified
_ROOT_CA = "kube-root-ca.crt"
_DEFAULT_ACCOUNT = "default"
_OURS = "kubernetes"
"""The finalizer in a Namespace's spec that stands for emptying it."""


class Keeper:
    """Keeps the namespaces of one store."""

    def __init__(self, writer: crud.Writer, deleter: deletion.Deleter, *, ca: str) -> None:
        self._writer = writer
        self._deleter = deleter
        self._store = writer.store
        self._ca = ca
        self._terminating: set[str] = set()
        self._work: work.Work[str] = work.Work("namespaces", self._look)
        self._unfollow: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Make the basic namespaces, look at all, then follow."""
        for name in BASIC:
            await self._make(resource.NAMESPACES, "", {"metadata": {"name": name}})
        for stored in tuple(self._store.select(_NAMESPACES)):
            self._work.add(stored.key.name)
        self._unfollow = self._store.follow(self._on_changes)
        self._work.start()
        for name in BASIC:
            await self.furnish(name)

    async def stop(self) -> None:
        """Stop; the next start finds what is left to do."""
        self._unfollow()
        await self._work.stop()

    async def furnish(self, namespace: str) -> None:
        """Make what every namespace holds; what is there stays."""
        account = {"metadata": {"name": _DEFAULT_ACCOUNT}}
        await self._make(resource.SERVICE_ACCOUNTS, namespace, account)
        root = {"metadata": {"name": _ROOT_CA}, "data": {"ca.crt": self._ca}}
        await self._make(resource.CONFIG_MAPS, namespace, root)
        place = crud.where(resource.CONFIG_MAPS, namespace, _ROOT_CA)
        stored = self._store.get(place.key)
        if stored is not None and stored.decode().get("data") != root["data"]:
            renewed = {"data": root["data"]}
            await self._writer.change(place, lambda obj: obj | renewed, crud.Options())

    async def _make(self, kind: resource.Resource, namespace: str, obj: meta.JsonObject) -> None:
        place = crud.where(kind, namespace, "")
        named = crud.where(kind, namespace, obj["metadata"]["name"])
        if self._store.head(named.key) is not None:
            return
        try:
            await self._writer.create(place, obj, crud.Options())
        except statuses.StatusError as error:
            if error.code not in (403, 404, 409):  # terminating, gone, another was faster
                raise

    def _on_changes(self, changes: Sequence[objects.Change]) -> None:
        for change in changes:
            key = change.key
            if key.resource == _NAMESPACES:
                self._work.add(key.name)
            elif self._concerns(key, gone=change.action == objects.Action.DELETED):
                self._work.add(key.namespace)

    def _concerns(self, key: objects.Key, *, gone: bool) -> bool:
        if (key.resource, key.name) == (resource.CONFIG_MAPS.qualified, _ROOT_CA):
            return True
        if key.namespace in self._terminating:
            return gone
        account = (resource.SERVICE_ACCOUNTS.qualified, _DEFAULT_ACCOUNT)
        return gone and (key.resource, key.name) == account

    async def _look(self, name: str) -> None:
        stored = self._store.get(crud.where(resource.NAMESPACES, "", name).key)
        if stored is None:
            self._terminating.discard(name)
        elif stored.metadata().deletion_timestamp:
            self._terminating.add(name)
            await self._empty(name)
        else:
            await self.furnish(name)

    async def _empty(self, name: str) -> None:
        """Delete what is in it; when nothing is left, the namespace itself."""
        await self._store.settle_all()  # what was let in before it began to end
        left = 0
        for served in self._writer.kinds.kept():
            if not served.resource.namespaced:
                continue
            places = [
                crud.Where(served, s.key.namespace, s.key.name)
                for s in self._store.select(served.resource.qualified, name)
            ]
            outcomes = await self._deleter.delete_all(places, deletion.DeleteOptions())
            left += sum(not outcome.gone for outcome in outcomes)
        if left:
            return
        head = self._store.get(crud.where(resource.NAMESPACES, "", name).key)
        if head is None or head.metadata().finalizers:
            return
        if set(_spec_finalizers(head.decode())) - {_OURS}:
            await self._writer.change(
                crud.where(resource.NAMESPACES, "", name),
                _without_ours,
                crud.Options(),
                subresource="finalize",
            )
            return
        try:
            await self._store.remove(head.key, expected=head.sequence)
        except errors.Superseded:
            self._work.add(name)


def _spec_finalizers(namespace: meta.JsonObject) -> list[str]:
    return list((namespace.get("spec") or {}).get("finalizers") or ())


def _without_ours(namespace: meta.JsonObject) -> meta.JsonObject:
    """We are done; others named in `spec.finalizers` are not."""
    left = [name for name in _spec_finalizers(namespace) if name != _OURS]
    return {**namespace, "spec": {"finalizers": left}}
