"""Serves what CustomResourceDefinitions say: follows them, names them, empties them when they go.

Used by `cluster`. Does what the controllers of k8s.io/apiextensions-apiserver do: accepted names,
`Established`, and the clean-up of a kind's objects before its definition goes. Definitions
that come with the control plane are made or renewed at its start.
"""

from collections.abc import Callable, Sequence

from kilnwork.api import meta, resource
from kilnwork.controlplane import objects, work
from kilnwork.controlplane.apiserver import (
    builtin,
    crud,
    definitions,
    deletion,
    statuses,
)

_DEFINITIONS = resource.CUSTOM_RESOURCE_DEFINITIONS
_NOT_TO_BE_HAD = {served.resource.qualified for served in builtin.BUILT_IN}
"""Built-in kinds: a definition of such a name is kept and nothing more, nor does it take their
objects with it when it goes."""


class DefinitionKeeper:
    """Keeps a catalog equal to the definitions in the store."""

    def __init__(
        self,
        writer: crud.Writer,
        deleter: deletion.Deleter,
        *,
        installed: Sequence[meta.JsonObject] = (),
    ) -> None:
        self._installed = installed
        self._writer = writer
        self._deleter = deleter
        self._store = writer.store
        self._kinds = writer.kinds
        self._ending: set[str] = set()
        self._work: work.Work[str] = work.Work("definitions", self._look)
        self._unfollow: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Install what comes with the control plane, serve what is established, then follow."""
        self._unfollow = self._store.follow(self._on_changes)
        for definition in self._installed:
            await self._install(definition)
        for stored in tuple(self._store.select(_DEFINITIONS.qualified)):
            definition = stored.decode()
            if definitions.is_established(definition):
                self._serve(definition)
            self._work.add(stored.key.name)
        self._work.start()

    async def stop(self) -> None:
        """Stop; the next start finds what is left to do."""
        self._unfollow()
        await self._work.stop()

    async def _install(self, wanted: meta.JsonObject) -> None:
        """Make or renew a definition."""
        place = crud.where(_DEFINITIONS, None, wanted["metadata"]["name"])
        try:
            if self._store.head(place.key) is None:
                above = crud.where(_DEFINITIONS, None, "")
                await self._writer.create(above, wanted, crud.Options())
                return
            spec = wanted["spec"]
            await self._writer.change(
                place, lambda obj: obj | {"spec": {**obj["spec"], **spec}}, crud.Options()
            )
        except statuses.StatusError as error:
            if error.code not in (409, 422):  # another was faster; somebody's own is there
                raise

    def _on_changes(self, changes: Sequence[objects.Change]) -> None:
        for change in changes:
            key = change.key
            if key.resource == _DEFINITIONS.qualified:
                if change.action == objects.Action.DELETED:
                    self._kinds.forget(key.name)
                    self._ending.discard(key.name)
                self._work.add(key.name)
            elif change.action == objects.Action.DELETED and key.resource in self._ending:
                self._work.add(key.resource)

    async def _look(self, name: str) -> None:
        stored = self._store.get(crud.where(_DEFINITIONS, None, name).key)
        if stored is None:
            return
        definition = stored.decode()
        try:
            if definition["metadata"].get("deletionTimestamp"):
                await self._empty(name, definition)
            else:
                await self._establish(name, definition)
        except statuses.StatusError as error:
            if error.code == 409:
                self._work.add(name)
            elif error.code != 404:
                raise

    async def _establish(self, name: str, definition: meta.JsonObject) -> None:
        place = crud.where(_DEFINITIONS, None, name)
        metadata = definition["metadata"]
        if definitions.CLEANUP not in (metadata.get("finalizers") or ()):
            finalizers = [*(metadata.get("finalizers") or ()), definitions.CLEANUP]

            def held(obj: meta.JsonObject) -> meta.JsonObject:
                return obj | {"metadata": {**obj["metadata"], "finalizers": finalizers}}

            await self._writer.change(place, held, crud.Options())
        group = definition["spec"]["group"]
        others = (
            served.resource
            for served in self._kinds.served
            if served.resource.group == group
            and (served.resource.qualified != name or name in _NOT_TO_BE_HAD)
        )
        taken = definitions.taken_name(definition, others)
        status = definitions.status(definition, taken=taken, now=self._writer.now())
        if not taken:
            self._serve(definition)
        if status != definition.get("status"):
            await self._writer.change(
                place, lambda obj: obj | {"status": status}, crud.Options(), subresource="status"
            )

    def _serve(self, definition: meta.JsonObject) -> None:
        name = definition["metadata"]["name"]
        if name not in _NOT_TO_BE_HAD:
            self._kinds.define(name, definitions.served_by(definition))

    async def _empty(self, name: str, definition: meta.JsonObject) -> None:
        """Delete the objects of the kind; when none is left, let the definition go."""
        self._ending.add(name)
        served = None if name in _NOT_TO_BE_HAD else self._kinds.stored(name)
        left = 0
        if served is not None:
            await self._store.settle_all()
            left = await self._delete_all(served)
        if left:
            return
        place = crud.where(_DEFINITIONS, None, name)

        def freed(obj: meta.JsonObject) -> meta.JsonObject:
            finalizers = obj["metadata"].get("finalizers") or ()
            kept = [f for f in finalizers if f != definitions.CLEANUP]
            return obj | {"metadata": {**obj["metadata"], "finalizers": kept}}

        self._kinds.forget(name)
        await self._writer.change(place, freed, crud.Options())

    async def _delete_all(self, served: builtin.Served) -> int:
        qualified = served.resource.qualified
        places = [
            crud.Where(served, s.key.namespace, s.key.name)
            for s in tuple(self._store.select(qualified))
        ]
        outcomes = await self._deleter.delete_all(places, deletion.DeleteOptions())
        return sum(not outcome.gone for outcome in outcomes)
