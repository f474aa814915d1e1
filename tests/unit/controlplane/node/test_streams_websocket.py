"""Streams over WebSocket messages, with the library's client as the peer."""

import base64

import pytest
from websockets import frames, protocol

from kilnwork.controlplane.node import spdy, streams_interface, streams_websocket

EXEC = [{"streamtype": "stdin"}, {"streamtype": "stdout"}, None, {"streamtype": "error"}]


class Peer:
    """A client that has done the handshake."""

    def __init__(self, codec: streams_interface.Codec) -> None:
        self.codec = codec
        self.client = protocol.Protocol(protocol.Side.CLIENT)

    def send(self, *messages: bytes, text: bool = False) -> list[streams_interface.Event]:
        for message in messages:
            (self.client.send_text if text else self.client.send_binary)(message)
        return self.flush()

    def flush(self) -> list[streams_interface.Event]:
        return list(self.codec.receive(b"".join(self.client.data_to_send())))

    def receive_frames(self) -> list[tuple[frames.Opcode, bytes]]:
        self.client.receive_data(self.codec.take())
        events = self.client.events_received()
        return [(e.opcode, bytes(e.data)) for e in events if isinstance(e, frames.Frame)]


def channels(subprotocol: str = "v5.channel.k8s.io") -> Peer:
    peer = Peer(streams_websocket.Channels(subprotocol, EXEC))
    assert [e.stream for e in peer.flush() if isinstance(e, streams_interface.StreamOpened)] == [
        0,
        1,
        3,
    ]
    return peer


def test_first_byte_is_the_stream_number() -> None:
    peer = channels()
    assert peer.send(b"\0in", b"\0", b"", b"\7absent", b"\2closed") == [
        streams_interface.StreamData(0, b"in")
    ]
    peer.codec.send(1, b"out")
    peer.codec.send(2, b"dropped")
    peer.codec.send(1, b"")
    assert peer.receive_frames() == [
        (frames.Opcode.BINARY, b"\1out"),
        (frames.Opcode.BINARY, b"\1"),
    ]


def test_base64_messages_are_text() -> None:
    peer = channels("v4.base64.channel.k8s.io")
    assert peer.send(b"0" + base64.b64encode(b"\xff"), text=True) == [
        streams_interface.StreamData(0, b"\xff")
    ]
    peer.codec.send(1, b"\xfe")
    assert peer.receive_frames() == [(frames.Opcode.TEXT, b"1" + base64.b64encode(b"\xfe"))]
    with pytest.raises(streams_interface.ProtocolError, match="base64"):
        peer.send(b"0!", text=True)


def test_version_5_close_signal_ends_one_stream() -> None:
    peer = channels()
    assert peer.send(b"\xff\0", b"\0late", b"\xff\0", b"\xff\7") == [
        streams_interface.StreamFinished(0)
    ]
    with pytest.raises(streams_interface.ProtocolError):
        peer.send(b"\xff")


def test_version_4_has_no_close_signal() -> None:
    assert channels("v4.channel.k8s.io").send(b"\xff\0") == []


def test_fragmented_message_is_joined() -> None:
    peer = channels()
    peer.client.send_binary(b"\0a", fin=False)
    peer.client.send_ping(b"alive?")
    assert peer.flush() == []
    assert peer.receive_frames() == [(frames.Opcode.PONG, b"alive?")]
    peer.client.send_continuation(b"b", fin=True)
    assert peer.flush() == [streams_interface.StreamData(0, b"ab")]


def test_finished_and_reset_streams_send_nothing() -> None:
    peer = channels()
    peer.codec.finish(1)
    peer.codec.reset(0)
    peer.codec.send(1, b"dropped")
    assert peer.send(b"\0dropped") == []
    assert peer.receive_frames() == []


def test_close_from_either_side() -> None:
    peer = channels()
    peer.client.send_close(1000)
    assert peer.flush() == [streams_interface.PeerGone()]
    peer.codec.send(1, b"dropped")
    assert [code for code, _ in peer.receive_frames()] == [frames.Opcode.CLOSE]
    peer = channels()
    peer.codec.close()
    peer.codec.close()
    peer.codec.send(1, b"dropped")
    assert [code for code, _ in peer.receive_frames()] == [frames.Opcode.CLOSE]


@pytest.mark.parametrize("content", [b"GET / HTTP/1.1\r\n", b"\x82\x01x", b"\xf0\x80\0\0\0\0"])
def test_invalid_frames_raise(content: bytes) -> None:
    peer = channels()
    with pytest.raises(streams_interface.ProtocolError):
        list(peer.codec.receive(content))


def test_endless_message_raises() -> None:
    peer = channels()
    head = b"\x82\xff" + (streams_websocket.MAX_MESSAGE + 1).to_bytes(8, "big")
    with pytest.raises(streams_interface.ProtocolError):
        list(peer.codec.receive(head + b"\0\0\0\0"))


def test_tunnel_carries_spdy_in_messages() -> None:
    peer = Peer(streams_websocket.Tunnel())
    opening = spdy.FrameWriter().syn_stream(1, {"streamtype": "data"})
    assert peer.send(opening[:5]) == []
    assert peer.send(opening[5:], spdy.data(1, b"in")) == [
        streams_interface.StreamOpened(1, {"streamtype": "data"}),
        streams_interface.StreamData(1, b"in"),
    ]
    peer.codec.accept(1)
    peer.codec.send(1, b"out")
    peer.codec.close()
    heard = peer.receive_frames()
    content = b"".join(data for code, data in heard if code is frames.Opcode.BINARY)
    wanted = [
        spdy.SynReply(1, {}),
        spdy.DataPiece(1, b"out"),
        spdy.RstStream(1, 5),
        spdy.GoAway(1, 0),
    ]
    assert list(spdy.FrameReader().feed(content)) == wanted
    assert heard[-1][0] is frames.Opcode.CLOSE
