"""The streams of a SPDY/3.1 connection: opened, used, reset, limited."""

from kilnwork.controlplane.node import spdy, streams_interface, streams_spdy


class Peer:
    """A client of a session: what moby does on the other end."""

    def __init__(self) -> None:
        self.session = streams_spdy.SpdySession()
        self.writer = spdy.FrameWriter()
        self.reader = spdy.FrameReader()

    def send(self, content: bytes) -> list[streams_interface.Event]:
        return list(self.session.receive(content))

    def open_stream(self, stream: int, kind: str = "stdin") -> list[streams_interface.Event]:
        return self.send(self.writer.syn_stream(stream, {"streamtype": kind}))

    def receive_frames(self) -> list[spdy.Frame]:
        return list(self.reader.feed(self.session.take()))


def test_stream_is_opened_used_and_finished() -> None:
    peer = Peer()
    assert peer.open_stream(1) == [streams_interface.StreamOpened(1, {"streamtype": "stdin"})]
    assert peer.receive_frames() == []
    peer.session.accept(1)
    assert peer.receive_frames() == [spdy.SynReply(1, {})]
    assert peer.send(spdy.data(1, b"in", fin=True)) == [
        streams_interface.StreamData(1, b"in"),
        streams_interface.StreamFinished(1),
    ]
    peer.session.send(1, b"out")
    peer.session.finish(1)
    peer.session.send(1, b"too late")
    peer.session.finish(1)
    assert peer.receive_frames() == [spdy.DataPiece(1, b"out"), spdy.DataPiece(1, b"", fin=True)]
    assert peer.send(spdy.data(1, b"unknown stream")) == []


def test_reset_ends_a_stream_at_once() -> None:
    peer = Peer()
    peer.open_stream(1)
    peer.session.accept(1)
    assert peer.send(spdy.rst_stream(1, spdy.CANCEL)) == [streams_interface.StreamReset(1)]
    assert peer.send(spdy.rst_stream(1, spdy.CANCEL)) == []
    peer.receive_frames()
    peer.session.send(1, b"dropped")
    peer.session.finish(1)
    peer.session.reset(1)
    assert peer.receive_frames() == []


def test_stream_ids_must_be_odd_and_increase() -> None:
    peer = Peer()
    assert len(peer.open_stream(3)) == 1
    assert [*peer.open_stream(1), *peer.open_stream(3), *peer.open_stream(4)] == []
    wanted = [spdy.RstStream(n, spdy.PROTOCOL_ERROR) for n in (1, 3, 4)]
    assert peer.receive_frames() == wanted


def test_pings_of_the_peer_are_returned() -> None:
    peer = Peer()
    assert peer.send(spdy.ping(1) + spdy.ping(2) + spdy.ping(3)) == []
    assert peer.receive_frames() == [spdy.Ping(1), spdy.Ping(3)]


def test_close_resets_open_streams_and_refuses_new_ones() -> None:
    peer = Peer()
    for stream in (1, 3):
        peer.open_stream(stream)
        peer.session.accept(stream)
    peer.session.finish(3)
    peer.receive_frames()
    peer.session.close()
    peer.session.close()
    assert peer.receive_frames() == [
        spdy.RstStream(1, spdy.CANCEL),
        spdy.RstStream(3, spdy.CANCEL),
        spdy.GoAway(3, 0),
    ]
    assert peer.open_stream(5) == []
    assert peer.receive_frames() == [spdy.RstStream(5, spdy.REFUSED_STREAM)]


def test_number_of_streams_is_limited() -> None:
    peer = Peer()
    for number in range(streams_spdy.MAX_STREAMS):
        assert len(peer.open_stream(2 * number + 1)) == 1
    newest = 2 * streams_spdy.MAX_STREAMS + 1
    assert peer.open_stream(newest) == []
    assert peer.receive_frames() == [spdy.RstStream(newest, spdy.REFUSED_STREAM)]
    peer.send(spdy.rst_stream(1, spdy.CANCEL))
    assert len(peer.open_stream(newest + 2)) == 1


def test_go_away_of_the_peer_is_an_event() -> None:
    assert Peer().send(spdy.go_away(0)) == [streams_interface.PeerGone()]
