"""SPDY/3.1 frames: parsing and encoding, without I/O and without the state of streams.

Kubernetes carries exec, attach and port-forward over SPDY, although browsers no longer support it.
Sources: https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/ (frames, dictionary)
and github.com/moby/spdystream, which the API server, kubectl and the kubelet use. The header blocks
of one direction share one zlib stream, so each must be decoded, even that of a refused stream. Used
by `streams_spdy`. Flow control (WINDOW_UPDATE, SETTINGS) is parsed and ignored, as by moby: only
TCP slows a sender down.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kilnwork.controlplane.node import streams_interface

MAX_CONTROL = 64 * 1024
"""Maximum size of a control frame. Control frames of Kubernetes stay below 1 KiB."""

MAX_HEADERS = 64 * 1024
"""Maximum size of a decompressed header block, against decompression bombs."""

MAX_DATA = 32 * 1024
"""Maximum size of a data frame that we send: the buffer size of Go's io.Copy."""

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS = 1, 2, 3, 4
PING, GOAWAY, HEADERS, WINDOW_UPDATE = 6, 7, 8, 9

PROTOCOL_ERROR, INVALID_STREAM, REFUSED_STREAM, CANCEL = 1, 2, 3, 5
"""Status codes of RST_STREAM (draft 3.1, 2.6.3)."""

FIN = 1
_CONTROL = 0x8000
_VERSION = 3
_ID = 0x7FFFFFFF
_HEAD = 8

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url "
    "public set-cookie keep-alive origin"
)
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    "Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    "charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(
        struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split()
    )
    + _TAIL.encode()
)
"""Initial dictionary of both zlib streams (draft 3.1, 2.6.10.1): 1,423 bytes."""

Headers = Mapping[str, str]
"""Header values by lower-case name. Repeated values are joined by NUL."""


class SynStream(NamedTuple):
    """Frame with which the peer opens a stream. `fin`: the peer will send nothing on it."""

    stream: int
    headers: Headers
    fin: bool = False


class SynReply(NamedTuple):
    """Frame with which the peer accepts a stream that we opened."""

    stream: int
    headers: Headers
    fin: bool = False


class RstStream(NamedTuple):
    """Frame with which the peer ends a stream in both directions."""

    stream: int
    status: int


class DataPiece(NamedTuple):
    """A piece of a data frame as it arrives. The last piece of the stream has `fin`."""

    stream: int
    data: bytes
    fin: bool = False


class Ping(NamedTuple):
    """Ping frame, to be sent back unchanged unless it is our own."""

    number: int


class GoAway(NamedTuple):
    """Frame with which the peer announces that it opens and accepts no more streams."""

    last: int
    status: int


class HeadersFrame(NamedTuple):
    """Frame with more headers of a stream, which Kubernetes does not use."""

    stream: int
    headers: Headers
    fin: bool = False


Frame = SynStream | SynReply | RstStream | DataPiece | Ping | GoAway | HeadersFrame


