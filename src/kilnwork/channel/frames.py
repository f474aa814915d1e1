"""Frames: messages to bytes, bytes to messages.

Used by both ends of a link. A frame is a u32 big-endian length (1 to `messages.MAX_FRAME_BYTES`)
and a msgpack body. No sockets here: a `Cutter` is fed whatever arrived.
"""

import struct

import msgspec

from kilnwork.channel import errors, messages

_HEADER = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_from_worker: msgspec.msgpack.Decoder[messages.FromWorker] = msgspec.msgpack.Decoder(
    messages.FromWorker
)
_to_worker: msgspec.msgpack.Decoder[messages.ToWorker] = msgspec.msgpack.Decoder(messages.ToWorker)


def encode(message: messages.FromWorker | messages.ToWorker) -> bytes:
    """One whole frame; raises `FrameTooLarge` before anything is sent."""
    body = _encoder.encode(message)
    if len(body) > messages.MAX_FRAME_BYTES:
        raise errors.FrameTooLarge(
            f"{type(message).__name__} takes {len(body)} bytes; "
            f"a frame holds at most {messages.MAX_FRAME_BYTES}"
        )
    return _HEADER.pack(len(body)) + body


def decode_from_worker(body: bytes) -> messages.FromWorker:
    """What a worker sent; raises `MalformedFrame` for anything else."""
    try:
        return _from_worker.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFrame(f"not a message of a worker: {error}") from error


def decode_to_worker(body: bytes) -> messages.ToWorker:
    """What a dispatcher sent; raises `MalformedFrame` for anything else."""
    try:
        return _to_worker.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MalformedFrame(f"not a message of a dispatcher: {error}") from error


class Cutter:
    """Cuts a stream into frame bodies; keeps what is not whole yet, at most one frame of it."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Bodies of all frames that are whole now.

        Raises `FrameTooLarge` or `MalformedFrame`, after which the stream cannot be cut further.
        Bodies before the broken frame are lost with it: the link closes, and peers resume.
        """
        if self._rest:
            data = self._rest + data
        bodies: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= 4:
            (length,) = _HEADER.unpack_from(data, at)
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
