"""Catalog of the kinds that are served now: the built-in kinds and those of definitions.

Each control plane has one catalog, which is used only on its event loop. `definition_controller`
adds and removes the kinds of CustomResourceDefinitions; everything that needs to know a kind asks
here. `builtin` has the kinds that never change.
"""

from collections.abc import Iterable

import msgspec

from kilnwork.api import api_resources
from kilnwork.controlplane import installed_kind_types
from kilnwork.controlplane.apiserver import builtin


class Catalog:
    """Catalog of the served kinds, by their names.

    `revision` increases with every change and so serves as a cache key. `extended` are kinds with
    admission rules of their own, which are served once they are defined. `pod_warnings` returns
    warnings about Pods. The code that starts a node sets it, since it knows which fields the node
    supports.
    """

    def __init__(self, extended: Iterable[installed_kind_types.InstalledKind] = ()) -> None:
        self.revision = 0
        self.pod_warnings: installed_kind_types.Warn = installed_kind_types.no_warnings
        self.served: tuple[builtin.ServedResource, ...] = builtin.BUILT_IN
        self._extended = {kind.name: kind for kind in extended}
        self._defined: dict[str, tuple[builtin.ServedResource, ...]] = {}
        self._by_path: dict[tuple[str, str, str], builtin.ServedResource] = {}
        self._by_kind: dict[tuple[str, str], builtin.ServedResource] = {}
        self._stored: dict[str, builtin.ServedResource] = {}
        self._index()

    def find(self, group: str, version: str, plural: str) -> builtin.ServedResource | None:
        """Return the kind that a URL path names, or None."""
        return self._by_path.get((group, version, plural))

    def of(self, kind: api_resources.Resource) -> builtin.ServedResource:
        """Return how a kind is served. Raises KeyError for a kind that is not served."""
        return self._by_path[kind.group, kind.version, kind.plural]

    def find_kind(self, api_version: str, kind: str) -> builtin.ServedResource | None:
        """Return the kind with an apiVersion and a kind, as in an owner reference, or None."""
        return self._by_kind.get((api_version, kind))

    def find_stored(self, qualified: str) -> builtin.ServedResource | None:
        """Return the kind whose objects the store keeps under this qualified name, or None."""
        return self._stored.get(qualified)

    def stored_kinds(self) -> Iterable[builtin.ServedResource]:
        """Return one entry for each kind with stored objects, even if it is served in several
        versions.
        """
        return tuple(self._stored.values())

    def extension(self, name: str) -> installed_kind_types.InstalledKind | None:
        """Return the admission rules that are registered for the kind of a definition, or None."""
        return self._extended.get(name)

    def define(self, name: str, versions: Iterable[builtin.ServedResource]) -> None:
        """Serve the given versions for a definition, instead of its previous versions."""
        wanted, extension = tuple(versions), self.extension(name)
        if extension is not None:
            replace = msgspec.structs.replace
            wanted = tuple(replace(one, rules=False, extension=extension) for one in wanted)
        # The revision is a cache key: it must not change without need.
        if self._defined.get(name) == wanted:
            return
        self._defined[name] = wanted
        self._index()

    def forget(self, name: str) -> None:
        """Stop serving the kind of the definition called `name`."""
        if self._defined.pop(name, None) is not None:
            self._index()

    def _index(self) -> None:
        self.revision += 1
        defined = (served for versions in self._defined.values() for served in versions)
        self.served = (*builtin.BUILT_IN, *defined)
        self._by_path, self._by_kind, self._stored = {}, {}, {}
        for served in self.served:
            what = served.resource
            # The first one stays: a definition never replaces a built-in kind.
            self._by_path.setdefault((what.group, what.version, what.plural), served)
            self._by_kind.setdefault((what.api_version, what.kind), served)
            if served.stored_as == what.api_version:
                self._stored.setdefault(what.qualified, served)
        for served in self.served:  # a storage version need not be served
            self._stored.setdefault(served.resource.qualified, served)
