"""Values of the store: a stored object, and one change to it. Immutable.

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
    """What a change did, with the names of watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Stored(NamedTuple):
    """One object at one sequence number, which is its `metadata.resourceVersion`."""

    key: Key
    sequence: int
    raw: bytes

    def decode(self) -> meta.JsonObject:
        """Return the object as a new dict that the caller may change."""
        return _decode(self.raw)

    def metadata(self) -> meta.ObjectMeta:
        return _decode_partial(self.raw).metadata


class StoreChange(NamedTuple):
    """One committed write."""

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
    """Return a deleted object as watchers receive it: its last state with the sequence of the
    deletion.
    """
    obj = _decode(raw)
    obj["metadata"]["resourceVersion"] = str(sequence)
    return msgspec.json.encode(obj)


def sequence_of(raw: bytes) -> int:
    """Return the sequence number in an encoded object."""
    return int(_decode_partial(raw).metadata.resource_version)
