"""Controller of namespaces: it creates their default objects and empties deleted namespaces.

Used by `cluster` and `resource_handler`. A new namespace gets the ServiceAccount `default` and the
ConfigMap `kube-root-ca.crt` before the response to its creation. A deleted one is emptied, and
removed when nothing is left in it. Admission refuses new objects meanwhile.
"""

import asyncio
import logging
from collections.abc import Sequence

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import controller_base, store_types
from kilnwork.controlplane.apiserver import (
    builtin,
    deletion,
    namespace_conditions,
    object_writer,
    statuses,
    write_types,
)

log = logging.getLogger(__name__)

BASIC = ("default", "kube-system", "kube-public", "kube-node-lease")
"""Namespaces that always exist and cannot be deleted."""

_NAMESPACES = api_resources.NAMESPACES.qualified
_ROOT_CA = "kube-root-ca.crt"
_DEFAULT_ACCOUNT = "default"
_OUR_FINALIZER = "kubernetes"
"""The finalizer in a Namespace's spec that this controller removes once it is empty."""

_BACKGROUND = deletion.DeleteOptions(propagation="Background")
"""Background: in a terminating namespace no owner waits for dependents or orphans them."""

_DELAY_S = 1.0
"""Seconds before a terminating namespace is processed again: after a failed deletion, or after a
change in it that is not a deletion."""


