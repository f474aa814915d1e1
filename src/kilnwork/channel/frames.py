"""Encodes messages as frames, and decodes frames to messages.

Used by both ends of a link. A frame is a u32 big-endian length (1 to `messages.MAX_FRAME_BYTES`)
and a msgpack body. The decoder depends on the kind of peer: a dispatcher reads the first frame of a
link with `decode_hello`, whose result determines the decoder of all later frames. No sockets here:
`Cutter.feed` is given the bytes that have arrived.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from kilnwork.channel import errors, messages

_HEADER = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_Decoder = msgspec.msgpack.Decoder
_hello: _Decoder[messages.AnyHello] = _Decoder(messages.AnyHello)
_from_worker: _Decoder[messages.FromWorker] = _Decoder(messages.FromWorker)
_from_driver: _Decoder[messages.FromDriver] = _Decoder(messages.FromDriver)
_from_slot: _Decoder[messages.FromSlot] = _Decoder(messages.FromSlot)
_from_attempt: _Decoder[messages.FromAttempt] = _Decoder(messages.FromAttempt)
_to_worker: _Decoder[messages.ToWorker] = _Decoder(messages.ToWorker)
_to_driver: _Decoder[messages.ToDriver] = _Decoder(messages.ToDriver)
_to_slot: _Decoder[messages.ToSlot] = _Decoder(messages.ToSlot)

Sent = messages.FromPeer | messages.ToWorker | messages.ToDriver | messages.ToSlot
"""Any message that either end may send."""

BATCH_BYTES = 256 * 1024
"""Maximum bytes of a frame of a batch, approximately; a larger batch is divided into several
frames, so that its receiver can begin.
"""

M = TypeVar("M")


def encode(message: Sent) -> bytes:
    """Return the complete frame of a message. Raises `FrameTooLarge`."""
    body = _encoder.encode(message)
    if len(body) > messages.MAX_FRAME_BYTES:
        raise errors.FrameTooLarge(
            f"{type(message).__name__} takes {len(body)} bytes; "
            f"a frame holds at most {messages.MAX_FRAME_BYTES}"
        )
    return _HEADER.pack(len(body)) + body


def encode_batch(kind: type[Sent], items: Sequence[object]) -> Iterator[bytes]:
    """Yield frames of a message whose only field is `items`, each of at most about `BATCH_BYTES`.

    Items may be plain tuples instead of the structs that the other end decodes: the encoding is the
    same, and tuples are cheaper to make. Raises `FrameTooLarge` when a single item does not fit a
    frame.
    """
    # The encoding of a struct with `array_like`, a tag and one field.
    body = _encoder.encode((kind.__struct_config__.tag, items))
    if len(body) <= BATCH_BYTES or (len(items) == 1 and len(body) <= messages.MAX_FRAME_BYTES):
        yield _HEADER.pack(len(body)) + body
        return
    if len(items) == 1:
        raise errors.FrameTooLarge(
            f"one item of {kind.__name__} takes {len(body)} bytes; "
            f"a frame holds at most {messages.MAX_FRAME_BYTES}"
        )
    # Slices are smaller than `BATCH_BYTES` on average, so few of them must be divided once more.
    size = max(1, len(items) * BATCH_BYTES // (len(body) + BATCH_BYTES))
    for at in range(0, len(items), size):
        yield from encode_batch(kind, items[at : at + size])


def _decode(decoder: _Decoder[M], body: bytes, peer: str) -> M:
    try:
        return decoder.decode(body)
    # Not all of these are MsgspecErrors: text that is not UTF-8, nesting beyond the recursion
    # limit.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFrame(f"not a message of {peer}: {error}") from error


def decode_hello(body: bytes) -> messages.AnyHello:
    """Decode the first frame of a peer of any kind.

    Raises `MalformedFrame` if it is not a Hello.
    """
    return _decode(_hello, body, "a new peer")


def decode_from_worker(body: bytes) -> messages.FromWorker:
    """Decode a frame from a worker's agent or an executor process. Raises `MalformedFrame`."""
    return _decode(_from_worker, body, "a worker")


def decode_from_driver(body: bytes) -> messages.FromDriver:
    """Decode a frame from a driver. Raises `MalformedFrame`."""
    return _decode(_from_driver, body, "a driver")


def decode_from_slot(body: bytes) -> messages.FromSlot:
    """Decode a frame from a slot. Raises `MalformedFrame`."""
    return _decode(_from_slot, body, "a slot")


def decode_from_attempt(body: bytes) -> messages.FromAttempt:
    """Decode a frame from the sidecar or call process of an attempt. Raises `MalformedFrame`."""
    return _decode(_from_attempt, body, "an attempt")


def decode_to_worker(body: bytes) -> messages.ToWorker:
    """Decode a frame from the dispatcher to an agent, executor process or sidecar.

    Raises `MalformedFrame`.
    """
    return _decode(_to_worker, body, "a dispatcher")


def decode_to_driver(body: bytes) -> messages.ToDriver:
    """Decode a frame from the dispatcher to a driver. Raises `MalformedFrame`."""
    return _decode(_to_driver, body, "a dispatcher")


def decode_to_slot(body: bytes) -> messages.ToSlot:
    """Decode a frame from the dispatcher to a slot or call process. Raises `MalformedFrame`."""
    return _decode(_to_slot, body, "a dispatcher")


class Cutter:
    """Cuts a byte stream into frame bodies, and buffers the frame that is incomplete, if any."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add received data and return the bodies of all frames that are now complete.

        Raises `FrameTooLarge` or `MalformedFrame`, after which the rest of the stream cannot be
        parsed. Bodies before the broken frame are lost with it: the link closes, and the peers
        resume.
        """
        if self._rest:
            data = self._rest + data
        bodies: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= 4:
            (length,) = _HEADER.unpack_from(data, at)
            # Before the body has arrived: a peer must not make this process buffer more.
            if length > messages.MAX_FRAME_BYTES:
                raise errors.FrameTooLarge(
                    f"a frame of {length} bytes was announced; "
                    f"at most {messages.MAX_FRAME_BYTES} are allowed"
                )
            if length == 0:
                raise errors.MalformedFrame("an empty frame")
            if size - at - 4 < length:
                break
            bodies.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        self._rest = data[at:] if at else data
        return bodies
