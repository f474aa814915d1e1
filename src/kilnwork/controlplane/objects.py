"""The values of the store: an object as kept, and one change of it.

Objects are kept as encoded JSON: lists and watches send them on without decoding. Used by the store
and by everything that follows its changes. Nothing here is mutable.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from kilnwork.api import meta

_decode = msgspec.json.Decoder(dict).decode
_decode_partial = msgspec.json.Decoder(meta.Partial, strict=False).decode


class Key(NamedTuple):
    """Who an object is: qualified resource (`tasks.kilnwork.dev`), namespace or empty, name."""

    resource: str
    namespace: str
    name: str


class Action(StrEnum):
    """What a change did, in the words of a watch."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Stored(NamedTuple):
    """One object at one sequence number, which is its `metadata.resourceVersion`."""

    key: Key
    sequence: int
    raw: bytes

    def decode(self) -> meta.JsonObject:
        """A fresh copy of the object, free to be changed."""
        return _decode(self.raw)

    def metadata(self) -> meta.ObjectMeta:
        return _decode_partial(self.raw).metadata


class Change(NamedTuple):
    """One committed write.

    `raw`: the object after it; of a deleted one its last state with the sequence number of the
    deletion. `previous`: the state before, None for a new object.
    """

    sequence: int
    action: Action
    key: Key
    raw: bytes
    previous: bytes | None

    def decode(self) -> meta.JsonObject:
        return _decode(self.raw)

    def metadata(self) -> meta.ObjectMeta:
        return _decode_partial(self.raw).metadata


def last_state(raw: bytes, sequence: int) -> bytes:
    """A deleted object as watchers see it: its last state, numbered by the deletion."""
    obj = _decode(raw)
    obj["metadata"]["resourceVersion"] = str(sequence)
    return msgspec.json.encode(obj)


def sequence_of(raw: bytes) -> int:
    """The sequence number inside an encoded object."""
    return int(_decode_partial(raw).metadata.resource_version)
