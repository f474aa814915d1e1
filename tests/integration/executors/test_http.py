"""Executor http against well-behaved and misbehaving servers."""

import asyncio
import base64
import contextlib
import gc
import gzip
import hashlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from kilnwork.data import local_blobs
from kilnwork.executors.http import secret_values
from kilnwork.kit import egress
from support import certificates, http_executors, http_test_server, short_paths, waiting

STRICT = egress.Policy()


@pytest.fixture
async def site() -> AsyncIterator[http_test_server.HttpServer]:
    async with http_test_server.running() as made:
        yield made


@pytest.fixture
async def world() -> AsyncIterator[http_executors.World]:
    async with http_executors.running(short_paths.directory(), lease_s=10.0, renew_s=1.0) as made:
        yield made


async def test_request_is_sent_and_its_response_is_the_result(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor("executor-a")
    view = await world.runs(
        f"{site.base}/echo?a=1",
        request={
            "method": "POST",
            "headers": [{"name": "X-Task", "value": "${task.name}"}],
            "queryString": [{"name": "a", "value": "1"}, {"name": "b", "value": "ä &"}],
            "cookies": [{"name": "c", "value": "d"}],
            "postData": {"mimeType": "application/json", "text": '{"x": ${task.inputs.x}}'},
        },
        inputs=b'{"x": ["${task.attempt}", 1]}',
    )
    assert (view.state, view.reason, view.worker) == ("Success", "Succeeded", "executor-a")
    seen = world.result(view)
    headers = {name.lower(): value for name, value in seen["headers"]}
    assert (seen["method"], seen["target"]) == ("POST", "/echo?a=1&b=%C3%A4+%26")
    assert (seen["body"], headers["cookie"]) == ('{"x": ["${task.attempt}",1]}', "c=d")
    assert (headers["x-task"], headers["content-type"]) == (view.name, "application/json")


async def test_request_and_response_are_logged_as_har(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor()
    view = await world.runs(f"{site.base}/echo")
    [entry] = world.log(view)["entries"]
    assert (entry["request"]["url"], entry["response"]["status"]) == (f"{site.base}/echo", 200)
    assert entry["response"]["content"]["mimeType"] == "application/json"
    assert entry["timings"]["wait"] > 0
    assert entry["time"] >= entry["timings"]["wait"]


@pytest.mark.parametrize(
    ("path", "rules", "state", "reason"),
    [
        ("/ok", {}, "Success", "Succeeded"),
        ("/ok", {"resultJsonPath": ".result.jobs"}, "Success", "Succeeded"),
        ("/ok", {"resultJsonPath": ".result.none"}, "Failed", "ResponseRejected"),
        ("/ok", {"resultJsonPath": "$.no"}, "Failed", "ResponseRejected"),
        ("/ok", {"successCondition": '.body.state == "done"'}, "Success", "Succeeded"),
        ("/ok", {"successCondition": '.body.state == "no"'}, "Failed", "ResponseRejected"),
        ("/ok", {"failureCondition": ".body.result"}, "Failed", "ResponseRejected"),
        ("/teapot", {}, "Failed", "ResponseRejected"),
        ("/teapot", {"successCondition": ".status == 418"}, "Success", "Succeeded"),
        ("/ok", {"format": "yaml"}, "Success", "Succeeded"),
        ("/text", {"format": "json"}, "Failed", "InvalidResponse"),
        ("/text", {}, "Success", "Succeeded"),
        ("/empty", {}, "Success", "Succeeded"),
        ("/charset", {}, "Success", "Succeeded"),
        ("/header", {}, "Success", "Succeeded"),
    ],
)
async def test_response_decides_the_state(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    path: str,
    rules: dict[str, Any],
    state: str,
    reason: str,
) -> None:
    site.routes |= {
        "/ok": http_test_server.json_response(
            {"result": {"jobs": [1, 2]}, "state": "done", "no": False}
        ),
        "/teapot": http_test_server.json_response({"tea": 1}, status="418 I'm a teapot"),
        "/text": http_test_server.raw_response(
            http_test_server.response(b"{ no json", kind="text/plain")
        ),
        "/empty": http_test_server.raw_response(b"HTTP/1.1 204 No Content\r\n\r\n"),
        "/charset": http_test_server.raw_response(
            http_test_server.response(b"x", kind="text/plain; charset=none")
        ),
        "/header": http_test_server.raw_response(
            b"HTTP/1.1 200 \xe9\r\nX-A: \xff\r\nContent-Length: 0\r\n\r\n"
        ),
    }
    await world.executor()
    view = await world.runs(site.base + path, response=rules)
    assert (view.state, view.reason) == (state, reason), view.message
    assert world.failures == []


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"this is no http\r\n\r\n", "InvalidResponse"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "RequestFailed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "InvalidResponse"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab", "RequestFailed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\nx", "InvalidResponse"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n{  }",
            "RequestFailed",
        ),
        (b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n", "InvalidResponse"),
        (b"", "RequestFailed"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", "RequestFailed"),
    ],
)
async def test_malformed_or_cut_off_response_is_a_failure(
    world: http_executors.World, site: http_test_server.HttpServer, raw: bytes, reason: str
) -> None:
    site.routes["/bad"] = http_test_server.raw_response(raw, then_close=True)
    await world.executor()
    view = await world.runs(f"{site.base}/bad", request={"method": "POST"})
    assert (view.state, view.reason) == ("Failed", reason), view.message
    assert "\n" not in view.message
    assert "RawResponseMessage" not in view.message
    assert len(site.got("/bad")) == 1
    assert world.failures == []


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_server_that_resets_the_connection_is_a_failure(
    world: http_executors.World, site: http_test_server.HttpServer, method: str
) -> None:
    async def reset(site: Any, request: Any, writer: asyncio.StreamWriter) -> None:
        no_linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        writer.transport.abort()

    site.routes["/reset"] = reset
    loop, complaints = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    await world.executor()
    view = await world.runs(f"{site.base}/reset", request={"method": method})
    assert (view.state, view.reason) == ("Failed", "RequestFailed"), view.message
    assert world.failures == []
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("late", [False, True])
async def test_bytes_after_a_response_are_not_the_next_response(
    world: http_executors.World, site: http_test_server.HttpServer, *, late: bool
) -> None:
    """The connection is reused by a request to the same server."""
    written = asyncio.Event()

    async def two(
        site: http_test_server.HttpServer,
        request: http_test_server.Request,
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(http_test_server.response(b'"first"'))
        if late:
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.write(http_test_server.response(b'"not asked for"'))
        written.set()

    site.routes["/two"] = two
    await world.executor()
    view = await world.runs(f"{site.base}/two")
    assert world.result(view) == "first"
    await written.wait()
    await asyncio.sleep(0.1)
    view = await world.runs(f"{site.base}/echo")
    assert world.result(view)["target"] == "/echo"


@pytest.mark.parametrize(
    ("path", "timeouts", "named"),
    [
        ("/held", {"readTimeout": 0.2}, "readTimeout"),
        ("/drip", {"readTimeout": 5, "totalTimeout": 0.4}, "totalTimeout"),
        ("/chunks", {"readTimeout": 5, "totalTimeout": 0.4}, "totalTimeout"),
    ],
)
async def test_slow_server_is_cut_off(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    path: str,
    timeouts: dict[str, float],
    named: str,
) -> None:
    await world.executor()
    view = await world.runs(site.base + path, timeout=timeouts)
    assert (view.state, view.reason) == ("Failed", "RequestTimedOut")
    assert named in view.message
    await waiting.wait_until_async(lambda: site.open == 0, what="the connection is gone")


@pytest.mark.parametrize("path", ["/endless", "/bomb"])
async def test_oversized_body_is_not_read_to_its_end(
    world: http_executors.World, site: http_test_server.HttpServer, path: str
) -> None:
    headers = (("Content-Encoding", "gzip"),)
    bomb = http_test_server.response(gzip.compress(bytes(10_000_000)), headers=headers)
    site.routes["/bomb"] = http_test_server.raw_response(bomb)
    await world.executor()
    view = await world.runs(site.base + path, response={"maxBytes": 100_000})
    assert (view.state, view.reason) == ("Failed", "ResponseTooLarge")
    await waiting.wait_until_async(lambda: site.open == 0, what="the connection is gone")


@pytest.mark.parametrize(
    ("more", "ends"),
    [({}, ("Success", "Succeeded")), ({"method": "POST"}, ("Failed", "ExecutorLost"))],
)
async def test_unstored_result_is_requested_again_only_if_idempotent(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    more: dict[str, str],
    ends: tuple[str, str],
) -> None:
    site.routes["/large"] = http_test_server.raw_response(
        http_test_server.response(b"1" * 100_000, kind="a/b")
    )
    kept = world.directory / "blobs"
    kept.write_bytes(b"no directory")
    await world.executor()
    spec = {"retry": {"delaySeconds": 0.3, "jitter": 0, "maxLosses": 100}}
    task = await world.submit(f"{site.base}/large", request=more, spec=spec)
    if not more:
        await waiting.wait_until_async(
            lambda: len(site.got("/large")) > 1, what="it is requested again"
        )
        kept.unlink()
    view = await world.ends(task)
    assert (view.state, view.reason) == ends, view.message
    assert (len(site.got("/large")) > 1) is not bool(more)


async def test_large_result_is_a_blob(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    large = bytes(range(256)) * 4096
    site.routes["/large"] = http_test_server.raw_response(
        http_test_server.response(large, kind="application/zip")
    )
    await world.executor()
    view = await world.runs(f"{site.base}/large")
    assert view.state == "Success", view.message
    assert view.result is not None
    assert (view.result.size, view.result.digest) == (len(large), hashlib.sha256(large).digest())
    kept = local_blobs.Blobs(world.directory / "blobs" / http_executors.NS, durable=False)
    assert kept.descriptor(hashlib.sha256(large).digest()) > 0


async def test_killed_request_has_closed_its_connection(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor()
    task = await world.submit(f"{site.base}/held")
    await world.wait_for_state(task, "Running")
    [request] = await waiting.wait_until_async(lambda: site.got("/held"), what="it has come")
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    await asyncio.wait_for(request.closed.wait(), 5)
    assert len(site.requests) == 1


async def test_request_killed_while_connecting_is_not_sent(world: http_executors.World) -> None:
    """The listener's queue is full, so the kernel accepts no more connections."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        await world.executor()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        task = await world.submit(url, timeout={"socketTimeout": 60})
        await world.wait_for_state(task, "Staging", "Connecting")
        await world.kill(task)
        view = await world.wait_for_state(task, "Killed", "Killed")
    assert (view.stopped, view.started) == (True, None)


async def test_slow_connection_attempt_times_out(world: http_executors.World) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        await world.executor()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        view = await world.runs(url, timeout={"socketTimeout": 0.3})
    assert (view.state, view.reason, view.started) == ("Failed", "RequestTimedOut", None)
    assert "socketTimeout" in view.message


async def test_unread_body_does_not_delay_a_kill(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    """The server does not read a large body, so a graceful close would block for ever."""
    stuck = asyncio.Event()

    async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await stuck.wait()
        writer.close()

    server = await asyncio.start_server(never_reads, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await world.executor()
    body = {"method": "PUT", "postData": {"text": "x" * 700_000}}
    task = await world.submit(f"http://127.0.0.1:{port}/", request=body, idempotent=True)
    await world.wait_for_state(task, "Running")
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped is True
    stuck.set()
    server.close()


async def test_request_over_its_time_limit_is_cut_off(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor()
    view = await world.runs(
        f"{site.base}/held", spec={"timeouts": {"runningSeconds": 0.3, "killGraceSeconds": 1}}
    )
    assert (view.state, view.reason, view.stopped) == ("Failed", "TimedOut", True)
    await waiting.wait_until_async(lambda: site.open == 0, what="the connection is gone")


async def test_loopback_is_refused_unless_it_is_allowed(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor(policy=STRICT)
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "[::1]"):
        view = await world.runs(f"http://{host}:{site.port}/echo")
        assert (view.state, view.reason) == ("Failed", "AddressRefused"), view.message
        assert view.started is None
    assert site.connections == 0


async def test_redirect_target_is_checked(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    policy = egress.Policy(allowed=(egress.parse_allowance(f"127.0.0.1:{site.port}"),))
    async with http_test_server.running() as other:
        site.routes["/away"] = http_test_server.raw_response(
            http_test_server.response(
                status="302 Found", headers=(("Location", f"{other.base}/echo"),)
            )
        )
        await world.executor(policy=policy)
        view = await world.runs(f"{site.base}/away", redirects={"follow": 3})
        assert (view.state, view.reason) == ("Failed", "AddressRefused"), view.message
        assert other.connections == 0
        view = await world.runs(f"{site.base}/away")
        assert (view.state, view.reason) == ("Failed", "ResponseRejected"), view.message


async def test_redirect_does_not_send_secrets_to_another_host(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    world.secrets["s"] = _secret("127.0.0.1", token="top secret")
    async with http_test_server.running() as other:
        site.routes["/here"] = _redirect("/echo")
        site.routes["/away"] = _redirect(f"{other.base}/echo")
        await world.executor()
        header = {"name": "Authorization", "_secretRef": _ref("s", "token", "Bearer ")}
        for path, expected in (("/here", "Bearer top secret"), ("/away", None)):
            view = await world.runs(
                site.base + path, request={"headers": [header]}, redirects={"follow": 3}
            )
            assert view.state == "Success", view.message
            seen = {name.lower(): value for name, value in world.result(view)["headers"]}
            assert seen.get("authorization") == expected
            assert len(world.log(view)["entries"]) == 2
        assert site.got("/away")[0].header("authorization") == "Bearer top secret"


async def test_host_name_is_resolved_and_checked_per_connection(
    world: http_executors.World, site: http_test_server.HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name resolves to another, forbidden address when the redirect is followed."""
    addresses = ["127.0.0.1", "169.254.169.254"]

    def resolve(host: str, port: int, *_: Any) -> list[Any]:
        assert host == "moves.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses.pop(0), port))]

    site.routes["/away"] = _redirect("/echo", status="307 Temporary Redirect")
    await world.executor()
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    view = await world.runs(
        f"http://moves.test:{site.port}/away", request={"method": "POST"}, redirects={"follow": 1}
    )
    assert (view.state, view.reason) == ("Failed", "AddressRefused"), view.message
    assert "169.254.169.254" in view.message
    assert addresses == []
    assert (len(site.requests), site.connections) == (1, 1)


async def test_endless_redirects_fail(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    site.routes["/round"] = _redirect("/round")
    await world.executor()
    view = await world.runs(f"{site.base}/round", redirects={"follow": 4})
    assert (view.state, view.reason) == ("Failed", "ResponseRejected")
    assert view.message == (
        "status 302, and spec.http.redirects.follow is 4: raise that, or request /round"
    )
    assert len(site.got("/round")) == 5


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://[::1/", "(Invalid IPv6 URL): 'http://[::1/'"),
        ("http://a:99999/", "(Port out of range 0-65535): 'http://a:99999/'"),
        ("file:///etc/passwd", ": 'file:///etc/passwd'"),
    ],
)
async def test_unreachable_address_is_named(
    world: http_executors.World, site: http_test_server.HttpServer, location: str, message: str
) -> None:
    site.routes |= {
        "/away": _redirect(location),
        "/later": _redirect(location, status="202 Accepted"),
    }
    await world.executor()
    view = await world.runs(f"{site.base}/away", redirects={"follow": 1})
    assert view.reason == "InvalidResponse"
    assert view.message.startswith("status 302 redirects to what cannot be requested")
    assert view.message.endswith(message)
    view = await world.runs(f"{site.base}/later", polling={})
    assert view.reason == "InvalidResponse"
    assert view.message.startswith("the result is said to be at what cannot be requested")
    assert view.message.endswith(message)


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        (None, "there is no Secret s"),
        ({"labels": {}}, "is not labelled"),
        ({"hosts": "example.com, 127.0.0.1:1"}, "does not name 127.0.0.1"),
        ({"keys": {"other": "x"}}, "has no key token"),
        ({"keys": {"token": b"\xe9"}}, "is no UTF-8 text"),
    ],
)
async def test_secret_is_used_only_as_its_labels_allow(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    secret: dict[str, Any] | None,
    why: str,
) -> None:
    if secret is not None:
        made = _secret(secret.get("hosts", "127.0.0.1"), **secret.get("keys", {"token": "x"}))
        made["metadata"]["labels"] = secret.get("labels", made["metadata"]["labels"])
        world.secrets["s"] = made
    await world.executor()
    header = {"name": "X-Token", "_secretRef": _ref("s", "token")}
    view = await world.runs(f"{site.base}/echo", request={"headers": [header]})
    assert (view.state, view.reason) == ("Failed", "SecretRefused")
    assert why in view.message
    assert site.requests == []


@pytest.mark.parametrize("kind", ["http", "function"])
@pytest.mark.parametrize("error", [KeyError("s3cret"), asyncio.CancelledError()])
async def test_internal_error_ends_only_its_attempt(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
    kind: str,
) -> None:
    async def fail(namespace: str, name: str) -> NoReturn:
        raise error

    monkeypatch.setattr(world, "secret", fail)
    await world.executor(slots=1)
    header = {"name": "t", "_secretRef": _ref("s", "token")}
    for _ in range(2):  # its slot is free again
        view = await world.runs(
            f"{site.base}/echo", request={"headers": [header]}, function=kind == "function"
        )
        assert (view.state, view.reason, view.attempt) == ("Failed", "InternalError", 1)
        assert type(error).__name__ in view.message
        assert "s3cret" not in view.message
    assert "Traceback" in caplog.text
    assert world.failures == []
    assert (await world.runs(f"{site.base}/echo")).state == "Success"


@pytest.mark.parametrize(("token", "prefix"), [("a\x01b", ""), ("good", "X: y\r\n")])
async def test_header_with_invalid_characters_is_refused(
    world: http_executors.World, site: http_test_server.HttpServer, token: str, prefix: str
) -> None:
    world.secrets["s"] = _secret("127.0.0.1", token=token)
    await world.executor()
    ref = {"name": "t", "_secretRef": _ref("s", "token") | {"prefix": prefix}}
    view = await world.runs(f"{site.base}/echo", request={"headers": [ref]})
    assert (view.state, view.reason) == ("Failed", "InvalidSpec"), view.message
    assert site.requests == []
    assert world.failures == []


async def test_secrets_are_in_no_log_and_no_message(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    world.secrets["s"] = _secret("127.0.0.1", token="s3cret value/+")
    await world.executor()
    ref = {"name": "t", "_secretRef": _ref("s", "token")}
    view = await world.runs(
        f"{site.base}/echo",
        request={"headers": [ref], "queryString": [ref]},
        response={"format": "json", "resultJsonPath": "$.method"},
    )
    assert view.state == "Success", view.message
    assert site.requests[0].header("t") == "s3cret value/+"
    assert "t=s3cret+value%2F%2B" in site.requests[0].target
    log = world.hub.log_file(view.task, run=1, attempt=1).read_text()
    assert "s3cret" not in log
    assert "***" in log

    world.secrets["word"] = _secret("127.0.0.1", token="s3cret-word")
    word = {"name": "t", "_secretRef": _ref("word", "token")}
    raw = http_test_server.response(headers=(("X-s3cret-word", "1"),))
    site.routes["/named"] = http_test_server.raw_response(raw)
    view = await world.runs(f"{site.base}/named", request={"headers": [word]})
    assert "s3cret" not in world.hub.log_file(view.task, run=1, attempt=1).read_text()

    raw = http_test_server.response(b"no: s3cret value/+", status="403 s3cret value/+")
    site.routes["/no"] = http_test_server.raw_response(raw)
    view = await world.runs(f"{site.base}/no", request={"headers": [ref]})
    assert (view.reason, view.message) == ("ResponseRejected", "status 403: no: ***")
    assert "s3cret" not in world.hub.log_file(view.task, run=1, attempt=1).read_text()


ODD_SECRET = 'sec"ret\\of/ä'
"""A secret with characters that encodings escape; tests look for the parts between them."""


@pytest.mark.parametrize(
    ("body", "status", "response", "shown"),
    [
        (json.dumps({"a": ODD_SECRET}), "200 OK", {"format": "json"}, None),
        (json.dumps(ODD_SECRET, ensure_ascii=False), "500 E", {}, 'status 500: "***"'),
        (json.dumps(ODD_SECRET).replace("/", "\\/"), "500 E", {}, 'status 500: "***"'),
        ("x" * 295 + ODD_SECRET, "500 E", {}, f"status 500: {'x' * 295}***"),
        ("x" * (64 * 1024 - 5) + ODD_SECRET + "y" * 99, "200 OK", {}, None),
        (
            json.dumps({"a": "x" * 55 + ODD_SECRET}),
            "200 OK",
            {"format": "json", "successCondition": '.body.a == "no"'},
            None,
        ),
    ],
    ids=["json", "unicode", "slashes", "cut message", "cut body", "cut value"],
)
async def test_secret_is_masked_in_every_encoding(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    body: str,
    status: str,
    response: dict[str, Any],
    shown: str | None,
) -> None:
    world.secrets["s"] = _secret("127.0.0.1", token=ODD_SECRET)
    site.routes["/says"] = http_test_server.raw_response(
        http_test_server.response(body.encode(), status=status)
    )
    await world.executor()
    ref = {"name": "t", "_secretRef": _ref("s", "token")}
    view = await world.runs(
        f"{site.base}/says", request={"headers": [ref]}, response={"format": "text"} | response
    )
    assert str(site.requests[0].header("t")).encode("latin-1").decode() == ODD_SECRET
    log = world.hub.log_file(view.task, run=1, attempt=1).read_text()
    assert "***" in log
    assert not any(part in log + view.message for part in ("sec", "ret\\", "of/"))
    assert shown in (view.message, None)


async def test_masked_secret_does_not_count_as_truncation(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    world.secrets["s"] = _secret("127.0.0.1", token="s3cret value")
    await world.executor()
    ref = {"name": "t", "_secretRef": _ref("s", "token")}
    view = await world.runs(f"{site.base}/echo", request={"headers": [ref]})
    [entry] = world.log(view)["entries"]
    assert "***" in entry["response"]["content"]["text"]
    assert "comment" not in entry["response"]["content"]


async def test_tls_verification_follows_the_spec(world: http_executors.World) -> None:
    authority = certificates.Authority()
    directory = short_paths.directory()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue_file("site", directory, "named.test"))
    async with http_test_server.running(context) as site:
        await world.executor()
        view = await world.runs(f"{site.base}/echo")
        assert (view.state, view.reason) == ("Failed", "RequestFailed")
        assert "certificate" in view.message
        assert site.requests == []
        for tls in (
            {"caBundle": authority.pem},
            {"insecureSkipVerify": True},
            {"caBundle": authority.pem, "serverName": "named.test"},
        ):
            view = await world.runs(f"{site.base}/echo", tls=tls)
            assert view.state == "Success", view.message
        view = await world.runs(
            f"{site.base}/echo", tls={"caBundle": authority.pem, "serverName": "other.test"}
        )
        assert (view.state, view.reason) == ("Failed", "RequestFailed"), view.message


async def test_client_certificate_is_presented(world: http_executors.World) -> None:
    authority = certificates.Authority()
    directory = short_paths.directory()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue_file("site", directory))
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    certificate, key = authority.issue("client")
    world.secrets["pair"] = _secret("127.0.0.1", **{"tls.crt": certificate, "tls.key": key})
    async with http_test_server.running(context) as site:
        await world.executor()
        tls = {"caBundle": authority.pem}
        view = await world.runs(f"{site.base}/echo", tls=tls)
        assert view.state == "Failed"
        tls["clientCertificateSecret"] = "pair"
        view = await world.runs(f"{site.base}/echo", tls=tls)
        assert view.state == "Success", view.message
        async with http_test_server.running() as first:
            first.routes["/away"] = _redirect(f"{site.base}/echo")
            view = await world.runs(f"{first.base}/away", tls=tls, redirects={"follow": 1})
            assert (view.state, view.reason) == ("Failed", "RequestFailed"), view.message


def _redirect(location: str, status: str = "302 Found") -> http_test_server.Handler:
    return http_test_server.raw_response(
        http_test_server.response(status=status, headers=(("Location", location),))
    )


def _ref(name: str, key: str, prefix: str = "") -> dict[str, str]:
    return {"name": name, "key": key, "prefix": prefix}


def _secret(hosts: str, **values: str | bytes) -> dict[str, Any]:
    raw = {k: v.encode() if isinstance(v, str) else v for k, v in values.items()}
    data = {key: base64.b64encode(value).decode() for key, value in raw.items()}
    return {
        "metadata": {
            "labels": {secret_values.USE_LABEL: secret_values.USE},
            "annotations": {secret_values.HOSTS: hosts},
        },
        "data": data,
    }
