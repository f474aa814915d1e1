"""What the API server's rules may look up: point reads of stored objects, on the event loop.

Implemented by the store, used by authentication, authorisation and admission. Not a client: no
selectors, no waiting, no writes. What it returns must not be changed.
"""

from collections.abc import Iterable
from typing import Protocol

from kilnwork.api import meta, resource


class Lookup(Protocol):
    """Read access to what is committed."""

    def get(
        self, kind: resource.Resource, namespace: str | None, name: str
    ) -> meta.JsonObject | None:
        """The object, or None; `namespace` is None for cluster-scoped kinds."""
        ...

    def list(
        self, kind: resource.Resource, namespace: str | None = None
    ) -> Iterable[meta.JsonObject]:
        """All objects of a kind in a namespace, or everywhere when that is None."""
        ...
