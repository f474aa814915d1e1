"""Interface for reading committed objects, which the API server's rules use on the event loop.

Implemented by `write_types.StoredLookup`; used by authentication, authorization, admission, token
requests, logs and streams. It is not a client: no selectors, no waiting, no writes. Callers must
not change what it returns.
"""

from collections.abc import Iterable
from typing import Protocol

from kilnwork.api import api_resources, meta


class Lookup(Protocol):
    """Read access to the committed objects of the store."""

    def get(
        self, kind: api_resources.Resource, namespace: str | None, name: str
    ) -> meta.JsonObject | None:
        """Return an object by kind, namespace and name, or None.

        `namespace` is None for cluster-scoped kinds.
        """
        ...

    def list(
        self, kind: api_resources.Resource, namespace: str | None = None
    ) -> Iterable[meta.JsonObject]:
        """Return all objects of a kind in a namespace; in all namespaces for None."""
        ...
