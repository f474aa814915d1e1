"""The writer of statuses, which remembers its last write of each object, since the cache may be
behind.

Used by each reconciler for its own kind. The whole status is put, not a merge patch: a merge patch
cannot represent the nulls of a JSON result (RFC 7386). The request contains the resourceVersion,
so that unseen changes are not overwritten.
"""

from typing import Generic, Protocol, TypeVar

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.kube import client

S = TypeVar("S", bound=msgspec.Struct)
S_co = TypeVar("S_co", bound=msgspec.Struct, covariant=True)


class Seen(Protocol[S_co]):
    """An object with a status, as in a cache."""

    @property
    def metadata(self) -> meta.ObjectMeta: ...

    @property
    def status(self) -> S_co: ...


class Declared(Seen[S_co], Protocol[S_co]):
    """An object with a spec and a status."""

    @property
    def spec(self) -> msgspec.Struct: ...


class _Written(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """A write of a status: `wanted` was sent, `stored` is the server's form of it, at `version`."""

    version: str
    wanted: S
    stored: S


class StatusWriter(Generic[S]):
    """Writer of the statuses of one kind; no other code writes them."""

    def __init__(
        self,
        kube: client.Client,
        kind: api_resources.Resource,
        type: type[S],  # noqa: A002 - as in kube.client
    ) -> None:
        self._client = kube
        self._kind = kind
        self._type = type
        self._written: dict[str, _Written[S]] = {}
        self._under_way: dict[str, str] = {}
        """Versions that were postponed during a write of an object, by uid."""

    def current(self, seen: Seen[S]) -> S:
        """Return the current status of an object: the last one that was written, unless another
        client has overwritten it.
        """
        last = self._written.get(seen.metadata.uid)
        if last is None:
            return seen.status
        behind = _number(seen.metadata.resource_version) < _number(last.version)
        return last.wanted if behind or seen.status == last.stored else seen.status

    def has_written(self, seen: Seen[S]) -> bool:
        """Return whether the object as seen is the result of our last write of its status."""
        last = self._written.get(seen.metadata.uid)
        return last is not None and seen.metadata.resource_version == last.version

    def postpone(self, seen: Seen[S]) -> bool:
        """Return whether an object must not be reconciled yet, because its status is being written:
        the watch may deliver the result before the response.

        `write` then reports whether it was another version.
        """
        uid = seen.metadata.uid
        if uid not in self._under_way:
            return False
        self._under_way[uid] = seen.metadata.resource_version
        return True

    def is_own_write(self, old: Declared[S], new: Declared[S]) -> bool:
        """Return whether an object has changed only by our own write of its status, which the pass
        that wrote it has already considered.
        """
        version = new.metadata.resource_version
        before = msgspec.structs.replace(old.metadata, resource_version=version)
        return before == new.metadata and old.spec == new.spec and self.has_written(new)

    async def write(self, seen: Seen[S], wanted: S) -> bool:
        """Write the status `wanted` of an object. Raises Conflict if the object has changed since
        the cached version, and NotFound if it is gone.

        Returns whether another version was postponed (`postpone`) meanwhile, which must be
        reconciled.
        """
        uid = seen.metadata.uid
        self._under_way[uid] = ""
        try:
            version = await self._put(seen, wanted)
        finally:
            postponed = self._under_way.pop(uid)
        return postponed not in ("", version)

    async def _put(self, seen: Seen[S], wanted: S) -> str:
        metadata = seen.metadata
        last = self._written.get(metadata.uid)
        version = metadata.resource_version
        if last is not None and _number(version) < _number(last.version):
            version = last.version
        body = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "resourceVersion": version,
            },
            "status": wanted,
        }
        response = await self._client.replace(self._kind, body, subresource="status")
        stored = msgspec.convert(response.get("status") or {}, self._type, strict=False)
        version = response["metadata"]["resourceVersion"]
        same = stored == wanted  # equal values share one object
        self._written[metadata.uid] = _Written(version, wanted, wanted if same else stored)
        return str(version)

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)


def _number(version: str) -> int:
    """Return a resourceVersion as a number, since versions of one resource can be compared as
    numbers (KEP-5504).
    """
    return int(version) if version.isdecimal() else 0
