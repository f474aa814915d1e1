"""The contract of the http executor, which runs outside of the manager, for requests and functions.

`test_executors` runs the common contract with requests that may be repeated. Here are requests that
may not, many at once, and executors that die at any moment.
"""

import asyncio
import collections
from collections.abc import AsyncIterator

import pytest

from support import http_executors, http_test_server, short_paths, waiting

LEASES = {"lease_s": 2.0, "renew_s": 0.3}


@pytest.fixture
async def site() -> AsyncIterator[http_test_server.HttpServer]:
    async with http_test_server.running() as made:
        made.routes["/slow"] = _slow
        yield made


async def _slow(
    site: http_test_server.HttpServer,
    request: http_test_server.Request,
    writer: asyncio.StreamWriter,
) -> None:
    await asyncio.sleep(0.05)
    writer.write(http_test_server.response(b'{"done": true}'))


def sent(site: http_test_server.HttpServer) -> collections.Counter[str]:
    return collections.Counter(str(request.header("X-Task")) for request in site.requests)


POST = {"method": "POST", "headers": [{"name": "X-Task", "value": "${task.name}"}]}


@pytest.mark.parametrize(
    ("zone", "function"), [({}, False), ({"zone": "a"}, False), ({"zone": "a"}, True)]
)
async def test_manager_restarts_send_no_request_twice(
    site: http_test_server.HttpServer, zone: dict[str, str], *, function: bool
) -> None:
    async with http_executors.running(short_paths.directory(), lease_s=20.0, renew_s=0.3) as world:
        await world.executor(slots=3, labels={"zone": "a"})
        tasks = []
        for number in range(12):
            more = {"request": POST, "affinity": {"required": zone}, "function": function}
            tasks += [await world.submit(f"{site.base}/slow", **more) for _ in range(4)]
            await asyncio.sleep(number * 0.01)
            await world.restart_hub(lease_s=20.0, renew_s=0.3)
        views = [await world.ends(task) for task in tasks]
        assert {(view.state, view.reason) for view in views} == {("Success", "Succeeded")}
        assert sent(site) == {view.name: 1 for view in views}


async def test_executor_deaths_send_no_unrepeatable_request_twice(
    site: http_test_server.HttpServer,
) -> None:
    async with http_executors.running(short_paths.directory(), **LEASES) as world:
        tasks = [await world.submit(f"{site.base}/slow", request=POST) for _ in range(60)]
        for number in range(5):
            executor = await world.executor(f"e{number}", slots=4)
            await asyncio.sleep(0.1 + number * 0.017)
            await world.die(executor)
        await world.executor("last")
        views = [await world.ends(task) for task in tasks]
        counts = sent(site)
        assert max(counts.values()) == 1
        for view in views:
            if view.state == "Success":
                assert counts[view.name] == 1
            else:
                assert (view.state, view.reason) == ("Failed", "ExecutorLost")
        assert sum(view.state == "Success" for view in views) >= 40


async def test_repeatable_requests_succeed_despite_executor_deaths(
    site: http_test_server.HttpServer,
) -> None:
    async with http_executors.running(short_paths.directory(), **LEASES) as world:
        url, spec = f"{site.base}/slow", {"retry": {"maxLosses": 10, "delaySeconds": 0}}
        tasks = [await world.submit(url, spec=spec) for _ in range(40)]
        for number in range(3):
            executor = await world.executor(f"e{number}", slots=4)
            await asyncio.sleep(0.1)
            await world.die(executor)
        await world.executor("last")
        assert {(await world.ends(task)).state for task in tasks} == {"Success"}


@pytest.mark.parametrize("function", [False, True])
async def test_killed_requests_leave_no_open_connection(
    site: http_test_server.HttpServer, *, function: bool
) -> None:
    async with http_executors.running(short_paths.directory(), lease_s=20.0) as world:
        await world.executor(slots=8)
        for number in range(12):
            task = await world.submit(f"{site.base}/slow", request=POST, function=function)
            await asyncio.sleep(number * 0.008)
            await world.kill(task)
            view = await world.ends(task)
            assert (view.state, view.stopped) in (("Killed", True), ("Success", True))
        await waiting.wait_until_async(lambda: site.open == 0, what="no connection is left")
        assert max(sent(site).values(), default=1) == 1


async def test_task_killed_before_an_executor_has_it_sends_no_request(
    site: http_test_server.HttpServer,
) -> None:
    async with http_executors.running(short_paths.directory(), lease_s=20.0) as world:
        task = await world.submit(f"{site.base}/slow", request=POST)
        await world.wait_for_state(task, "Pending", "ExecutorUnavailable")
        await world.kill(task)
        view = await world.ends(task)
        assert (view.state, view.stopped) == ("Killed", True)
        await world.executor()
        await asyncio.sleep(0.1)
        assert site.requests == []


async def test_rejected_response_is_retried_up_to_max_attempts(
    site: http_test_server.HttpServer,
) -> None:
    async with http_executors.running(short_paths.directory(), lease_s=20.0) as world:
        await world.executor()
        spec = {"retry": {"maxAttempts": 3, "delaySeconds": 0.05, "jitter": 0}}
        view = await world.runs(f"{site.base}/nowhere", spec=spec)
        assert (view.state, view.reason, view.attempt) == ("Failed", "ResponseRejected", 3)
        assert len(site.requests) == 3


async def test_new_run_sends_a_new_request(site: http_test_server.HttpServer) -> None:
    async with http_executors.running(short_paths.directory(), lease_s=20.0) as world:
        await world.executor()
        view = await world.runs(f"{site.base}/nowhere", request=POST)
        site.routes["/nowhere"] = http_test_server.json_response({"ok": True})
        await world.hub.retry(view.task)
        again = await world.ends(view.task)
        assert (again.state, again.run, again.attempt) == ("Success", 2, 1)
