"""A client of an API server in its own process: the same as over a connection, without one."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, meta
from kilnwork.kit import asgi
from kilnwork.kube import client, config, errors, in_process, watch_stream

SETTINGS = config.Config(server="https://127.0.0.1:1", token="t")  # no process listens there


class App:
    """Responds as the test wants, and keeps the requests."""

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
        made = await kube.create(api_resources.PODS, {"metadata": {"name": "a"}}, "ns")
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


async def test_refusal_raises_the_same_error_as_over_a_connection() -> None:
    said = {"kind": "Status", "reason": "Conflict", "message": "it has changed"}
    async with client.Client(SETTINGS, app=App(409, said)) as kube:
        with pytest.raises(errors.Conflict, match="it has changed"):
            await kube.raw("PUT", "/x", body=b"{}")


async def test_timeout_is_unavailable_while_the_server_continues() -> None:
    app = App()
    app.gate.clear()
    async with client.Client(SETTINGS, app=app, timeout_s=0.05) as kube:
        with pytest.raises(errors.Unavailable):
            await kube.raw("GET", "/x")
        app.gate.set()
    assert app.served == 1


async def test_cancelled_sender_does_not_cancel_the_server() -> None:
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


async def test_logs_take_a_connection() -> None:
    app = App()
    async with client.Client(SETTINGS, app=app) as kube:
        with pytest.raises(errors.Unavailable):
            [piece async for piece in kube.stream("/x")]
    assert app.seen == []


class Watched:
    """Streams queued pieces, until the client disconnects or the end is queued."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent = 0
        self.hung_up = asyncio.Event()

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request, response = asgi.Request(scope, receive), asgi.Response(send)
        await response.start(self.status, asgi.JSON)
        writing = asyncio.create_task(self._write(response))
        leaving = asyncio.create_task(request.wait_disconnected())
        await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            self.hung_up.set()
        leaving.cancel()
        writing.cancel()
        if writing.done():
            writing.result()

    async def _write(self, response: asgi.Response) -> None:
        while line := await self.lines.get():
            if line == b"fail":
                raise RuntimeError("the server has a defect")
            await response.write(line)
            self.sent += len(line)
        await response.end()

    def tell(self, name: str, *, padding: int = 0) -> None:
        metadata = {"name": name, "resourceVersion": "7", "annotations": {"p": "x" * padding}}
        body = {"type": "ADDED", "object": {"metadata": metadata}}
        self.lines.put_nowait(msgspec.json.encode(body) + b"\n")


def watched(kube: client.Client) -> AsyncGenerator[watch_stream.Change[meta.Partial], None]:
    return kube.watch(api_resources.PODS, "ns", resource_version="1", type=meta.Partial)


async def test_watch_without_connection_ends_as_over_a_connection() -> None:
    app = Watched()
    app.tell("a")
    app.tell("b")
    app.lines.put_nowait(b"")
    async with client.Client(SETTINGS, app=app) as kube:
        assert [change.key async for change in watched(kube)] == [("", "a"), ("", "b")]


async def test_server_is_notified_when_a_watch_is_closed() -> None:
    app = Watched()
    app.tell("a")
    async with client.Client(SETTINGS, app=app) as kube:
        async with contextlib.aclosing(watched(kube)) as changes:
            assert (await anext(changes)).key == ("", "a")
        await asyncio.wait_for(app.hung_up.wait(), 5)


async def test_server_waits_for_a_slow_watch_reader() -> None:
    app = Watched()
    for number in range(30):
        app.tell(f"pod-{number}", padding=in_process.MAX_UNREAD_BYTES // 10)
    app.lines.put_nowait(b"")
    async with (
        client.Client(SETTINGS, app=app) as kube,
        contextlib.aclosing(watched(kube)) as changes,
    ):
        await anext(changes)
        for _ in range(100):
            await asyncio.sleep(0)
        assert app.sent < 2.5 * in_process.MAX_UNREAD_BYTES
        assert len([change async for change in changes]) == 29


async def test_refused_watch_raises_the_error_of_its_status() -> None:
    app = Watched(410)
    app.lines.put_nowait(msgspec.json.encode({"kind": "Status", "reason": "Expired", "code": 410}))
    app.lines.put_nowait(b"")
    async with client.Client(SETTINGS, app=app) as kube:
        with pytest.raises(errors.Expired):
            await anext(watched(kube))


async def test_a_watch_of_a_server_that_fails_is_unavailable() -> None:
    app = Watched()
    app.tell("a")
    app.lines.put_nowait(b"fail")
    async with client.Client(SETTINGS, app=app) as kube:
        changes = watched(kube)
        assert (await anext(changes)).key == ("", "a")
        with pytest.raises(errors.Unavailable, match="cut"):
            await anext(changes)


async def test_a_watch_that_says_nothing_for_too_long_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "WATCH_S", 0.0)
    monkeypatch.setattr(client, "LATE_S", 0.05)
    app = Watched()
    async with client.Client(SETTINGS, app=app) as kube:
        with pytest.raises(errors.Unavailable):
            await anext(watched(kube))
        await asyncio.wait_for(app.hung_up.wait(), 5)
