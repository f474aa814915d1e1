"""A client of an API server in its own process: the same as over a connection, without one."""

import asyncio
from typing import Any

import msgspec
import pytest

from kilnwork.api import resource
from kilnwork.kit import asgi
from kilnwork.kube import client, config, errors

SETTINGS = config.Config(server="https://127.0.0.1:1", token="t")  # nobody listens there


class App:
    """Answers what the test wants, and keeps what it was sent."""

    def __init__(self, status: int = 200, body: Any = None, headers: asgi.Headers = ()) -> None:
        self.status = status
        self.body = msgspec.json.encode(body if body is not None else {})
        self.headers = [(b"content-type", b"application/json"), *headers]
        self.seen: list[tuple[str, str, str]] = []
        self.sent: list[bytes] = []
        self.asked: list[dict[bytes, bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.served = 0

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request = asgi.Request(scope, receive)
        self.seen.append((request.method, request.path, scope["query_string"].decode()))
        self.asked.append(dict(scope["headers"]))
        self.sent.append(await request.body().read(limit=1000))
        await self.gate.wait()
        half = len(self.body) // 2
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body[:half], "more_body": True})
        await send({"type": "http.response.body", "body": self.body[half:]})
        self.served += 1


async def test_a_write_arrives_as_over_a_connection() -> None:
    app = App(201, {"metadata": {"name": "a", "uid": "u"}})
    async with client.Client(SETTINGS, user_agent="test", app=app) as kube:
        made = await kube.create(resource.PODS, {"metadata": {"name": "a"}}, "ns")
    assert made["metadata"]["uid"] == "u"
    assert app.seen == [("POST", "/api/v1/namespaces/ns/pods", "")]
    assert msgspec.json.decode(app.sent[0])["metadata"]["name"] == "a"
    headers = app.asked[0]
    assert headers[b"authorization"] == b"Bearer t"
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"user-agent"].startswith(b"test")


async def test_path_and_query_are_decoded_once() -> None:
    app = App()
    async with client.Client(SETTINGS, app=app) as kube:
        await kube.raw("GET", "/a%20b", query={"labelSelector": "a=b,c d"})
    assert app.seen == [("GET", "/a b", "labelSelector=a%3Db%2Cc%20d")]


async def test_a_refusal_is_the_error_that_it_is_over_a_connection() -> None:
    said = {"kind": "Status", "reason": "Conflict", "message": "it has changed"}
    async with client.Client(SETTINGS, app=App(409, said)) as kube:
        with pytest.raises(errors.Conflict, match="it has changed"):
            await kube.raw("PUT", "/x", body=b"{}")


async def test_what_takes_too_long_is_unavailable_and_goes_on() -> None:
    app = App()
    app.gate.clear()
    async with client.Client(SETTINGS, app=app, timeout_s=0.05) as kube:
        with pytest.raises(errors.Unavailable):
            await kube.raw("GET", "/x")
        app.gate.set()
    assert app.served == 1


async def test_who_is_cancelled_does_not_cut_off_the_server() -> None:
    app = App()
    app.gate.clear()
    async with client.Client(SETTINGS, app=app) as kube:
        asking = asyncio.create_task(kube.raw("GET", "/x"))
        while not app.seen:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        app.gate.set()
    assert app.served == 1


async def test_streams_take_a_connection() -> None:
    app = App()
    async with client.Client(SETTINGS, app=app) as kube:
        with pytest.raises(errors.Unavailable):
            [piece async for piece in kube.stream("/x")]
    assert app.seen == []
