"""A body is read as it comes: at once what is here, with a deadline what is not."""

import asyncio

import pytest

from kilnwork.kit import serving
from kilnwork.server import asgi, errors
from kilnwork.server.jobs import body, calls

END: asgi.Message = {"type": "http.request", "body": b"", "more_body": False}


def piece(data: bytes, *, more: bool = True) -> asgi.Message:
    """A message of the server."""
    return {"type": "http.request", "body": data, "more_body": more}


def of(receive: asgi.Receive, *, most: int | None = None) -> body.Body:
    """The body of a request whose messages are these."""
    scope: asgi.Scope = {"method": "POST", "path": "/jobs", "query_string": b"", "headers": []}
    return body.Body(calls.Call(scope, receive), most=most)


async def test_pieces_that_are_here_and_that_come_later_make_one_body() -> None:
    coming: asyncio.Queue[asgi.Message] = asyncio.Queue()
    reading = asyncio.create_task(of(coming.get).batch())
    for message in (piece(b"a"), piece(b""), piece(b"b")):
        await asyncio.sleep(0)
        coming.put_nowait(message)
    assert not reading.done()
    coming.put_nowait(piece(b"c", more=False))
    assert await reading == b"abc"


async def test_a_coroutine_that_waits_several_times_is_read_to_its_end() -> None:
    gates = [asyncio.Event() for _ in range(3)]

    async def receive() -> asgi.Message:
        for gate in gates:
            await gate.wait()
        return piece(b"late", more=False)

    reading = asyncio.create_task(of(receive).batch())
    for gate in gates:
        await asyncio.sleep(0)
        gate.set()
    assert await reading == b"late"


async def test_who_sends_nothing_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "STALL_S", 0.01)
    tidied = asyncio.Event()

    async def receive() -> asgi.Message:
        try:
            await asyncio.Event().wait()
        finally:
            tidied.set()
        return END

    with pytest.raises(errors.RequestTimeout, match="nothing came for"):
        await of(receive).piece()
    assert tidied.is_set()


async def test_whoever_reads_can_be_cancelled() -> None:
    reading = asyncio.create_task(of(asyncio.Queue[asgi.Message]().get).piece())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_what_the_server_raises_is_raised() -> None:
    async def receive() -> asgi.Message:
        await asyncio.sleep(0)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await of(receive).piece()


async def test_a_client_that_leaves_and_one_that_sends_too_much() -> None:
    async def leave() -> asgi.Message:
        return {"type": "http.disconnect"}

    async def send() -> asgi.Message:
        return piece(b"0123456789")

    with pytest.raises(serving.Gone):
        await of(leave).piece()
    with pytest.raises(errors.ContentTooLarge, match="the body has 20 bytes"):
        await of(send, most=15).batch()
