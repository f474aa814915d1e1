"""The log of a container, where this process has it and where the API server is asked."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import pytest

from kilnwork.executors import container_logs, port
from kilnwork.kube import client

PIECES = (b"abc", b"defg", b"h")
WHERE = ("ns", "pod")


class Kube:
    """An API server that has the log; `asked`: path, query and whether it may last for ever."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, str], bool]] = []

    async def stream(
        self, path: str, *, query: Mapping[str, str], endless: bool
    ) -> AsyncGenerator[bytes, None]:
        self.asked.append((path, query, endless))
        for piece in PIECES:
            yield piece


class Here:
    """Logs that this process has. `asked`: namespace, Pod, container, bytes at most."""

    def __init__(self, *, has_it: bool = True) -> None:
        self.has_it = has_it
        self.asked: list[tuple[Any, ...]] = []

    def __call__(
        self, namespace: str, pod: str, container: str, limit: int | None
    ) -> AsyncGenerator[bytes, None] | None:
        self.asked.append((namespace, pod, container, limit))
        return self._pieces() if self.has_it else None

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        for piece in PIECES:
            yield piece


async def read(
    kube: Kube, how: port.LogRange, read_log: container_logs.ReadLog | None = None
) -> bytes:
    pieces = container_logs.read(cast(client.Client, kube), WHERE, "main", how, read_log=read_log)
    return b"".join([piece async for piece in pieces])


@pytest.mark.parametrize(
    ("skip", "rest"), [(0, b"abcdefgh"), (1, b"bcdefgh"), (3, b"defgh"), (5, b"fgh"), (8, b"")]
)
async def test_known_bytes_are_skipped(skip: int, rest: bytes) -> None:
    assert await read(Kube(), port.LogRange(skip=skip)) == rest


async def test_the_api_server_is_asked_for_no_more_than_is_wanted() -> None:
    kube = Kube()
    await read(kube, port.LogRange(skip=2, max_bytes=3))
    path = "/api/v1/namespaces/ns/pods/pod/log"
    assert kube.asked == [(path, {"container": "main", "limitBytes": "5"}, False)]


async def test_to_follow_is_to_ask_the_api_server() -> None:
    kube, here = Kube(), Here()
    await read(kube, port.LogRange(follow=True), here)
    assert [(query, endless) for _, query, endless in kube.asked] == [
        ({"container": "main", "follow": "true"}, True)
    ]
    assert here.asked == []


async def test_log_of_this_machine_is_read_without_a_request() -> None:
    kube, here = Kube(), Here()
    assert await read(kube, port.LogRange(skip=3, max_bytes=9), here) == b"defgh"
    assert here.asked == [("ns", "pod", "main", 12)]
    assert kube.asked == []


async def test_log_of_another_machine_is_requested() -> None:
    kube = Kube()
    assert await read(kube, port.LogRange(), Here(has_it=False)) == b"abcdefgh"
    assert len(kube.asked) == 1
