"""Requests of a running task on its socket, and what the dispatcher is asked for."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from kilnwork.api import attempts
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages, worker_side
from kilnwork.kit import clock, ids
from kilnwork.worker import task_socket, unix_http_server

REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
CHILD = ids.TaskId(bytes(15) + b"\1")


class Link:
    """Takes requests, and responds to all in the same way."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.sent: list[Any] = []
        self.congested = False
        self.error: Exception | None = None

    async def request(self, make: Callable[[int], worker_side.Request]) -> messages.Response:
        if self.error is not None:
            raise self.error
        self.requests.append(make(7))
        return messages.Response(7, 201, b'{"id": "x"}')

    def send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def calls(link: Link) -> task_socket.TaskSocket:
    return task_socket.TaskSocket(
        REF, cluster="mine", link=cast(worker_side.Peer, link), clock=clock.SystemClock()
    )


def request(method: str, target: str, body: Any = None) -> unix_http_server.HttpRequest:
    encoded = b"" if body is None else msgspec.json.encode(body)
    return unix_http_server.HttpRequest(method, target, bytearray(encoded))


async def test_child_is_spawned_in_the_cluster_of_its_parent(
    calls: task_socket.TaskSocket, link: Link
) -> None:
    body = {"name": "n", "spec": {"command": ["true"]}}
    for ordinal in (1, 2):
        response = await calls.handle(request("POST", "/tasks", body))
        assert (response.status, response.body) == (201, b'{"id": "x"}')
        spawn = link.requests[-1]
        assert (spawn.serial, spawn.parent, spawn.name) == (7, REF, "n")
        assert (spawn.ordinal, spawn.key) == (ordinal, None)
        assert spawn.spec.cluster_name == "mine"


async def test_child_may_name_its_cluster(calls: task_socket.TaskSocket, link: Link) -> None:
    body = {"spec": {"command": ["true"], "clusterName": "other"}}
    await calls.handle(request("POST", "/tasks", body))
    assert link.requests[-1].spec.cluster_name == "other"


async def test_child_with_a_key_is_not_counted(calls: task_socket.TaskSocket, link: Link) -> None:
    spec = {"command": ["true"]}
    await calls.handle(request("POST", "/tasks", {"key": "k", "spec": spec}))
    await calls.handle(request("POST", "/tasks", {"spec": spec}))
    assert [(one.ordinal, one.key) for one in link.requests] == [(0, "k"), (1, None)]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, r"missing required field `spec` - at `\$`"),
        ({"spec": {"command": ["x"]}, "more": 1}, r"unknown field `more` - at `\$`"),
        ({"spec": {"command": "x"}}, r"`\$\.spec\.command`"),
        ({"spec": {}}, r"spec.command is empty: name the program to run - at `\$\.spec`"),
        ({"key": "", "spec": {"command": ["x"]}}, r"`\$\.key`"),
    ],
)
async def test_refused_body_names_the_field(
    calls: task_socket.TaskSocket, link: Link, body: Any, why: str
) -> None:
    with pytest.raises(unix_http_server.HttpError, match=why) as caught:
        await calls.handle(request("POST", "/tasks", body))
    assert caught.value.status == 400
    assert link.requests == []


@pytest.mark.parametrize(
    ("query", "wait_s"), [("", 0.0), ("?wait=5", 5.0), ("?wait=1&wait=2", 2.0)]
)
async def test_get_returns_the_state_of_a_task(
    calls: task_socket.TaskSocket, link: Link, query: str, wait_s: float
) -> None:
    await calls.handle(request("GET", f"/tasks/{ids.task_text(CHILD)}{query}"))
    (asked,) = link.requests
    assert (asked.task, asked.parent) == (CHILD, REF)
    assert wait_s - 1 < asked.wait_s <= wait_s


@pytest.mark.parametrize("wait", ["-1", "3601", "soon", "nan", ""])
async def test_invalid_wait_is_refused(calls: task_socket.TaskSocket, wait: str) -> None:
    with pytest.raises(unix_http_server.HttpError, match="must be 0 to 3600 seconds") as caught:
        await calls.handle(request("GET", f"/tasks/{ids.task_text(CHILD)}?wait={wait}"))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("method", "target", "status", "allow"),
    [
        ("GET", "/tasks", 405, "POST"),
        ("POST", f"/tasks/{ids.task_text(CHILD)}", 405, "GET"),
        ("GET", "/progress", 405, "POST"),
        ("GET", "/tasks/nonsense", 404, ""),
        ("GET", "/", 404, ""),
    ],
)
async def test_unknown_requests_are_refused(
    calls: task_socket.TaskSocket, method: str, target: str, status: int, allow: str
) -> None:
    with pytest.raises(unix_http_server.HttpError) as caught:
        await calls.handle(request(method, target))
    assert (caught.value.status, caught.value.allow) == (status, allow)


async def test_progress_is_sent(calls: task_socket.TaskSocket, link: Link) -> None:
    response = await calls.handle(
        request("POST", "/progress", {"fraction": 0.5, "message": "half"})
    )
    assert response.status == 204
    assert link.sent == [messages.Progress(REF, 0.5, "half")]
    calls.welcomed()
    assert len(link.sent) == 1


async def test_progress_without_room_is_sent_on_the_next_link(
    calls: task_socket.TaskSocket, link: Link
) -> None:
    link.congested = True
    for fraction in (0.1, 0.2):
        await calls.handle(request("POST", "/progress", {"fraction": fraction}))
    assert link.sent == []
    calls.welcomed()
    calls.welcomed()
    assert link.sent == [messages.Progress(REF, 0.2, "")]


async def test_child_that_is_too_large_is_refused(
    calls: task_socket.TaskSocket, link: Link
) -> None:
    link.error = channel_errors.FrameTooLarge("too large")
    with pytest.raises(unix_http_server.HttpError, match="too large") as caught:
        await calls.handle(request("POST", "/tasks", {"spec": {"command": ["true"]}}))
    assert caught.value.status == 413
