"""Immutable values of the store: a stored object, and a change to an object.

Objects are kept as encoded JSON: lists and watches send them without decoding. Used by the store
and by everything that follows its changes.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from kilnwork.api import meta

_decode = msgspec.json.Decoder(dict).decode
_decode_partial = msgspec.json.Decoder(meta.Partial, strict=False).decode


class Key(NamedTuple):
    """Identity of an object. `resource` is qualified (`tasks.kilnwork.dev`).

    `namespace` is empty for cluster-scoped objects.
    """

    resource: str
    namespace: str
    name: str


class Action(StrEnum):
    """Kind of a change to an object, with the names of watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Stored(NamedTuple):
    """A stored object, with the sequence number of the write that stored it.

    The sequence number is also the object's `metadata.resourceVersion`.
    """

    key: Key
    sequence: int
    raw: bytes

    def decode(self) -> meta.JsonObject:
        """Return the object as a new dict that the caller may change."""
        return _decode(self.raw)

    def metadata(self) -> meta.ObjectMeta:
        return _decode_partial(self.raw).metadata


class StoreChange(NamedTuple):
    """One committed change to an object of the store."""

    sequence: int
    action: Action
    key: Key
    raw: bytes
    """The object after the change; for a deletion, its last state with the new sequence number."""
    previous: bytes | None
    """The object before the change; None for a new object."""

    def decode(self) -> meta.JsonObject:
        return _decode(self.raw)

    def metadata(self) -> meta.ObjectMeta:
        return _decode_partial(self.raw).metadata


def last_state(raw: bytes, sequence: int) -> bytes:
    """Return a deleted object as watchers receive it.

    It is the last state of the object with the sequence number of the deletion.
    """
    obj = _decode(raw)
    obj["metadata"]["resourceVersion"] = str(sequence)
    return msgspec.json.encode(obj)


def sequence_of(raw: bytes) -> int:
    """Return the sequence number that an encoded object contains as its resourceVersion."""
    return int(_decode_partial(raw).metadata.resource_version)
