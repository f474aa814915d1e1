"""The streams of a SPDY/3.1 connection: opened, used, reset, limited."""

from kilnwork.controlplane.node import spdy, streams, streams_spdy


class Peer:
    """A client of a session: what moby does on the other end."""

    def __init__(self) -> None:
        self.session = streams_spdy.SpdySession()
        self.writer = spdy.FrameWriter()
        self.reader = spdy.FrameReader()

    def wait_for_state(self, content: bytes) -> list[streams.Event]:
        return list(self.session.receive(content))

    def opens(self, stream: int, kind: str = "stdin") -> list[streams.Event]:
        return self.wait_for_state(self.writer.syn_stream(stream, {"streamtype": kind}))

    def hears(self) -> list[spdy.Frame]:
        return list(self.reader.feed(self.session.take()))


def test_a_stream_is_opened_used_and_ended_both_ways() -> None:
    peer = Peer()
    assert peer.opens(1) == [streams.StreamOpened(1, {"streamtype": "stdin"})]
    assert peer.hears() == []
    peer.session.accept(1)
    assert peer.hears() == [spdy.SynReply(1, {})]
    assert peer.wait_for_state(spdy.data(1, b"in", fin=True)) == [
        streams.StreamData(1, b"in"),
        streams.StreamFinished(1),
    ]
    peer.session.send(1, b"out")
    peer.session.finish(1)
    peer.session.send(1, b"too late")
    peer.session.finish(1)
    assert peer.hears() == [spdy.DataPiece(1, b"out"), spdy.DataPiece(1, b"", fin=True)]
    assert peer.wait_for_state(spdy.data(1, b"unknown stream")) == []


def test_a_reset_ends_a_stream_at_once() -> None:
    peer = Peer()
    peer.opens(1)
    peer.session.accept(1)
    assert peer.wait_for_state(spdy.rst_stream(1, spdy.CANCEL)) == [streams.StreamReset(1)]
    assert peer.wait_for_state(spdy.rst_stream(1, spdy.CANCEL)) == []
    peer.hears()
    peer.session.send(1, b"dropped")
    peer.session.finish(1)
    peer.session.reset(1)
    assert peer.hears() == []


def test_ids_are_odd_and_grow() -> None:
    peer = Peer()
    assert len(peer.opens(3)) == 1
    assert [*peer.opens(1), *peer.opens(3), *peer.opens(4)] == []
    wanted = [spdy.RstStream(n, spdy.PROTOCOL_ERROR) for n in (1, 3, 4)]
    assert peer.hears() == wanted


def test_pings_come_back_but_for_our_own() -> None:
    peer = Peer()
    assert peer.wait_for_state(spdy.ping(1) + spdy.ping(2) + spdy.ping(3)) == []
    assert peer.hears() == [spdy.Ping(1), spdy.Ping(3)]


def test_a_goodbye_resets_what_is_open_and_refuses_the_rest() -> None:
    peer = Peer()
    for stream in (1, 3):
        peer.opens(stream)
        peer.session.accept(stream)
    peer.session.finish(3)
    peer.hears()
    peer.session.close()
    peer.session.close()
    assert peer.hears() == [
        spdy.RstStream(1, spdy.CANCEL),
        spdy.RstStream(3, spdy.CANCEL),
        spdy.GoAway(3, 0),
    ]
    assert peer.opens(5) == []
    assert peer.hears() == [spdy.RstStream(5, spdy.REFUSED_STREAM)]


def test_streams_are_limited() -> None:
    peer = Peer()
    for number in range(streams_spdy.MAX_STREAMS):
        assert len(peer.opens(2 * number + 1)) == 1
    newest = 2 * streams_spdy.MAX_STREAMS + 1
    assert peer.opens(newest) == []
    assert peer.hears() == [spdy.RstStream(newest, spdy.REFUSED_STREAM)]
    peer.wait_for_state(spdy.rst_stream(1, spdy.CANCEL))
    assert len(peer.opens(newest + 2)) == 1


def test_the_peer_says_goodbye() -> None:
    assert Peer().wait_for_state(spdy.go_away(0)) == [streams.PeerGone()]
