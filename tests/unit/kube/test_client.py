"""The verbs against a scripted server: what is sent, what comes back, which error."""

import asyncio
import contextlib
import datetime
import logging
from pathlib import Path

import aiohttp.web
import msgspec
import pytest

from kilnwork.api import api_resources, kinds, meta, task
from kilnwork.kit import clock
from kilnwork.kube import client, config, errors, transport
from support import scripted_apiserver


def _status(code: int, reason: str, message: str) -> dict[str, object]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


async def test_get_sends_credential_and_agent(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond({"metadata": {"name": "a", "namespace": "x"}})
    found = await kube.get(api_resources.PODS, "a", "x", type=meta.Partial)
    assert found.metadata.name == "a"
    assert stand.asked[0][:2] == ("GET", "/api/v1/namespaces/x/pods/a")
    assert stand.headers[0]["Authorization"] == "Bearer t0ken"
    assert stand.headers[0]["User-Agent"] == "kiln-test"


async def test_requests_without_namespace_use_the_configured(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond({"metadata": {}})
    await kube.get(kinds.TASKS, "a")
    await kube.get(api_resources.NODES, "n")
    await kube.create(kinds.TASKS, {"metadata": {"name": "b", "namespace": "y"}})
    assert [path for _, path, _, _ in stand.asked] == [
        "/apis/kilnwork.dev/v1alpha1/namespaces/default/tasks/a",
        "/api/v1/nodes/n",
        "/apis/kilnwork.dev/v1alpha1/namespaces/y/tasks",
    ]


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Expired),
        (415, "UnsupportedMediaType", errors.Invalid),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
    ],
)
async def test_each_status_has_its_error(
    kube: client.Client,
    stand: scripted_apiserver.ScriptedApiServer,
    code: int,
    reason: str,
    kind: type[errors.ApiError],
) -> None:
    stand.respond(_status(code, reason, "the text"), status=code)
    with pytest.raises(errors.ApiError) as caught:
        await kube.get(api_resources.PODS, "a", "x")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert str(caught.value) == "the text"


