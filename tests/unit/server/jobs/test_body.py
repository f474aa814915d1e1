"""The body of a request on its way from the network to its sink."""

import asyncio
import gzip
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Literal

import pytest

from kilnwork.kit import asgi
from kilnwork.server import errors
from kilnwork.server.jobs import body, http_resource_base


class _Sink:
    """Stores the pieces and the threads that passed them. `fails_at`: index of the piece that it
    refuses."""

    def __init__(self, *, slow: bool = False, fails_at: int | None = None) -> None:
        self.slow = slow
        self.pieces: list[bytes] = []
        self.threads: set[int] = set()
        self._fails_at = fails_at

    def process(self, piece: bytes) -> None:
        if len(self.pieces) == self._fails_at:
            raise errors.BadRequest("refused")
        self.pieces.append(bytes(piece))
        self.threads.add(threading.get_ident())


class _Turns(asyncio.Semaphore):
    """Counts how often a turn was taken."""

    taken = 0

    async def acquire(self) -> Literal[True]:
        self.taken += 1
        return await super().acquire()


def _request(
    pieces: Sequence[bytes] = (b"",), headers: Sequence[tuple[bytes, bytes]] = ()
) -> http_resource_base.JobRequest:
    left = list(pieces)

    async def receive() -> asgi.Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/jobs",
        "query_string": b"",
        "headers": list(headers),
    }
    return http_resource_base.JobRequest(scope, receive)


@pytest.fixture
def pool() -> Iterator[futures.Executor]:
    with futures.ThreadPoolExecutor(1) as found:
        yield found


@pytest.mark.parametrize(
    ("headers", "coding"),
    [
        ([], ""),
        ([(b"content-encoding", b"identity")], ""),
        ([(b"content-encoding", b"GZIP")], "gzip"),
        ([(b"content-encoding", b"gzip"), (b"content-encoding", b"br")], "gzip,br"),
    ],
)
def test_coding_joins_all_content_encoding_headers(
    headers: list[tuple[bytes, bytes]], coding: str
) -> None:
    assert body.content_coding(_request(headers=headers)) == coding


def test_encoded_body_is_refused_unless_receiver_unpacks() -> None:
    request = _request(headers=[(b"content-encoding", b"gzip")])
    with pytest.raises(errors.UnsupportedMediaType, match="Content-Encoding: gzip") as caught:
        body.open_body(request)
    assert caught.value.headers == ((b"accept-encoding", b"identity"),)
    body.open_body(request, unpacks=True)


@pytest.mark.parametrize(("transfer", "accepted"), [(b"Chunked", True), (b"gzip, chunked", False)])
def test_only_chunked_transfers_are_accepted(transfer: bytes, *, accepted: bool) -> None:
    request = _request(headers=[(b"transfer-encoding", transfer)])
    if accepted:
        body.open_body(request)
    else:
        with pytest.raises(errors.NotImplementedHere, match="Transfer-Encoding: gzip, chunked"):
            body.open_body(request)


@pytest.mark.parametrize(
    ("data", "inline", "on_loop"),
    [
        (b"x" * (64 << 10), True, True),
        (b"x" * ((64 << 10) + 1), True, False),
        (b"x", False, False),
        (gzip.compress(b"x", mtime=0), True, False),
    ],
)
async def test_small_plain_body_is_processed_on_event_loop(
    pool: futures.Executor, data: bytes, *, inline: bool, on_loop: bool
) -> None:
    sink = _Sink()
    await body.feed_sink(body.open_body(_request([data])), sink, pool, inline=inline)
    assert b"".join(sink.pieces) == data
    assert (threading.get_ident() in sink.threads) == on_loop


async def test_long_body_is_passed_in_ordered_batches(pool: futures.Executor) -> None:
    data = [bytes([number]) * (64 << 10) for number in range(20)]
    sink = _Sink()
    await body.feed_sink(body.open_body(_request(data)), sink, pool)
    assert b"".join(sink.pieces) == b"".join(data)
    assert len(sink.pieces) == 3


@pytest.mark.parametrize("fails_at", [0, 1, 2])
async def test_error_of_sink_ends_reading(pool: futures.Executor, fails_at: int) -> None:
    data = [b"x" * (512 << 10)] * 3
    sink = _Sink(fails_at=fails_at)
    with pytest.raises(errors.BadRequest, match="refused"):
        await body.feed_sink(body.open_body(_request(data)), sink, pool)
    assert len(sink.pieces) == fails_at


@pytest.mark.parametrize(
    ("slow", "data", "turns_taken"),
    [(False, b"x", 0), (True, b"x", 1), (False, gzip.compress(b"x", mtime=0), 1)],
)
async def test_expensive_body_acquires_a_turn(
    pool: futures.Executor, data: bytes, turns_taken: int, *, slow: bool
) -> None:
    turns, sink = _Turns(1), _Sink(slow=slow)
    await body.feed_sink(body.open_body(_request([data])), sink, pool, inline=False, turns=turns)
    assert sink.pieces == [data]
    assert turns.taken == turns_taken
    assert not turns.locked()
