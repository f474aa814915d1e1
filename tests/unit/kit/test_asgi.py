"""Requests and responses; a body is read as it comes, with a deadline for what is not here."""

import asyncio
from typing import Any

import pytest

from kilnwork.kit import asgi

END: asgi.Message = {"type": "http.request", "body": b"", "more_body": False}


def piece(data: bytes, *, more: bool = True) -> asgi.Message:
    return {"type": "http.request", "body": data, "more_body": more}


def of(receive: asgi.Receive, *, limit: int | None = None) -> asgi.Body:
    """The body of a request whose messages are these."""
    scope: asgi.Scope = {"method": "POST", "path": "/jobs", "query_string": b"", "headers": []}
    return asgi.Request(scope, receive).body(limit=limit)


async def test_pieces_that_are_here_and_that_come_later_make_one_body() -> None:
    coming: asyncio.Queue[asgi.Message] = asyncio.Queue()
    reading = asyncio.create_task(of(coming.get).batch(100))
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

    reading = asyncio.create_task(of(receive).batch(100))
    for gate in gates:
        await asyncio.sleep(0)
        gate.set()
    assert await reading == b"late"


async def test_a_stalled_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "STALL_S", 0.01)
    tidied = asyncio.Event()

    async def receive() -> asgi.Message:
        try:
            await asyncio.Event().wait()
        finally:
            tidied.set()
        return END

    with pytest.raises(asgi.BodyStalled, match="nothing of the body came for"):
        await of(receive).piece()
    assert tidied.is_set()


async def test_a_reader_can_be_cancelled() -> None:
    reading = asyncio.create_task(of(asyncio.Queue[asgi.Message]().get).piece())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_error_of_the_server_is_raised() -> None:
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

    with pytest.raises(asgi.Disconnected):
        await of(leave).piece()
    with pytest.raises(asgi.BodyTooLarge, match="the body has 20 bytes"):
        await of(send, limit=15).batch(16)


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ([], ""),
        ([(b"authorization", b"Bearer abc")], "abc"),
        ([(b"authorization", b"bearer  abc ")], "abc"),
        ([(b"authorization", b"Basic abc")], ""),
        ([(b"authorization", b"abc")], ""),
        ([(b"authorization", b"Bearer one"), (b"authorization", b"Bearer two")], "one"),
    ],
)
def test_bearer_tokens(headers: list[tuple[bytes, bytes]], token: str) -> None:
    assert asked(headers=headers).bearer_token == token


def test_the_subject_of_a_client_certificate() -> None:
    parts = ((("organizationName", "a"),), (("organizationName", "b"),), (("commonName", "me"),))
    for certificate, subject in (
        ({"subject": parts}, ("me", ("a", "b"))),
        ({"subject": parts[:2]}, None),
        ({}, None),
        (None, None),
    ):
        found = asked(state={"peer_certificate": certificate})
        assert found.client_subject == subject


def test_parameters_are_read_or_refused() -> None:
    found = asked(query_string=b"n=5&n=7&f&g=maybe&big=" + b"9" * 30)
    assert found.number("n", least=1, most=10) == 7
    assert found.number("absent", least=1, most=10) is None
    assert (found.flag("f"), found.flag("absent")) == (True, False)
    for name in ("n", "big"):
        with pytest.raises(asgi.BadParameter, match=f"{name}="):
            found.number(name, least=1, most=6)
    with pytest.raises(asgi.BadParameter, match="g=maybe"):
        found.flag("g")


def test_segments_are_decoded_one_by_one() -> None:
    assert asked(path="/a/b/c", raw_path=b"/a/b%2Fc").segments == ["a", "b/c"]


async def test_a_response_has_the_headers_of_all_its_own_and_late_ones() -> None:
    sent: list[asgi.Message] = []

    async def send(message: asgi.Message) -> None:
        sent.append(message)

    common = [(b"cache-control", b"no-store")]
    response = asgi.Response(send, headers=common, extra=lambda: [(b"warning", b"w")])
    before = response.started
    await response.send(200, asgi.TEXT, b"body", headers=[(b"x", b"y")])
    assert (before, response.started) == (False, True)
    assert sent[0]["status"] == 200
    assert sorted(sent[0]["headers"]) == [
        (b"cache-control", b"no-store"),
        (b"content-length", b"4"),
        (b"content-type", asgi.TEXT.encode()),
        (b"warning", b"w"),
        (b"x", b"y"),
    ]
    assert sent[1] == {"type": "http.response.body", "body": b"body", "more_body": False}


def asked(**scope: Any) -> asgi.Request:
    async def receive() -> asgi.Message:
        return END

    whole = {"method": "GET", "path": "/", "query_string": b"", "headers": [], **scope}
    return asgi.Request(whole, receive)
