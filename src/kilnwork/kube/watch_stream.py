"""A parser of watch streams: splits the bytes into lines and decodes the lines into changes.

Used by `client.watch`; `pieces` also for logs. Lines may be as long as the largest object (1.5 MiB
on etcd), so this module splits lines itself, with no limit but `MAX_LINE`. It handles one piece at
a time, and the event loop runs in between; if the consumer is slow, data waits in the socket's
buffer, not here.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, Literal, TypeVar, cast

import msgspec

from kilnwork.kube import errors, object_decoding, objects, transport

T = TypeVar("T")

MAX_LINE = 64 * 1024 * 1024
"""Maximum bytes of a line: a longer one is not a Kubernetes object, and the peer is broken."""

Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One item of a watch.

    `object` is None for a bookmark, and for an object that cannot be decoded as the type.
    """

    kind: Kind
    key: objects.Key
    resource_version: str
    object: T | None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_read_line = msgspec.json.Decoder(_Line)


class Cutter:
    """Splits a stream of bytes into lines without their line feeds; copies each byte once."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that end in `data`, without empty lines.

        Raises Unavailable for a line of more than `MAX_LINE` bytes.
        """
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            self._keep(data)
            return []
        lines = b"".join([*self._rest, head]).split(b"\n")
        self._rest, self._size = [], 0
        self._keep(tail)
        return [line for line in lines if line]

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_LINE:
            raise errors.Unavailable(0, "LineTooLong", "the server sent a line without end")
        if data:
            self._rest.append(data)


def change(line: bytes, as_type: type[T]) -> Change[T]:
    """Decode a line and return the change.

    Raises the error in an ERROR item, such as Expired.
    """
    try:
        item = _read_line.decode(line)
    except msgspec.MsgspecError as error:
        raise errors.Unavailable(0, "Garbled", f"cannot read the watch: {error}") from error
    # A watch that has begun has status 200: a 410 comes as an item of it.
    if item.type == "ERROR":
        raise transport.status_error(bytes(item.object))
    if item.type == "BOOKMARK":
        # A bookmark has only a resourceVersion: it is not an object of the resource.
        version = object_decoding.identify(item.object).metadata.resource_version
        return Change("BOOKMARK", ("", ""), version, None)
    kind = cast(Kind, item.type)
    obj = object_decoding.lenient(item.object, as_type)
    if obj is not None:
        return Change(kind, objects.key(obj), objects.resource_version(obj), obj)
    # The object is unreadable, but its resourceVersion counts: the watch continues after it.
    identity = object_decoding.identify(item.object)
    return Change(kind, identity.key, identity.metadata.resource_version, None)


async def batches(
    http: transport.Transport, content: transport.Content
) -> AsyncIterator[list[bytes]]:
    """Yield the complete lines of each piece of a watch stream.

    An incomplete line at the end of the stream is dropped.
    """
    cutter = Cutter()
    async for some in pieces(http, content):
        lines = cutter.feed(some)
        if lines:
            yield lines


async def pieces(http: transport.Transport, content: transport.Content) -> AsyncIterator[bytes]:
    """Yield the pieces of a body as they arrive.

    Other coroutines run between two pieces, even if the second has already arrived.
    """
    while True:
        with http.failures():
            some = await content.readany()
        if not some:
            return
        yield some
        await asyncio.sleep(0)