class FrameReader:
    """Parses the SPDY frames of one direction."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._buffer = bytearray()
        self._data: tuple[int, int, bool] | None = None
        """(stream, remaining bytes, fin) of the data frame that is being read."""

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield all frames that `piece` completes.

        Raises `streams_interface.ProtocolError`; the connection must be closed then.
        """
        self._buffer += piece
        while True:
            if self._data is not None:
                yield from self._more_data()
                if self._data is not None:
                    return
            if len(self._buffer) < _HEAD:
                return
            first, second = struct.unpack_from(">II", self._buffer)
            flags, length = second >> 24, second & 0xFFFFFF
            # A data frame may have 16 MiB, so it is passed on in pieces as it arrives.
            if not first >> 31:
                del self._buffer[:_HEAD]
                self._data = (_stream_id(first), length, bool(flags & FIN))
                continue
            if length > MAX_CONTROL:
                raise streams_interface.ProtocolError(f"control frame of {length} bytes")
            if len(self._buffer) < _HEAD + length:
                return
            payload = bytes(self._buffer[_HEAD : _HEAD + length])
            del self._buffer[: _HEAD + length]
            frame = self._control(first, flags, payload)
            if frame is not None:
                yield frame

    def _more_data(self) -> Iterator[Frame]:
        assert self._data is not None  # noqa: S101 - for the type checker
        stream, left, fin = self._data
        piece = bytes(self._buffer[:left])
        del self._buffer[: len(piece)]
        left -= len(piece)
        self._data = (stream, left, fin) if left else None
        if piece or not left:
            yield DataPiece(stream, piece, fin and not left)

    def _control(self, first: int, flags: int, payload: bytes) -> Frame | None:
        # The highest bit only marks a control frame.
        version, kind = first >> 16 & 0x7FFF, first & 0xFFFF
        if version != _VERSION:
            raise streams_interface.ProtocolError(f"SPDY version {version}")
        try:
            return self._parse(kind, flags, payload)
        except struct.error as error:
            raise streams_interface.ProtocolError(f"control frame {kind} is too short") from error

    def _parse(self, kind: int, flags: int, payload: bytes) -> Frame | None:
        fin = bool(flags & FIN)
        if kind == SYN_STREAM:
            stream, _, _ = struct.unpack_from(">IIH", payload)
            return SynStream(_stream_id(stream), self._headers(payload[10:]), fin)
        if kind in (SYN_REPLY, HEADERS):
            (stream,) = struct.unpack_from(">I", payload)
            frame_type = SynReply if kind == SYN_REPLY else HeadersFrame
            return frame_type(_stream_id(stream), self._headers(payload[4:]), fin)
        if kind == RST_STREAM:
            stream, status = struct.unpack_from(">II", payload)
            return RstStream(_stream_id(stream), status)
        if kind == PING:
            return Ping(*struct.unpack_from(">I", payload))
        if kind == GOAWAY:
            last, status = struct.unpack_from(">II", payload)
            return GoAway(last & _ID, status)
        return None

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, MAX_HEADERS)
        except zlib.error as error:
            raise streams_interface.ProtocolError(f"header block: {error}") from error
        # zlib stops at the limit and leaves the rest of the block here.
        if self._inflate.unconsumed_tail:
            raise streams_interface.ProtocolError(f"header block of more than {MAX_HEADERS} bytes")
        headers: dict[str, str] = {}
        words = _words(plain)
        # The same iterator is passed twice, since names and values alternate.
        for name, value in zip(words, words, strict=True):
            if name in headers or name != name.lower():
                raise streams_interface.ProtocolError(
                    "header block: names must be lower case and unique"
                )
            headers[name] = value
        return headers


def _words(plain: bytes) -> Iterator[str]:
    (pairs,) = struct.unpack_from(">I", plain)
    at = 4
    for _ in range(2 * pairs):
        (length,) = struct.unpack_from(">I", plain, at)
        at += 4 + length
        if at > len(plain):
            raise streams_interface.ProtocolError("header block is cut off")
        yield plain[at - length : at].decode("latin-1")


def _stream_id(word: int) -> int:
    if not word & _ID:
        raise streams_interface.ProtocolError("stream 0")
    return word & _ID


class FrameWriter:
    """Encodes the SPDY frames of one direction. Send the results in the order of the calls."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def syn_stream(self, stream: int, headers: Headers, *, fin: bool = False) -> bytes:
        payload = struct.pack(">IIH", stream, 0, 0) + self._block(headers)
        return _control(SYN_STREAM, payload, flags=FIN if fin else 0)

    def syn_reply(self, stream: int, headers: Headers) -> bytes:
        return _control(SYN_REPLY, struct.pack(">I", stream) + self._block(headers))

    def _block(self, headers: Headers) -> bytes:
        plain = bytearray(struct.pack(">I", len(headers)))
        for pair in headers.items():
            for word in pair:
                encoded = word.encode("latin-1")
                plain += struct.pack(">I", len(encoded)) + encoded
        # The peer needs the whole block now, while the zlib stream goes on with the next one.
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def data(stream: int, content: bytes, *, fin: bool = False) -> bytes:
    """Return data frames with all of `content`, or an empty frame if only `fin` is to be sent."""
    pieces = [content[at : at + MAX_DATA] for at in range(0, len(content), MAX_DATA)] or [b""]
    encoded = bytearray()
    for number, piece in enumerate(pieces, 1):
        flags = FIN if fin and number == len(pieces) else 0
        encoded += struct.pack(">II", stream, flags << 24 | len(piece)) + piece
    return bytes(encoded)


def rst_stream(stream: int, status: int) -> bytes:
    """Return the frame that ends a stream in both directions."""
    return _control(RST_STREAM, struct.pack(">II", stream, status))


def ping(number: int) -> bytes:
    """Return a ping, or the reply to one."""
    return _control(PING, struct.pack(">I", number))


def go_away(last: int, status: int = 0) -> bytes:
    """Return the frame that refuses streams after `last`, the newest accepted stream."""
    return _control(GOAWAY, struct.pack(">II", last, status))


def _control(kind: int, payload: bytes, *, flags: int = 0) -> bytes:
    return struct.pack(">HHI", _CONTROL | _VERSION, kind, flags << 24 | len(payload)) + payload