class NamespaceController(controller_base.StoreController[str]):
    """Controller of the namespaces of one store."""

    def __init__(
        self, writer: object_writer.ObjectWriter, deleter: deletion.Deleter, *, ca: str
    ) -> None:
        super().__init__("namespaces", writer)
        self._deleter = deleter
        self._ca = ca
        self._terminating: set[str] = set()
        self._delayed: dict[str, asyncio.TimerHandle] = {}

    async def start(self) -> None:
        """Create the basic namespaces, queue all existing ones, then follow changes."""
        for name in BASIC:
            await self._make(api_resources.NAMESPACES, "", {"metadata": {"name": name}})
        for stored in tuple(self._store.select(_NAMESPACES)):
            self._enqueue(stored.key.name)
        self._follow()
        self._start_worker()
        for name in BASIC:
            await self.create_defaults(name)

    async def stop(self) -> None:
        """Stop the controller. The next start finds the remaining work."""
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        await super().stop()

    async def create_defaults(self, namespace: str) -> None:
        """Create the objects that every namespace contains, if this namespace lacks them.

        Also restores the CA certificate in `kube-root-ca.crt` if it has been changed.
        """
        account = {"metadata": {"name": _DEFAULT_ACCOUNT}}
        await self._make(api_resources.SERVICE_ACCOUNTS, namespace, account)
        root = {"metadata": {"name": _ROOT_CA}, "data": {"ca.crt": self._ca}}
        await self._make(api_resources.CONFIG_MAPS, namespace, root)
        target = write_types.target_of(api_resources.CONFIG_MAPS, namespace, _ROOT_CA)
        stored = self._store.get(target.key)
        if stored is not None and stored.decode().get("data") != root["data"]:
            renewed = {"data": root["data"]}
            await self._writer.change(target, lambda obj: obj | renewed, write_types.WriteContext())

    async def _make(
        self, kind: api_resources.Resource, namespace: str, obj: meta.JsonObject
    ) -> None:
        target = write_types.target_of(kind, namespace, "")
        named = write_types.target_of(kind, namespace, obj["metadata"]["name"])
        if self._store.head(named.key) is not None:
            return
        try:
            await self._writer.create(target, obj, write_types.WriteContext())
        except statuses.StatusError as error:
            if error.code not in (403, 404, 409):  # terminating, deleted, another was faster
                raise

    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        for change in changes:
            key = change.key
            if key.resource == _NAMESPACES:
                self._enqueue(key.name)
            elif self._concerns(key, gone=change.action == store_types.Action.DELETED):
                self._enqueue(key.namespace)
            elif key.namespace in self._terminating:
                self._enqueue_later(key.namespace)

    def _concerns(self, key: store_types.Key, *, gone: bool) -> bool:
        # Restored after a change too, as by the root CA publisher of Kubernetes.
        if (key.resource, key.name) == (api_resources.CONFIG_MAPS.qualified, _ROOT_CA):
            return True
        if key.namespace in self._terminating:
            return gone
        account = (api_resources.SERVICE_ACCOUNTS.qualified, _DEFAULT_ACCOUNT)
        return gone and (key.resource, key.name) == account

    async def _reconcile(self, name: str) -> None:
        stored = self._store.get(write_types.target_of(api_resources.NAMESPACES, "", name).key)
        if stored is None:
            self._terminating.discard(name)
        elif stored.metadata().deletion_timestamp:
            # Before the deletions, whose changes queue the namespace again.
            self._terminating.add(name)
            await self._delete_contents(name)
        else:
            await self.create_defaults(name)

    async def _delete_contents(self, name: str) -> None:
        """Delete the objects in a namespace, Pods first.

        When nothing is left, remove our finalizer.
        """
        target = write_types.target_of(api_resources.NAMESPACES, "", name)
        stored = self._store.get(target.key)
        if stored is None or not _spec_finalizers(stored.decode()):
            return  # a client has removed the finalizer: nothing to wait for
        # Objects that were admitted before the namespace was terminating must be seen below.
        await self._store.wait_all_committed()
        remaining = namespace_conditions.Remaining()
        kinds = [
            served for served in self._writer.kinds.stored_kinds() if served.resource.namespaced
        ]
        pods = [served for served in kinds if served.resource == api_resources.PODS]
        for part in (pods, [served for served in kinds if served not in pods]):
            for served in part:
                await self._delete_all(served, name, remaining)
            # Pods end before anything else is deleted (KEP-5080): they may still use it.
            if remaining.objects:
                break
        await self._write_conditions(target, remaining)
        if remaining.failures:
            self._enqueue_later(name)
        # While objects are left, the deletion of each queues the namespace again.
        elif not remaining.objects:
            await self._writer.change_internally(
                target, _without_our_finalizer, write_types.WriteContext(), subresource="finalize"
            )

    async def _delete_all(
        self,
        served: builtin.ServedResource,
        namespace: str,
        remaining: namespace_conditions.Remaining,
    ) -> None:
        qualified = served.resource.qualified
        targets = [
            write_types.WriteTarget(served, s.key.namespace, s.key.name)
            for s in self._store.select(qualified, namespace)
        ]
        if not targets:
            return
        try:
            await self._deleter.delete_all(targets, _BACKGROUND)
        except statuses.StatusError as error:
            remaining.failures.append(error.message)
            log.warning(
                "content of a namespace cannot be deleted, again soon",
                extra={"namespace": namespace, "kind": qualified, "reason": error.message},
            )
        left = self._store.select(qualified, namespace)
        remaining.add(served.resource, (stored.metadata() for stored in left))

    async def _write_conditions(
        self, target: write_types.WriteTarget, remaining: namespace_conditions.Remaining
    ) -> None:
        """Write the status conditions of a namespace if they have changed."""

        def with_condition(obj: meta.JsonObject) -> meta.JsonObject:
            status = obj.get("status") or {}
            before = status.get("conditions") or ()
            conditions = namespace_conditions.updated(before, remaining, now=self._writer.now())
            return obj | {"status": {**status, "conditions": conditions}}

        await self._writer.change_internally(
            target, with_condition, write_types.WriteContext(), subresource="status"
        )

    def _enqueue_later(self, name: str) -> None:
        """Queue a namespace after a delay, whether or not anything changes meanwhile."""
        if name not in self._delayed:
            loop = asyncio.get_running_loop()
            self._delayed[name] = loop.call_later(_DELAY_S, self._enqueue_delayed, name)

    def _enqueue_delayed(self, name: str) -> None:
        self._delayed.pop(name, None)
        self._enqueue(name)


def _spec_finalizers(namespace: meta.JsonObject) -> list[str]:
    return list((namespace.get("spec") or {}).get("finalizers") or ())


def _without_our_finalizer(namespace: meta.JsonObject) -> meta.JsonObject:
    """Return a namespace without our entry in `spec.finalizers`.

    Other clients may have entries of their own.
    """
    left = [name for name in _spec_finalizers(namespace) if name != _OUR_FINALIZER]
    return {**namespace, "spec": {"finalizers": left}}
