"""HTTP executor processes that start, stop, are lost, and share the work."""

import asyncio
import base64
import collections
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kilnwork.channel import messages
from kilnwork.dispatch.hub import callback_results as hub_callbacks
from kilnwork.executors.http import attempt, response_rules
from kilnwork.kit import clock
from kilnwork.server import callback_receiver
from support import http_executors, http_test_server, short_paths, waiting

URLS = callback_receiver.CallbackUrls(b"k" * 32, "http://manager", clock.SystemClock())


@pytest.fixture
async def site() -> AsyncIterator[http_test_server.HttpServer]:
    async with http_test_server.running() as made:
        yield made


@pytest.fixture
async def world() -> AsyncIterator[http_executors.World]:
    async with http_executors.running(
        short_paths.directory(), lease_s=2.0, renew_s=0.3, callback_url=URLS.url
    ) as made:
        yield made


async def test_task_without_an_executor_waits_and_names_the_remedy(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    task = await world.submit(f"{site.base}/echo", affinity={"required": {"zone": "dmz"}})
    view = await world.wait_for_state(task, "Pending", "ExecutorUnavailable")
    assert "kiln executor http --labels zone=dmz" in view.message
    await world.executor("anywhere")
    await asyncio.sleep(0.1)
    assert world.view(task).state == "Pending"
    await world.executor("there", labels={"zone": "dmz", "more": "1"})
    view = await world.ends(task)
    assert (view.state, view.worker) == ("Success", "there")


async def test_task_without_an_executor_times_out(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    spec = {"timeouts": {"pendingSeconds": 0.2}}
    view = await world.runs(f"{site.base}/a", spec=spec)
    assert (view.state, view.reason) == ("Failed", "PendingTimedOut")
    assert "kiln executor http" in view.message
    assert site.requests == []


async def test_unroutable_tasks_do_not_block_others(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    stuck = [
        await world.submit(f"{site.base}/echo", affinity={"required": {"zone": f"z{n}"}})
        for n in range(5)
    ]
    await world.executor(slots=1)
    for _ in range(5):
        assert (await world.runs(f"{site.base}/echo")).state == "Success"
    assert {world.view(task).state for task in stuck} == {"Pending"}


async def test_queues_with_labels_take_turns_with_the_others(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    order: list[str] = []

    async def note(
        site: http_test_server.HttpServer, request: http_test_server.Request, writer: object
    ) -> None:
        order.append(request.target.partition("?")[2])
        assert isinstance(writer, asyncio.StreamWriter)
        writer.write(http_test_server.response(b"{}"))

    site.routes["/note"] = note
    plain = [await world.submit(f"{site.base}/note?plain") for _ in range(20)]
    labelled = {"required": {"zone": "a"}}
    rest = [await world.submit(f"{site.base}/note?zone", affinity=labelled) for _ in range(5)]
    await world.executor(slots=1, labels={"zone": "a"})
    for task in (*plain, *rest):
        assert (await world.ends(task)).state == "Success"
    assert len(order) == 25
    assert "zone" in order[:4]
    assert order.index("plain") < 4


async def test_preferred_labels_decide_while_there_is_room(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor("far", slots=50)
    await world.executor("near", slots=50, labels={"zone": "near"})
    wish = {"preferred": {"zone": "near"}}
    tasks = [await world.submit(f"{site.base}/held", affinity=wish) for _ in range(10)]
    for task in tasks:
        await world.wait_for_state(task, "Running")
    assert {world.view(task).worker for task in tasks} == {"near"}
    site.gate.set()
    for task in tasks:
        await world.ends(task)


async def test_requests_are_shared_evenly(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    for number in range(4):
        await world.executor(f"e{number}", slots=4)
    submits = (world.submit(f"{site.base}/echo") for _ in range(400))
    tasks = await asyncio.gather(*submits)
    counts = collections.Counter([(await world.ends(task)).worker for task in tasks])
    assert sum(counts.values()) == 400
    assert len(counts) == 4
    assert min(counts.values()) > 60, counts


async def test_request_is_assigned_only_to_an_executor_with_a_free_slot(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor("first", slots=2)
    tasks = [await world.submit(f"{site.base}/held") for _ in range(6)]
    await waiting.wait_until_async(lambda: len(site.got("/held")) == 2, what="two are sent")
    await asyncio.sleep(0.1)
    states = [world.view(task) for task in tasks]
    assert [view.state for view in states[2:]] == ["Pending"] * 4
    assert states[2].reason == "NoFreeSlot"
    await world.executor("second", slots=4)
    await waiting.wait_until_async(lambda: len(site.got("/held")) == 6, what="all are sent")
    site.gate.set()
    assert [(await world.ends(task)).worker for task in tasks] == ["first"] * 2 + ["second"] * 4


async def test_repeatable_request_is_sent_again_when_its_executor_is_lost(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    first = await world.executor("first")
    task = await world.submit(f"{site.base}/held")
    await world.wait_for_state(task, "Running")
    await world.die(first)
    await world.executor("second")
    site.gate.set()
    view = await world.ends(task)
    assert (view.state, view.worker, view.attempt, view.losses) == ("Success", "second", 2, 1)


async def test_request_that_may_have_been_sent_is_not_sent_again(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    first = await world.executor("first")
    task = await world.submit(f"{site.base}/held", request={"method": "POST"})
    await waiting.wait_until_async(lambda: site.got("/held"), what="it is sent")
    await world.die(first)
    await world.executor("second")
    view = await world.ends(task)
    assert (view.state, view.reason, view.attempt) == ("Failed", "ExecutorLost", 1)
    assert len(site.got("/held")) == 1


async def test_idempotent_request_is_sent_again_with_the_same_key(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    first = await world.executor("first")
    task = await world.submit(f"{site.base}/held", request={"method": "POST"}, idempotent=True)
    await waiting.wait_until_async(lambda: site.got("/held"), what="it is sent")
    await world.die(first)
    await world.executor("second")
    site.gate.set()
    assert (await world.ends(task)).state == "Success"
    keys = {request.header("Idempotency-Key") for request in site.got("/held")}
    assert len(site.got("/held")) == 2
    assert len(keys) == 1
    assert None not in keys


async def test_post_is_sent_only_after_the_journal_has_it(
    world: http_executors.World, site: http_test_server.HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its executor is lost while it waits for the journal: the request was not sent, and runs
    again.
    """
    first = await world.executor("first")
    report = first.link.report

    def swallow(make: object) -> None:
        message = make(1)  # type: ignore[operator]
        if not isinstance(message, messages.Started):
            report(make)  # type: ignore[arg-type]
        else:
            first.link._serial += 1
            first.link._reports[first.link._serial] = _Never()  # type: ignore[assignment]

    monkeypatch.setattr(first.link, "report", swallow)
    task = await world.submit(f"{site.base}/echo", request={"method": "POST"})
    await waiting.wait_until_async(lambda: site.connections, what="there is a connection")
    await asyncio.sleep(0.2)
    assert site.requests == []
    await world.die(first)
    await world.executor("second")
    view = await world.ends(task)
    assert (view.state, view.worker) == ("Success", "second")
    assert len(site.requests) == 1


class _Never:
    """A report that is never acknowledged."""

    ref = None
    final = False
    frame = b""
    stored: object = None


async def test_executor_without_a_dispatcher_cuts_off_its_requests(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    await world.executor("first")
    task = await world.submit(f"{site.base}/held")
    [request] = await waiting.wait_until_async(lambda: site.got("/held"), what="it is sent")
    await world.wait_for_state(task, "Running")
    await world.hub.stop()
    await asyncio.wait_for(request.closed.wait(), 15)


async def test_kill_without_a_reply_of_the_executor_is_unconfirmed(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    first = await world.executor("first")
    task = await world.submit(f"{site.base}/held", spec={"timeouts": {"killGraceSeconds": 0.1}})
    await world.wait_for_state(task, "Running")
    await world.die(first)
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed")
    assert (view.reason, view.stopped) == ("Unconfirmed", False)


async def test_stopping_process_lets_requests_end(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    first = await world.executor("first")
    task = await world.submit(f"{site.base}/held", request={"method": "POST"})
    await waiting.wait_until_async(lambda: site.got("/held"), what="it is sent")
    stopping = asyncio.ensure_future(world.stop(first))
    await asyncio.sleep(0.1)
    later = await world.submit(f"{site.base}/echo")
    site.gate.set()
    await stopping
    assert (await world.ends(task)).state == "Success"
    await world.executor("second")
    view = await world.ends(later)
    assert (view.state, view.worker, view.losses) == ("Success", "second", 0)


async def test_accepted_request_is_polled_without_a_slot(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    polls = 0

    async def poll(
        site: http_test_server.HttpServer, request: http_test_server.Request, writer: object
    ) -> None:
        nonlocal polls
        polls += 1
        assert isinstance(writer, asyncio.StreamWriter)
        if polls == 1:
            writer.write(http_test_server.response(b"", status="503 Service Unavailable"))
        elif not site.gate.is_set():
            writer.write(http_test_server.response(b'{"state": "busy"}', status="202 Accepted"))
        else:
            writer.write(http_test_server.response(b'{"state": "done", "n": 7}'))

    accepted = http_test_server.response(
        b"{}", status="202 Accepted", headers=(("Location", "/status/1"),)
    )
    site.routes |= {"/start": http_test_server.raw_response(accepted), "/status/1": poll}
    await world.executor(slots=1)
    task = await world.submit(
        f"{site.base}/start",
        request={"method": "POST"},
        polling={"intervalSeconds": 0.1},
        response={"resultJsonPath": "$.n"},
    )
    view = await world.wait_for_state(task, "Running", "WaitingForResult")
    assert "polls 127.0.0.1" in view.message
    assert (await world.runs(f"{site.base}/echo")).state == "Success"
    await waiting.wait_until_async(lambda: polls > 3, what="it is polled")
    site.gate.set()
    view = await world.ends(task)
    assert (view.state, world.result(view)) == ("Success", 7), view.message
    assert len(site.got("/start")) == 1
    assert {request.method for request in site.got("/status/1")} == {"GET"}


@pytest.mark.parametrize("retry_after", ["Mon, 01 Jan 2024 00:00:00 +9999999999999", "soon", "-5"])
async def test_malformed_retry_after_is_ignored(
    world: http_executors.World, site: http_test_server.HttpServer, retry_after: str
) -> None:
    headers = (("Location", "/status/1"), ("Retry-After", retry_after))
    accepted = http_test_server.response(status="202 Accepted", headers=headers)
    site.routes |= {
        "/start": http_test_server.raw_response(accepted),
        "/status/1": http_test_server.json_response({"n": 7}),
    }
    await world.executor()
    view = await world.runs(f"{site.base}/start", polling={"intervalSeconds": 0.1})
    assert (view.state, world.result(view)) == ("Success", {"n": 7}), view.message


@pytest.mark.parametrize("retry_after", ["0", "3600"])
async def test_polling_ends_in_time(
    world: http_executors.World, site: http_test_server.HttpServer, retry_after: str
) -> None:
    headers = (("Location", "/held"), ("Retry-After", retry_after))
    accepted = http_test_server.response(status="202 Accepted", headers=headers)
    site.routes["/start"] = http_test_server.raw_response(accepted)
    await world.executor()
    view = await world.runs(f"{site.base}/start", polling={"timeoutSeconds": 0.5})
    assert (view.state, view.reason) == ("Failed", "RequestTimedOut")
    assert "no result within polling.timeoutSeconds, 0.5 s" in view.message
    assert len(site.got("/held")) == (1 if retry_after == "0" else 0)


@pytest.mark.parametrize("manager", ["stays", "restarts"])
async def test_polling_moves_to_another_executor_when_one_is_lost(
    world: http_executors.World, site: http_test_server.HttpServer, manager: str
) -> None:
    async def poll(
        site: http_test_server.HttpServer, request: http_test_server.Request, writer: object
    ) -> None:
        assert isinstance(writer, asyncio.StreamWriter)
        status = "200 OK" if site.gate.is_set() else "202 Accepted"
        writer.write(http_test_server.response(b'{"n": 7}', status=status))

    accepted = http_test_server.response(
        b"{}", status="202 Accepted", headers=(("Location", "/status/1"),)
    )
    site.routes |= {"/start": http_test_server.raw_response(accepted), "/status/1": poll}
    first = await world.executor("first", slots=1)
    task = await world.submit(
        f"{site.base}/start", request={"method": "POST"}, polling={"intervalSeconds": 0.1}
    )
    await world.wait_for_state(task, "Running", "WaitingForResult")
    await world.hub.participation.write([])  # and the observation is on disk
    await world.die(first)
    if manager == "restarts":
        await world.restart_hub(lease_s=2.0, renew_s=0.3)
    before = len(site.got("/status/1"))
    await world.executor("second", slots=1)
    await waiting.wait_until_async(
        lambda: len(site.got("/status/1")) > before, what="the second executor polls"
    )
    site.gate.set()
    view = await world.ends(task)
    assert (view.state, view.worker, view.attempt) == ("Success", "second", 2), view.message
    assert len(site.got("/start")) == 1


async def test_poll_url_with_a_secret_is_not_handed_over(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    values = {"key": base64.b64encode(b"very-secret").decode()}
    metadata = {
        "labels": {"kilnwork.dev/use": "http"},
        "annotations": {"kilnwork.dev/http-hosts": "127.0.0.1"},
    }
    world.secrets["s"] = {"metadata": metadata, "data": values}
    accepted = http_test_server.response(
        b"{}", status="202 Accepted", headers=(("Location", "/status?key=very-secret"),)
    )
    site.routes |= {
        "/start": http_test_server.raw_response(accepted),
        "/status": http_test_server.raw_response(accepted),
    }
    first = await world.executor("first", slots=1)
    header = {"name": "X-Key", "_secretRef": {"name": "s", "key": "key"}}
    task = await world.submit(
        f"{site.base}/start", request={"method": "POST", "headers": [header]}, polling={}
    )
    await world.wait_for_state(task, "Running", "WaitingForResult")
    await world.die(first)
    view = await world.ends(task)
    assert (view.state, view.reason) == ("Failed", "ExecutorLost")


async def test_kill_of_accepted_work_cancels_it_on_the_server(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    accepted = http_test_server.response(
        b'{"at": "/job/9"}', status="202 Accepted", headers=(("Retry-After", "1"),)
    )
    site.routes |= {
        "/start": http_test_server.raw_response(accepted),
        "/job/9": http_test_server.raw_response(accepted),
    }
    await world.executor()
    polling = {"location": "$.at", "cancelMethod": "DELETE"}
    task = await world.submit(f"{site.base}/start", polling=polling)
    await world.wait_for_state(task, "Running", "WaitingForResult")
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed")
    assert (view.reason, view.stopped) == ("Killed", True), view.message
    assert site.got("/job/9")[-1].method == "DELETE"


async def test_kill_that_the_server_does_not_support_is_unconfirmed(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    accepted = http_test_server.response(b'{"at": "/job/9"}', status="202 Accepted")
    refuses = http_test_server.response(b"{}", status="409 Conflict")
    site.routes |= {
        "/start": http_test_server.raw_response(accepted),
        "/job/9": http_test_server.raw_response(refuses),
    }
    await world.executor()
    polling = {"location": "$.at", "cancelMethod": "DELETE", "intervalSeconds": 60}
    task = await world.submit(f"{site.base}/start", polling=polling)
    await world.wait_for_state(task, "Running", "WaitingForResult")
    await world.kill(task)
    view = await world.wait_for_state(task, "Killed")
    assert (view.reason, view.stopped) == ("Unconfirmed", False)


@pytest.mark.parametrize("more", [{"callback": {}}, {"function": True, "mode": "Callback"}])
async def test_callback_brings_the_result(
    world: http_executors.World, site: http_test_server.HttpServer, more: dict[str, Any]
) -> None:
    site.routes["/start"] = http_test_server.raw_response(
        http_test_server.response(b"", status="202 Accepted")
    )
    await world.executor(slots=1)
    task = await world.submit(
        f"{site.base}/start",
        request={"method": "POST", "postData": {"text": "${task.callback_url}"}},
        response={"successCondition": "$.body.ok", "resultJsonPath": "$.n"},
        **more,
    )
    await world.wait_for_state(task, "Running", "WaitingForResult")
    assert (await world.runs(f"{site.base}/echo")).state == "Success"
    [request] = site.got("/start")
    url = request.header("Kiln-Callback-Url")
    assert url == request.body.decode()
    ref = world.hub._core.machine.memory.tasks[task].ref
    assert url.startswith(f"http://manager/callbacks/{ref}?token=")
    body = b'{"ok": true, "n": [1]}'
    taken = await world.hub.call_back(ref, media_type="application/json", body=body, wait_s=10)
    assert taken is hub_callbacks.Taken.STORED
    view = world.view(task)
    assert (view.state, world.result(view)) == ("Success", [1]), view.message
    again = await world.hub.call_back(ref, media_type="", body=b"", wait_s=10)
    assert again is hub_callbacks.Taken.OVER
    again = await world.hub.call_back(ref, media_type="application/json", body=body, wait_s=10)
    assert again is hub_callbacks.Taken.STORED
    assert url not in world.hub.log_file(task, run=1, attempt=1).read_text()


@pytest.mark.parametrize("more", [{}, {"callback": {}}])
async def test_slow_yaml_does_not_block_other_requests(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
) -> None:
    threads: list[threading.Thread] = []

    def parse(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return parsed(*given)

    parsed = response_rules.parse
    monkeypatch.setattr(response_rules, "parse", parse)
    body = b"a: [" + b"1," * 2048 + b"2]"
    raw = http_test_server.response(
        body, status="202 Accepted" if more else "200 OK", kind="text/yaml"
    )
    site.routes["/yaml"] = http_test_server.raw_response(raw)
    await world.executor()
    task = await world.submit(f"{site.base}/yaml", **more)
    if more:
        await world.wait_for_state(task, "Running", "WaitingForResult")
        ref = world.hub._core.machine.memory.tasks[task].ref
        await world.hub.call_back(ref, media_type="text/yaml", body=body, wait_s=30)
    view = await world.ends(task)
    assert len(world.result(view)["a"]) == 2049
    assert len(threads) == 1 + len(more)
    assert threading.main_thread() not in threads


async def test_oversized_callback_is_a_failure(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    site.routes["/start"] = http_test_server.raw_response(
        http_test_server.response(status="202 Accepted")
    )
    await world.executor()
    task = await world.submit(
        f"{site.base}/start", request={"method": "POST"}, callback={}, response={"maxBytes": 10}
    )
    await world.wait_for_state(task, "Running", "WaitingForResult")
    ref = world.hub._core.machine.memory.tasks[task].ref
    body = b'"12345678910"'
    await world.hub.call_back(ref, media_type="application/json", body=body, wait_s=10)
    view = world.view(task)
    assert (view.state, view.reason) == ("Failed", "ResponseTooLarge")


async def test_only_one_of_two_concurrent_callbacks_is_stored(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    site.routes["/start"] = http_test_server.raw_response(
        http_test_server.response(b"", status="202 Accepted")
    )
    await world.executor()
    task = await world.submit(f"{site.base}/start", callback={})
    await world.wait_for_state(task, "Running", "WaitingForResult")
    ref = world.hub._core.machine.memory.tasks[task].ref
    bodies = [b"1", b"2", b"1"]
    one, other, same = await asyncio.gather(
        *(world.hub.call_back(ref, media_type="text/plain", body=b, wait_s=10) for b in bodies)
    )
    assert (one, other, same) == (
        hub_callbacks.Taken.STORED,
        hub_callbacks.Taken.OVER,
        hub_callbacks.Taken.STORED,
    )
    assert world.result(world.view(task)) == "1"


async def test_callback_of_a_task_killed_meanwhile_is_not_stored(
    world: http_executors.World, site: http_test_server.HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.routes["/start"] = http_test_server.raw_response(
        http_test_server.response(b"", status="202 Accepted")
    )
    await world.executor()
    monkeypatch.setattr(attempt.HttpAttempt, "called_back", lambda *_: None)  # it comes too late
    task = await world.submit(f"{site.base}/start", callback={})
    await world.wait_for_state(task, "Running", "WaitingForResult")
    ref = world.hub._core.machine.memory.tasks[task].ref
    waits = asyncio.create_task(world.hub.call_back(ref, media_type="", body=b"x", wait_s=30))
    await world.kill(task)
    assert await waits is hub_callbacks.Taken.OVER


@pytest.mark.parametrize("idempotent", [False, True])
async def test_callback_is_lost_with_its_executor(
    world: http_executors.World, site: http_test_server.HttpServer, *, idempotent: bool
) -> None:
    """An idempotent request is sent again, with another callback URL."""
    site.routes["/start"] = http_test_server.raw_response(
        http_test_server.response(b"", status="202 Accepted")
    )
    first = await world.executor("first")
    task = await world.submit(
        f"{site.base}/start", request={"method": "POST"}, callback={}, idempotent=idempotent
    )
    await world.wait_for_state(task, "Running", "WaitingForResult")
    ref = world.hub._core.machine.memory.tasks[task].ref
    await world.die(first)
    await world.executor("second")
    if idempotent:
        await waiting.wait_until_async(lambda: len(site.got("/start")) == 2, what="sent again")
        await world.wait_for_state(task, "Running", "WaitingForResult")
        newest = msgspec.structs.replace(ref, attempt=2)
        taken = await world.hub.call_back(newest, media_type="", body=b"x", wait_s=10)
        assert taken is hub_callbacks.Taken.STORED
    view = await world.ends(task)
    expected = ("Success", "Succeeded") if idempotent else ("Failed", "ExecutorLost")
    assert (view.state, view.reason) == expected, view.message
    urls = {request.header("Kiln-Callback-Url") for request in site.got("/start")}
    assert len(urls) == len(site.got("/start")) == 1 + idempotent
    late = await world.hub.call_back(ref, media_type="", body=b"x", wait_s=10)
    assert late is hub_callbacks.Taken.OVER


async def test_missing_callback_is_a_failure(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    site.routes["/start"] = http_test_server.raw_response(
        http_test_server.response(b"", status="202 Accepted")
    )
    await world.executor()
    view = await world.runs(f"{site.base}/start", callback={"timeoutSeconds": 0.2})
    assert (view.state, view.reason) == ("Failed", "RequestTimedOut")
    assert "callback" in view.message


async def test_request_survives_a_restart_of_the_dispatcher(
    site: http_test_server.HttpServer,
) -> None:
    directory = short_paths.directory()
    async with http_executors.running(directory, lease_s=10.0, renew_s=0.3) as world:
        await world.executor("first")
        task = await world.submit(f"{site.base}/held", request={"method": "POST"})
        await waiting.wait_until_async(lambda: site.got("/held"), what="it is sent")
        await world.wait_for_state(task, "Running")
        await world.restart_hub(lease_s=10.0, renew_s=0.3)
        site.gate.set()
        view = await world.ends(task)
        assert (view.state, view.attempt, view.losses) == ("Success", 1, 0)
        assert len(site.got("/held")) == 1
