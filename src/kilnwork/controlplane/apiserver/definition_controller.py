"""Controller of CustomResourceDefinitions: accepts their names, serves their kinds, cleans up.

Used by `cluster`. It does what the controllers of k8s.io/apiextensions-apiserver do: accepted
names, `Established`, and the deletion of a kind's objects before its definition is removed.
Definitions that come with the control plane are created or updated at its start; if one is not
served, the reason is logged and returned by `problem`.
"""

import logging
from collections.abc import Sequence

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import controller_base, store_types
from kilnwork.controlplane.apiserver import (
    builtin,
    definitions,
    deletion,
    object_writer,
    statuses,
    write_types,
)

log = logging.getLogger(__name__)

_DEFINITIONS = api_resources.CUSTOM_RESOURCE_DEFINITIONS
_BUILT_IN_NAMES = {served.resource.qualified for served in builtin.BUILT_IN}
"""Names of built-in kinds: a definition with such a name is stored but not served, and its deletion
does not delete their objects."""

_THEN_RESTART = "then start the server again"


class DefinitionController(controller_base.StoreController[str]):
    """Controller that keeps the catalog of kinds in sync with the definitions in the store."""

    def __init__(
        self,
        writer: object_writer.ObjectWriter,
        deleter: deletion.Deleter,
        *,
        installed: Sequence[meta.JsonObject] = (),
    ) -> None:
        self._installed = {str(one["metadata"]["name"]): one for one in installed}
        self._foreign: dict[str, str] = {}
        """Users' definitions with the name of one to be installed → why they cannot be updated."""
        self._problems: dict[str, str] = {}
        self._accepted: dict[str, tuple[str, meta.JsonObject]] = {}
        """Definition → its group and accepted names."""
        super().__init__("definitions", writer)
        self._deleter = deleter
        self._kinds = writer.kinds
        self._terminating: set[str] = set()

    async def start(self) -> None:
        """Install the definitions of the control plane, serve established ones, then follow
        changes.
        """
        self._follow()
        for name, definition in self._installed.items():
            await self._install(name, definition)
        for stored in tuple(self._store.select(_DEFINITIONS.qualified)):
            definition = stored.decode()
            self._note_names(definition)
            if definitions.is_established(definition):
                self._serve(definition)
            self._enqueue(stored.key.name)
        for name in self._installed:  # before the first request
            await self._reconcile(name)
        self._start_worker()

    @property
    def problem(self) -> str | None:
        """Return the reason why kinds that come with the control plane are not served.

        None when all are served.
        """
        return "; ".join(self._problems.values()) or None

    @property
    def serves_installed(self) -> bool:
        """Return whether every kind that comes with the control plane is served as defined there.

        This includes kinds whose definition is being deleted.
        """
        return not self._foreign and all(map(self._kinds.find_stored, self._installed))

    async def _install(self, name: str, wanted: meta.JsonObject) -> None:
        target = write_types.target_of(_DEFINITIONS, None, name)
        try:
            if self._store.head(target.key) is None:
                above = write_types.target_of(_DEFINITIONS, None, "")
                await self._writer.create(above, wanted, write_types.WriteContext())
                return
            spec = wanted["spec"]
            await self._writer.change(
                target,
                # Merged: defaults stay, so that an unchanged definition is not written again.
                lambda obj: obj | {"spec": {**obj["spec"], **spec}},
                write_types.WriteContext(),
            )
        except statuses.StatusError as error:
            if error.code != 422:
                raise
            self._foreign[name] = error.message

    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        for change in changes:
            key = change.key
            if key.resource == _DEFINITIONS.qualified:
                if change.action == store_types.Action.DELETED:
                    self._forget(key.name)
                self._enqueue(key.name)
            elif change.action == store_types.Action.DELETED and key.resource in self._terminating:
                self._enqueue(key.resource)

    def _forget(self, name: str) -> None:
        """Stop serving the kind of a deleted definition and free its names.

        Other definitions may wait for the names.
        """
        self._kinds.forget(name)
        self._terminating.discard(name)
        self._foreign.pop(name, None)
        group, _ = self._accepted.pop(name, ("", {}))
        self._enqueue_same_group(name, group)
        self._report(name, f"{name} was deleted: start the server again to install it")

    def _enqueue_same_group(self, name: str, group: str) -> None:
        for other, (its_group, _) in self._accepted.items():
            if other != name and its_group == group:
                self._enqueue(other)

    def _report(self, name: str, problem: str | None) -> None:
        """Record and log that an installed definition is not served and why, or that it is served
        again.
        """
        if name not in self._installed or problem == self._problems.get(name):
            return
        if problem is None:
            del self._problems[name]
            log.info("installed definition is served again", extra={"definition": name})
        else:
            self._problems[name] = problem
            log.warning("installed definition fails", extra={"definition": name, "why": problem})

    async def _reconcile(self, name: str) -> None:
        stored = self._store.get(write_types.target_of(_DEFINITIONS, None, name).key)
        if stored is None:
            return
        definition = stored.decode()
        try:
            if definition["metadata"].get("deletionTimestamp"):
                await self._delete_objects(name, definition)
            else:
                await self._establish(name, definition)
        except statuses.StatusError as error:
            if error.code == 409:
                self._enqueue(name)
            elif error.code != 404:
                raise

    async def _establish(self, name: str, definition: meta.JsonObject) -> None:
        target = write_types.target_of(_DEFINITIONS, None, name)
        names, conflict = definitions.accept_names(definition, self._others(definition))
        status = definitions.status(definition, names, conflict, now=self._writer.now())
        known = definition | {"status": status}
        if self._note_names(known):
            self._enqueue_same_group(name, definition["spec"]["group"])
        established = definitions.is_established(known)
        if established:
            self._serve(known)
        else:
            self._kinds.forget(name)
        self._report(name, self._problem_of(name, None if established else conflict))
        if status != definition.get("status"):
            await self._writer.change(
                target,
                lambda obj: obj | {"status": status},
                write_types.WriteContext(),
                subresource="status",
            )

    def _others(self, definition: meta.JsonObject) -> dict[str, list[meta.JsonObject]]:
        """Return the accepted names of the other definitions of a group, by definition.

        Those of built-in kinds are under "".
        """
        group, name = definition["spec"]["group"], definition["metadata"]["name"]
        built_in = [
            {
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
            }
            for kind in (served.resource for served in builtin.BUILT_IN)
            if kind.group == group
        ]
        defined = {
            other: [names]
            for other, (its_group, names) in self._accepted.items()
            if its_group == group and other != name
        }
        return {"": built_in, **defined}

    def _note_names(self, definition: meta.JsonObject) -> bool:
        """Record the accepted names of a definition. Return whether they have changed."""
        name = definition["metadata"]["name"]
        names = (definition.get("status") or {}).get("acceptedNames") or {}
        noted, before = (definition["spec"]["group"], names), self._accepted.get(name)
        self._accepted[name] = noted
        return before != noted

    def _problem_of(self, name: str, conflict: definitions.NameConflict | None) -> str | None:
        if name in self._foreign:
            return (
                f"{name} is another definition than that of this server and cannot be changed into "
                f"it ({self._foreign[name]}): `kubectl delete crd {name}`, {_THEN_RESTART}"
            )
        if conflict is None:
            return None
        return (
            f"{conflict.holder} has names of {name} ({conflict.reason}: {conflict.message}): "
            f"`kubectl delete crd {conflict.holder}`"
        )

    def _serve(self, definition: meta.JsonObject) -> None:
        name = definition["metadata"]["name"]
        if name not in _BUILT_IN_NAMES:
            self._kinds.define(name, definitions.served_by(definition))

    async def _delete_objects(self, name: str, definition: meta.JsonObject) -> None:
        """Delete the objects of the kind of a definition.

        When no object is left, remove the finalizer of the definition.
        """
        self._terminating.add(name)
        # Served as terminating: no objects are created while the existing ones are deleted.
        if definitions.is_established(definition):
            self._serve(definition)
        self._report(name, f"{name} is being deleted: wait until it is gone, {_THEN_RESTART}")
        target = write_types.target_of(_DEFINITIONS, None, name)
        status = definitions.terminating(definition, now=self._writer.now())
        if status != definition.get("status"):
            await self._writer.change(
                target,
                lambda obj: obj | {"status": status},
                write_types.WriteContext(),
                subresource="status",
            )
        served = None if name in _BUILT_IN_NAMES else self._kinds.find_stored(name)
        left = 0
        if served is not None:
            # Objects that were accepted before the kind was terminating must be seen below.
            await self._store.wait_all_committed()
            left = await self._delete_all(served)
        # Finalizers hold some; the deletion of each queues the definition again.
        if left:
            return

        def freed(obj: meta.JsonObject) -> meta.JsonObject:
            finalizers = obj["metadata"].get("finalizers") or ()
            kept = [f for f in finalizers if f != definitions.CLEANUP]
            return obj | {"metadata": {**obj["metadata"], "finalizers": kept}}

        # Before the definition is gone, so that no object is created without it.
        self._kinds.forget(name)
        await self._writer.change(target, freed, write_types.WriteContext())

    async def _delete_all(self, served: builtin.ServedResource) -> int:
        qualified = served.resource.qualified
        targets = [
            write_types.WriteTarget(served, s.key.namespace, s.key.name)
            for s in tuple(self._store.select(qualified))
        ]
        outcomes = await self._deleter.delete_all(targets, deletion.DeleteOptions())
        return sum(not outcome.gone for outcome in outcomes)
