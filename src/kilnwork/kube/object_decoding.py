"""Decodes objects and lists; if some items of a list cannot be read, decodes it item by item.

Used by `client` and `watch_stream`. Each type has one decoder. An object that its struct does not
fit is logged and omitted: one bad object must not hide the others. A struct field of type
`msgspec.Raw` would keep alive the whole body from which it was decoded: such lists are decoded item
by item from copies.
"""

import functools
import logging
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kilnwork.kube import errors, objects

log = logging.getLogger(__name__)

T = TypeVar("T")


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list (metav1.ListMeta)."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _IdentityMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class Identity(msgspec.Struct, frozen=True):
    """The readable fields of an object that its struct does not fit; any of them may be empty."""

    metadata: _IdentityMeta = _IdentityMeta()
    kind: str = ""

    @property
    def key(self) -> objects.Key:
        return self.metadata.namespace, self.metadata.name


class DecodedList(NamedTuple, Generic[T]):
    """The objects of a list that can be read, its metadata, and the keys of the other objects."""

    items: list[T]
    metadata: ListMeta
    unreadable: list[objects.Key]


class _List(msgspec.Struct, Generic[T]):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


def decoder(as_type: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder for a type; it accepts numbers in texts and ignores unknown fields."""
    return _decoder(as_type)


@functools.cache
def _decoder(as_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(as_type, strict=False)


@functools.cache
def _list_decoder(as_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_List[as_type], strict=False)


def whole(body: bytes | msgspec.Raw, as_type: type[T]) -> T:
    """Decode an object and return it. Raises Invalid if it does not fit the type."""
    try:
        found: T = decoder(as_type).decode(body)
    except msgspec.MsgspecError as error:
        raise errors.Invalid(
            0, "Unreadable", f"cannot read the server's response as {as_type.__name__}: {error}"
        ) from error
    return found


def lenient(body: msgspec.Raw, as_type: type[T]) -> T | None:
    """Decode an object of a list or watch; log it and return None if it does not fit the type."""
    try:
        found: T = decoder(as_type).decode(body)
    except msgspec.MsgspecError as error:
        identity = identify(body)
        log.error(  # noqa: TRY400 - a trace would say no more than the text
            "object is unreadable and was left out",
            extra={
                "kind": identity.kind or as_type.__name__,
                "object_namespace": identity.metadata.namespace,
                "object": identity.metadata.name,
                "error": str(error),
            },
        )
        return None
    return found


def identify(body: msgspec.Raw) -> Identity:
    """Return the identity of an object, however malformed its other fields are.

    The identity is empty if it cannot be read either.
    """
    try:
        found: Identity = decoder(Identity).decode(body)
    except msgspec.MsgspecError:
        return Identity()
    return found


def items(body: bytes, as_type: type[T]) -> DecodedList[T]:
    """Decode a list and return it; objects that cannot be read are logged."""
    kind: Any = as_type
    if not _keeps_raw(kind):
        try:
            fast = _list_decoder(kind).decode(body)
        except msgspec.MsgspecError:
            pass  # the items below tell which objects cannot be read
        else:
            return DecodedList(fast.items or [], fast.metadata, [])
    slow = whole(body, _List[msgspec.Raw])
    # A Raw refers to the body from which it was decoded, and would keep all of that in memory.
    copies = [item.copy() for item in slow.items or ()]
    read = [lenient(item, as_type) for item in copies]
    return DecodedList(
        [obj for obj in read if obj is not None],
        slow.metadata,
        [identify(item).key for item, obj in zip(copies, read, strict=True) if obj is None],
    )


@functools.cache
def _keeps_raw(as_type: Any) -> bool:
    return _mentions_raw(msgspec.inspect.type_info(as_type), set())


def _mentions_raw(info: Any, seen: set[int]) -> bool:
    if isinstance(info, msgspec.inspect.RawType):
        return True
    # A type may contain itself.
    if id(info) in seen or not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        return False
    seen.add(id(info))
    for name in info.__struct_fields__:
        value = getattr(info, name)
        for part in value if isinstance(value, tuple) else (value,):
            if _mentions_raw(part, seen):
                return True
    return False
