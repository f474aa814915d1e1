"""Tasks that request functions: Knative Services on the embedded Kubernetes.

The tests set the conditions of Services as Knative does, and a test server plays its activator.

Row 26 of the table of edge cases (cold starts): the Service is checked first, deadlines are ours,
only idempotent requests are repeated, and long work is accepted with 202.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.executors.http import knative_services
from kilnwork.kube import client
from support import (
    control_plane_world,
    free_ports,
    http_executors,
    http_test_server,
    object_subject,
    short_paths,
    waiting,
)

NS = http_executors.NS
SERVICES = api_resources.Resource(
    group="serving.knative.dev", version="v1", kind="Service", plural="services", singular="service"
)
DEFINITION: dict[str, Any] = {
    **object_subject.DEFINITION,
    "metadata": {"name": SERVICES.qualified},
    "spec": {
        **object_subject.DEFINITION["spec"],  # type: ignore[dict-item]
        "group": SERVICES.group,
        "names": {"kind": SERVICES.kind, "plural": SERVICES.plural},
    },
}
DEFINITION["spec"]["versions"] = [
    {**one, "name": SERVICES.version} for one in DEFINITION["spec"]["versions"]
]


class Setting:
    """Executors, the API server whose Services they read, and the actions of Knative on it."""

    def __init__(self, world: http_executors.World, admin: client.Client) -> None:
        self.world = world
        self.admin = admin

    async def define(self) -> None:
        await self.admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)

    async def make(self, name: str = "hello") -> None:
        await self.admin.create(SERVICES, {"metadata": {"name": name}, "spec": {}}, NS)

    async def say(self, ready: str, url: str = "", *, name: str = "hello", **why: str) -> None:
        conditions = [
            {"type": type_, "status": ready, **why}
            for type_ in ("ConfigurationsReady", "Ready", "RoutesReady")
        ]
        status = {"observedGeneration": 1, "conditions": conditions, "url": url or None}
        patch = {"status": status}
        await self.admin.merge_patch(SERVICES, name, patch, NS, subresource="status")

    async def waits(self, task: Any, reason: str, message: str) -> None:
        """Wait until a task is Staging for that reason."""

        def look() -> bool:
            view = self.world.view(task)
            assert not view.state.final, view.message
            return (view.state, view.reason) == ("Staging", reason) and message in view.message

        await waiting.wait_until_async(look, what=f"it waits: {message}")


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with (
        control_plane_world.World() as plane,
        http_executors.running(short_paths.directory(), lease_s=20.0, renew_s=0.5) as world,
    ):
        world.functions = services = knative_services.ServicesOfCluster(plane.kube, inside=False)
        try:
            yield Setting(world, plane.kube)
        finally:
            await services.close()


@pytest.fixture
async def world() -> AsyncIterator[http_executors.World]:
    async with http_executors.running(short_paths.directory(), lease_s=20.0, renew_s=0.5) as made:
        yield made


@pytest.fixture
async def site() -> AsyncIterator[http_test_server.HttpServer]:
    async with http_test_server.running() as made:
        yield made


async def test_task_waits_for_a_service_without_a_slot(
    setting: Setting, site: http_test_server.HttpServer
) -> None:
    world = setting.world
    await world.executor(slots=1)
    tasks = [await world.submit("/echo?a=1", service="hello") for _ in range(4)]
    for task in tasks:
        await setting.waits(
            task, "ExecutorUnavailable", "no kind Service in serving.knative.dev/v1"
        )
    assert (await world.runs(f"{site.base}/echo")).state == "Success"
    await setting.define()
    await setting.waits(tasks[0], "ServiceNotReady", "Service hello: there is none of that name")
    await setting.make()
    await setting.waits(tasks[0], "ServiceNotReady", "Knative has not seen generation 1 yet")
    await setting.say("Unknown", reason="Deploying", message="the Pod is starting")
    await setting.waits(tasks[0], "ServiceNotReady", "Service hello: Deploying: the Pod is start")
    await setting.say("True", site.base)
    for task in tasks:
        view = await world.ends(task)
        assert (view.state, world.result(view)["target"]) == ("Success", "/echo?a=1")

    await setting.admin.delete(api_resources.CUSTOM_RESOURCE_DEFINITIONS, SERVICES.qualified)
    late = await world.submit("/echo", service="late")
    await setting.waits(late, "ExecutorUnavailable", "no kind Service in serving.knative.dev/v1")
    await setting.define()
    await setting.make("late")
    await setting.say("True", site.base, name="late")
    assert (await world.ends(late)).state == "Success"


async def test_service_that_does_not_become_ready_times_out(
    setting: Setting, site: http_test_server.HttpServer
) -> None:
    await setting.define()
    await setting.make()
    await setting.say("False", site.base, reason="RevisionFailed", message="no such image")
    await setting.world.executor()
    patient = await setting.world.submit("/echo", service="hello")
    await setting.waits(patient, "ServiceNotReady", "no such image")  # its executor knows by now
    spec = {"timeouts": {"pendingSeconds": 3.0}}
    view = await setting.world.runs("/echo", service="hello", spec=spec)
    assert (view.state, view.reason) == ("Failed", "PendingTimedOut")
    assert "Service hello: RevisionFailed: no such image" in view.message
    assert site.requests == []


async def test_service_address_is_checked_by_the_egress_policy(setting: Setting) -> None:
    await setting.define()
    await setting.make()
    await setting.say("True", "http://169.254.169.254")
    await setting.world.executor()
    view = await setting.world.runs("/latest/meta-data", service="hello")
    assert (view.state, view.reason) == ("Failed", "AddressRefused")


async def test_waiting_tasks_run_at_most_one_per_slot(
    setting: Setting, site: http_test_server.HttpServer
) -> None:
    world, at_once = setting.world, 0

    async def count(
        site: http_test_server.HttpServer,
        request: http_test_server.Request,
        writer: asyncio.StreamWriter,
    ) -> None:
        nonlocal at_once
        at_once = max(at_once, site.open)
        await asyncio.sleep(0.02)
        writer.write(http_test_server.response(b"1"))

    site.routes["/count"] = count
    await setting.define()
    await setting.make()
    await world.executor(slots=2)
    request = {"method": "POST"}  # each has a connection of its own
    tasks = [await world.submit("/count", service="hello", request=request) for _ in range(10)]
    for task in tasks:
        await setting.waits(task, "ServiceNotReady", "generation 1")
    await setting.say("True", site.base)
    assert {(await world.ends(task)).state for task in tasks} == {"Success"}
    assert at_once <= 3  # a connection may be closed a moment after its response


@pytest.mark.parametrize(
    ("method", "more", "state", "sent"),
    [
        ("GET", {}, "Success", 3),
        ("POST", {"idempotent": True}, "Success", 3),
        ("POST", {}, "Failed", 1),
    ],
)
async def test_failed_cold_start_of_an_idempotent_request_is_retried(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    method: str,
    more: dict[str, Any],
    state: str,
    sent: int,
) -> None:
    async def activator(
        site: http_test_server.HttpServer,
        request: http_test_server.Request,
        writer: asyncio.StreamWriter,
    ) -> bool:
        number = len(site.got("/"))
        if number == 1:
            writer.write(http_test_server.response(status="502 Bad Gateway"))
        elif number == 2:
            return True  # cut off
        else:
            writer.write(http_test_server.response(b'"warm"'))
        return False

    site.routes["/"] = activator
    await world.executor()
    view = await world.runs(site.base + "/", function=True, request={"method": method}, **more)
    assert (view.state, view.attempt, len(site.requests)) == (state, 1, sent), view.message
    assert "status 502" in view.message or state == "Success"
    keys = {request.header("Idempotency-Key") for request in site.requests}
    assert len(keys) == 1
    assert (None in keys) != (more == {"idempotent": True})


@pytest.mark.parametrize(
    ("activator", "reason"),
    [
        (
            http_test_server.raw_response(http_test_server.response(status="504 Gateway Timeout")),
            "ResponseRejected",
        ),
        (http_test_server.gated, "RequestTimedOut"),
    ],
    ids=["Knative", "ours"],
)
async def test_expired_request_is_not_sent_again(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    activator: http_test_server.Handler,
    reason: str,
) -> None:
    site.routes["/"] = activator
    await world.executor()
    view = await world.runs(site.base + "/", function=True, timeout={"readTimeout": 2.0})
    assert (view.state, view.reason, view.losses) == ("Failed", reason, 0)
    assert len(site.requests) == 1


async def test_unsent_request_is_sent_again(
    world: http_executors.World,
) -> None:
    await world.executor()
    port = free_ports.free()
    url, request = f"http://127.0.0.1:{port}/", {"method": "POST"}
    task = await world.submit(url, function=True, request=request)
    await world.wait_for_state(task, "Staging", "Connecting")
    async with await asyncio.start_server(_one_response, "127.0.0.1", port):
        view = await world.ends(task)
    assert (view.state, view.attempt) == ("Success", 1), view.message


async def _one_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(http_test_server.response(b"1"))
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    ("acknowledged", "reason"),
    [
        (
            http_test_server.raw_response(http_test_server.response(status="204 No Content")),
            "Killed",
        ),
        (
            http_test_server.raw_response(http_test_server.response(status="400 Bad Request")),
            "Unconfirmed",
        ),
        (http_test_server.gated, "Unconfirmed"),
    ],
    ids=["acknowledged", "refused", "silent"],
)
@pytest.mark.parametrize("mode", ["Sync", "Callback"])
async def test_kill_ends_the_request_in_the_function(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    mode: str,
    acknowledged: http_test_server.Handler,
    reason: str,
) -> None:
    accepted = http_test_server.raw_response(http_test_server.response(status="202 Accepted"))
    site.routes["/jobs"] = http_test_server.gated if mode == "Sync" else accepted
    await world.executor()
    end = {"method": "DELETE", "url": "/jobs/${task.name}"}
    task = await world.submit(
        f"{site.base}/jobs",
        function=True,
        request={"method": "POST"},
        mode=mode,
        cancel={"request": end, "timeoutSeconds": 0.5},
    )
    name = world.view(task).name
    site.routes[f"/jobs/{name}"] = acknowledged
    await world.wait_for_state(task, "Running", "Started" if mode == "Sync" else "WaitingForResult")
    await waiting.wait_until_async(lambda: bool(site.got("/jobs")), what="it was sent")
    await world.kill(task)
    view = await world.ends(task)
    assert (view.state, view.reason, view.stopped) == ("Killed", reason, reason == "Killed")
    assert [request.method for request in site.got(f"/jobs/{name}")] == ["DELETE"]