async def test_a_server_too_busy_for_long_says_how_long(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond(
        _status(429, "TooManyRequests", "busy"), status=429, headers={"Retry-After": "99"}
    )
    with pytest.raises(errors.TooManyRequests) as caught:
        await kube.get(api_resources.PODS, "a", "x")
    assert caught.value.retry_after_s == 99
    assert len(stand.asked) == 1


@pytest.mark.parametrize("busy", [3, 99])
async def test_request_refused_by_a_busy_server_is_repeated(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer, busy: int
) -> None:
    async def handler(_: aiohttp.web.Request) -> aiohttp.web.Response:
        if len(stand.asked) <= busy:
            return aiohttp.web.json_response({}, status=429, headers={"Retry-After": "0"})
        return aiohttp.web.json_response({"metadata": {"name": "a"}}, status=201)

    stand.handler = handler
    pod = {"metadata": {"name": "a", "namespace": "x"}}
    if busy < transport.BUSY_TRIES:
        assert (await kube.create(api_resources.PODS, pod))["metadata"]["name"] == "a"
    else:
        with pytest.raises(errors.TooManyRequests):
            await kube.create(api_resources.PODS, pod)
    assert len(stand.asked) == min(busy + 1, transport.BUSY_TRIES)
    assert len({body for _, _, _, body in stand.asked}) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_request_that_may_have_had_an_effect_is_not_repeated(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer, status: int
) -> None:
    headers = {"Retry-After": "0"} if status != 429 else {}
    stand.respond({}, status=status, headers=headers)
    with pytest.raises(errors.ApiError):
        await kube.create(api_resources.PODS, {"metadata": {"name": "a", "namespace": "x"}})
    assert len(stand.asked) == 1


async def test_retry_after_may_be_a_date(stand: scripted_apiserver.ScriptedApiServer) -> None:
    time = clock.ManualClock()
    moment = datetime.datetime.fromtimestamp(time.wall() + 30, datetime.UTC)
    date = moment.strftime("%a, %d %b %Y %H:%M:%S GMT")
    stand.respond({}, status=503, headers={"Retry-After": date})
    async with client.Client(config.Config(server=stand.url), time=time) as kube:
        with pytest.raises(errors.Unavailable) as caught:
            await kube.get(api_resources.PODS, "a", "x")
    assert caught.value.retry_after_s == 30


async def test_error_without_status_object_keeps_its_text(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    async def handler(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(status=502, text="bad gateway\n")

    stand.handler = handler
    with pytest.raises(errors.Unavailable, match=r"^bad gateway$"):
        await kube.get(api_resources.PODS, "a", "x")


async def test_unreachable_server_is_unavailable() -> None:
    async with client.Client(config.Config(server="http://127.0.0.1:1")) as kube:
        with pytest.raises(errors.Unavailable, match=r"cannot reach http://127\.0\.0\.1:1: "):
            await kube.get(api_resources.PODS, "a", "x")


async def test_slow_server_is_unavailable(stand: scripted_apiserver.ScriptedApiServer) -> None:
    async def handler(_: aiohttp.web.Request) -> aiohttp.web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    stand.handler = handler
    async with client.Client(config.Config(server=stand.url), timeout_s=0.05) as kube:
        with pytest.raises(errors.Unavailable, match="did not respond in time"):
            await kube.get(api_resources.PODS, "a", "x")
        with pytest.raises(errors.Unavailable, match="did not respond in time"):
            await anext(kube.watch(api_resources.PODS, resource_version="1", type=dict))


async def test_odd_names_never_leave_their_path(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    for name in ("", ".", "..", "a/b", "%2e"):
        with pytest.raises(errors.Invalid, match="cannot be the name"):
            await kube.get(api_resources.PODS, name, "x")
        with pytest.raises(errors.Invalid, match="cannot be the name"):
            await kube.list(api_resources.PODS, name or "..", type=dict)
    assert stand.asked == []
    stand.respond({})
    await kube.get(api_resources.PODS, "a?b#c d", "x")
    assert stand.asked[0][1] == "/api/v1/namespaces/x/pods/a?b#c d"


async def test_list_follows_pages(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        at = int(request.query.get("continue", "0"))
        more = {"continue": str(at + 1)} if at < 2 else {}
        items = [{"metadata": {"name": f"p{at}"}}]
        body = {"metadata": {"resourceVersion": "9", **more}, "items": items}
        return aiohttp.web.json_response(body)

    stand.handler = handler
    listed = await kube.list(
        api_resources.PODS, type=meta.Partial, label_selector="a in (b, c)", field_selector="x=y"
    )
    assert [p.metadata.name for p in listed.items] == ["p0", "p1", "p2"]
    assert (listed.resource_version, listed.continue_) == ("9", "")
    assert stand.asked[0][1:3] == (
        "/api/v1/pods",
        {"labelSelector": "a in (b, c)", "fieldSelector": "x=y", "limit": "500"},
    )


async def test_a_torn_list_is_asked_for_whole(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        if "continue" in request.query:
            return aiohttp.web.json_response(_status(410, "Expired", "too old"), status=410)
        whole = request.query["limit"] == "0"
        items = [{"metadata": {"name": f"p{n}"}} for n in range(3 if whole else 1)]
        metadata = {"resourceVersion": "9", **({} if whole else {"continue": "c"})}
        return aiohttp.web.json_response({"metadata": metadata, "items": items})

    stand.handler = handler
    listed = await kube.list(api_resources.PODS, type=meta.Partial)
    assert [p.metadata.name for p in listed.items] == ["p0", "p1", "p2"]


async def test_unreadable_object_is_omitted_from_a_list(
    kube: client.Client,
    stand: scripted_apiserver.ScriptedApiServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = {"kind": "Task", "metadata": {"name": "bad"}, "spec": {"priority": []}}
    stand.respond(
        {"metadata": {"resourceVersion": "9"}, "items": [bad, {"metadata": {"name": "b"}}]}
    )
    with caplog.at_level(logging.ERROR):
        listed = await kube.list(kinds.TASKS, type=task.Task)
    assert [t.metadata.name for t in listed.items] == ["b"]
    assert [getattr(r, "object", None) for r in caplog.records] == ["bad"]


class _WithRaw(msgspec.Struct):
    metadata: meta.ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")


async def test_raw_fields_do_not_keep_the_whole_list(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond({"items": [{"metadata": {}, "spec": {"a": 1}}, {"filler": "x" * 100_000}] * 1})
    listed = await kube.list(api_resources.PODS, type=_WithRaw)
    assert len(memoryview(listed.items[0].spec).obj) < 1000  # type: ignore[arg-type]


async def test_writes_carry_their_options(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond({})
    obj = {"metadata": {"name": "a", "namespace": "x"}}
    await kube.create(api_resources.PODS, obj)
    await kube.replace(api_resources.PODS, obj, subresource="status")
    await kube.merge_patch(api_resources.PODS, "a", {"status": {}}, "x", subresource="status")
    await kube.delete(api_resources.PODS, "a", "x", uid="u", grace_s=0, propagation="Orphan")
    await kube.create_sub(api_resources.SERVICE_ACCOUNTS, "sa", "token", {"spec": {}}, "x")
    await kube.apply(api_resources.PODS, obj, manager="m")
    await kube.apply(api_resources.PODS, obj, manager="m", force=True, subresource="status")
    pods = "/api/v1/namespaces/x/pods"
    options = (
        b'{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u"},'
        b'"gracePeriodSeconds":0,"propagationPolicy":"Orphan"}'
    )
    whole = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x"}}'
    assert stand.asked == [
        ("POST", pods, {}, whole),
        ("PUT", f"{pods}/a/status", {}, whole),
        ("PATCH", f"{pods}/a/status", {}, b'{"status":{}}'),
        ("DELETE", f"{pods}/a", {}, options),
        ("POST", "/api/v1/namespaces/x/serviceaccounts/sa/token", {}, b'{"spec":{}}'),
        ("PATCH", f"{pods}/a", {"fieldManager": "m"}, whole),
        ("PATCH", f"{pods}/a/status", {"fieldManager": "m", "force": "true"}, whole),
    ]
    assert stand.headers[5]["Content-Type"] == "application/apply-patch+yaml"
    assert stand.headers[2]["Content-Type"] == "application/merge-patch+json"


async def test_rotated_token_file_is_read_again(
    stand: scripted_apiserver.ScriptedApiServer, tmp_path: Path
) -> None:
    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        good = request.headers.get("Authorization") == "Bearer new"
        return aiohttp.web.json_response({}, status=200 if good else 401)

    stand.handler = handler
    file = tmp_path / "token"
    file.write_text("old\n")
    async with client.Client(config.Config(server=stand.url, token_file=file)) as kube:
        with pytest.raises(errors.Unauthorized):
            await kube.get(api_resources.PODS, "a", "x")
        assert len(stand.asked) == 1
        file.write_text("new\n")
        await kube.get(api_resources.PODS, "a", "x")


async def test_renewed_token_is_tried_also_after_the_server_was_busy(
    stand: scripted_apiserver.ScriptedApiServer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        if len(stand.asked) < transport.BUSY_TRIES:
            return aiohttp.web.json_response({}, status=429, headers={"Retry-After": "0"})
        file.write_text("new")
        good = request.headers["Authorization"] == "Bearer new"
        return aiohttp.web.json_response({}, status=200 if good else 401)

    stand.handler = handler
    async with client.Client(config.Config(server=stand.url, token_file=file)) as kube:
        await kube.get(api_resources.PODS, "a", "x")
    assert len(stand.asked) == transport.BUSY_TRIES + 1


async def test_watch_gives_changes_of_any_size(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    big = "x" * 300_000
    lines = [
        {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "1"}, "f": big}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}},
        {"type": "DELETED", "object": {"metadata": {"name": "a", "resourceVersion": "6"}}},
    ]

    async def handler(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(msgspec.json.encode(line) + b"\n")
        await response.write(b'{"type":"ADDED","ob')
        return response

    stand.handler = handler
    changes = [
        c async for c in kube.watch(api_resources.PODS, "x", resource_version="0", type=dict)
    ]
    assert [(c.kind, c.key, c.resource_version) for c in changes] == [
        ("ADDED", ("", "a"), "1"),
        ("BOOKMARK", ("", ""), "5"),
        ("DELETED", ("", "a"), "6"),
    ]
    assert changes[0].object is not None
    assert changes[0].object["f"] == big


async def test_error_in_a_watch_is_raised(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    stand.respond({"type": "ERROR", "object": _status(410, "Expired", "too old")})

    async def handler(request: aiohttp.web.Request) -> aiohttp.web.Response:
        line = {"type": "ERROR", "object": _status(410, "Expired", "too old")}
        return aiohttp.web.Response(body=msgspec.json.encode(line) + b"\n")

    stand.handler = handler
    with pytest.raises(errors.Expired, match="too old"):
        async for _ in kube.watch(api_resources.PODS, resource_version="1", type=dict):
            pass


async def test_slow_watch_consumer_lets_other_coroutines_run(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    """A flood that is read without pause still leaves the event loop its turns."""
    line = msgspec.json.encode({"type": "ADDED", "object": {"metadata": {"name": "a" * 900}}})

    async def handler(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write((line + b"\n") * 50)
        return response

    stand.handler = handler
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    seen = 0
    async for _ in kube.watch(api_resources.PODS, resource_version="1", type=dict):
        seen += 1
    counter.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await counter
    assert seen == 5000
    assert turns > 20
