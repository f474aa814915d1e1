"""What is served at this moment: the built-in kinds and those that are defined.

One for each control plane, on its event loop. `definition_controller` puts in and takes out what
CustomResourceDefinitions say; everything that needs to know a kind asks here. `builtin` is the part
that never changes.
"""

from collections.abc import Iterable

import msgspec

from kilnwork.api import resource
from kilnwork.controlplane import extensions
from kilnwork.controlplane.apiserver import builtin


class Catalog:
    """Kinds by their names. `revision` rises with every change: a key for what is made of it.

    `extended`: kinds with admission of their own, served when they are defined. `pod_warnings`: of
    Pods, set by the owner of a node that knows what it does with their fields.
    """

    def __init__(self, extended: Iterable[extensions.Kind] = ()) -> None:
        self.revision = 0
        self.pod_warnings: extensions.Warn = extensions.no_warnings
        self.served: tuple[builtin.ServedResource, ...] = builtin.BUILT_IN
        self._extended = {kind.name: kind for kind in extended}
        self._defined: dict[str, tuple[builtin.ServedResource, ...]] = {}
        self._by_path: dict[tuple[str, str, str], builtin.ServedResource] = {}
        self._by_kind: dict[tuple[str, str], builtin.ServedResource] = {}
        self._stored: dict[str, builtin.ServedResource] = {}
        self._index()

    def find(self, group: str, version: str, plural: str) -> builtin.ServedResource | None:
        """What a URL path names, or None."""
        return self._by_path.get((group, version, plural))

    def of(self, kind: resource.Resource) -> builtin.ServedResource:
        """How `kind` is served; KeyError when it is not."""
        return self._by_path[kind.group, kind.version, kind.plural]

    def kind(self, api_version: str, kind: str) -> builtin.ServedResource | None:
        """What an owner reference names, or None."""
        return self._by_kind.get((api_version, kind))

    def stored(self, qualified: str) -> builtin.ServedResource | None:
        """The kind of objects that the store keeps under this name, or None."""
        return self._stored.get(qualified)

    def kept(self) -> Iterable[builtin.ServedResource]:
        """One entry for each kind, also where several versions are served."""
        return tuple(self._stored.values())

    def extension(self, name: str) -> extensions.Kind | None:
        """What is registered for the kind of a definition, or None."""
        return self._extended.get(name)

    def define(self, name: str, versions: Iterable[builtin.ServedResource]) -> None:
        """Serve what the definition called `name` says, instead of what it said before."""
        wanted, extension = tuple(versions), self.extension(name)
        if extension is not None:
            replace = msgspec.structs.replace
            wanted = tuple(replace(one, rules=False, extension=extension) for one in wanted)
        if self._defined.get(name) == wanted:
            return
        self._defined[name] = wanted
        self._index()

    def forget(self, name: str) -> None:
        if self._defined.pop(name, None) is not None:
            self._index()

    def _index(self) -> None:
        self.revision += 1
        defined = (served for versions in self._defined.values() for served in versions)
        self.served = (*builtin.BUILT_IN, *defined)
        self._by_path, self._by_kind, self._stored = {}, {}, {}
        for served in self.served:
            what = served.resource
            self._by_path.setdefault((what.group, what.version, what.plural), served)
            self._by_kind.setdefault((what.api_version, what.kind), served)
            if served.stored_as == what.api_version:
                self._stored.setdefault(what.qualified, served)
        for served in self.served:  # a storage version need not be served
            self._stored.setdefault(served.resource.qualified, served)
