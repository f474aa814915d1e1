"""SPDY/3.1 frames, also with bytes that github.com/moby/spdystream v0.5.1 wrote."""

import hashlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.controlplane.node import spdy, streams_interface

WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
MOBY = (
    "80030001000000290000000100000000000078f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a680000"
    "0000ffff800300010000001700000003000000000000c22e555c92929907000000ffff00000003010000036869"
    "0a8003000600000004000000018003000300000008000000010000000580030007000000080000000000000000"
)
"""Two streams opened, data, a ping, a reset and a goodbye."""

HEADERS = st.dictionaries(WORDS.map(str.lower), WORDS, max_size=5)


def read(content: bytes) -> list[spdy.Frame]:
    return list(spdy.FrameReader().feed(content))


def in_pieces(content: bytes, size: int) -> list[spdy.Frame]:
    reader = spdy.FrameReader()
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    return [frame for piece in pieces for frame in reader.feed(piece)]


def test_dictionary_matches_the_draft() -> None:
    assert len(spdy.DICTIONARY) == 1423
    digest = "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"
    assert hashlib.sha256(spdy.DICTIONARY).hexdigest() == digest


@given(blocks=st.lists(HEADERS, min_size=1, max_size=4), size=st.integers(1, 50))
def test_header_blocks_share_one_zlib_stream(blocks: list[dict[str, str]], size: int) -> None:
    writer = spdy.FrameWriter()
    content = b"".join(writer.syn_stream(2 * n + 1, h) for n, h in enumerate(blocks))
    wanted = [spdy.SynStream(2 * n + 1, h) for n, h in enumerate(blocks)]
    assert in_pieces(content, size) == wanted


@given(content=st.binary(max_size=2000), size=st.integers(1, 700), fin=st.booleans())
def test_data_is_complete_for_every_chunking(content: bytes, size: int, fin: bool) -> None:  # noqa: FBT001
    found = [
        f for f in in_pieces(spdy.data(7, content, fin=fin), size) if isinstance(f, spdy.DataPiece)
    ]
    assert b"".join(f.data for f in found) == content
    assert [f.fin for f in found] == [False] * (len(found) - 1) + [fin]


def test_data_is_passed_on_before_its_frame_is_complete() -> None:
    reader = spdy.FrameReader()
    assert list(reader.feed(struct.pack(">II", 1, 1 << 20) + b"x" * 100)) == [
        spdy.DataPiece(1, b"x" * 100)
    ]


def test_frames_of_moby_are_parsed() -> None:
    assert read(bytes.fromhex(MOBY)) == [
        spdy.SynStream(1, {"streamtype": "error"}),
        spdy.SynStream(3, {"streamtype": "stdin"}),
        spdy.DataPiece(3, b"hi\n", fin=True),
        spdy.Ping(1),
        spdy.RstStream(1, spdy.CANCEL),
        spdy.GoAway(0, 0),
    ]


def test_short_frames_are_parsed() -> None:
    content = spdy.ping(3) + spdy.rst_stream(5, spdy.CANCEL) + spdy.go_away(7)
    assert read(content) == [spdy.Ping(3), spdy.RstStream(5, spdy.CANCEL), spdy.GoAway(7, 0)]


def test_unused_frames_are_ignored() -> None:
    settings = struct.pack(">HHIIII", 0x8003, spdy.SETTINGS, 12, 1, 7, 65536)
    window = struct.pack(">HHIII", 0x8003, spdy.WINDOW_UPDATE, 8, 1, 65536)
    assert read(settings + window + spdy.ping(1)) == [spdy.Ping(1)]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(struct.pack(">HHI", 0x8002, spdy.PING, 4) + b"\0\0\0\1", id="version"),
        pytest.param(struct.pack(">HHI", 0x8003, spdy.PING, 2) + b"\0\1", id="short"),
        pytest.param(struct.pack(">HHI", 0x8003, spdy.PING, 1 << 20), id="long"),
        pytest.param(struct.pack(">II", 0, 1) + b"x", id="stream zero"),
        pytest.param(struct.pack(">HHIII", 0x8003, spdy.SYN_REPLY, 8, 1, 77), id="not zlib"),
    ],
)
def test_protocol_violations_raise(content: bytes) -> None:
    with pytest.raises(streams_interface.ProtocolError):
        read(content)


def block(plain: bytes) -> bytes:
    """A SYN_STREAM whose header block inflates to `plain`."""
    deflate = zlib.compressobj(zdict=spdy.DICTIONARY)
    packed = deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)
    payload = struct.pack(">IIH", 1, 0, 0) + packed
    return struct.pack(">HHI", 0x8003, spdy.SYN_STREAM, len(payload)) + payload


def word(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


@pytest.mark.parametrize(
    "plain",
    [
        pytest.param(struct.pack(">I", 1) + word(b"a"), id="value missing"),
        pytest.param(struct.pack(">I", 1) + word(b"A") + word(b"b"), id="upper case"),
        pytest.param(struct.pack(">I", 2) + (word(b"a") + word(b"b")) * 2, id="twice"),
        pytest.param(struct.pack(">II", 1, 1 << 31), id="longer than all"),
        pytest.param(struct.pack(">I", 1) + word(b"a") + word(b"\0" * 10_000_000), id="a bomb"),
        pytest.param(struct.pack(">I", 1 << 31), id="more pairs than bytes"),
    ],
)
def test_invalid_header_block_raises(plain: bytes) -> None:
    with pytest.raises(streams_interface.ProtocolError):
        read(block(plain))
