"""What the streaming paths refuse before any stream is there, in the kubelet's words."""

from pathlib import Path
from typing import Any

import pytest

from kilnwork.controlplane.node import kubelet_streaming, shim_container
from kilnwork.kit import asgi

UID = "11111111-1111-1111-1111-111111111111"
SPDY = [
    (b"connection", b"Upgrade"),
    (b"upgrade", b"SPDY/3.1"),
    (b"x-stream-protocol-version", b"v4.channel.k8s.io"),
]


def find(namespace: str, pod: str, name: str) -> kubelet_streaming.FoundContainer | asgi.Refusal:
    if (namespace, pod) != ("ns", "p"):
        return asgi.Refusal(404, "pod does not exist")
    if name not in ("main", ""):
        return asgi.Refusal(500, f'container not found ("{name}")')
    return kubelet_streaming.FoundContainer(
        shim_container.ContainerRecord(f"{UID}/main/0", "/nowhere"), "127.0.0.1"
    )


async def response(
    path: str, query: str = "", *, method: str = "POST", headers: Any = ()
) -> tuple[int, str]:
    paths = kubelet_streaming.ExecPaths(find, shim=Path("/nowhere/s"))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": list(headers),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("there is no body to be read")

    async def send(message: Any) -> None:
        sent.append(message)

    await paths.serve(asgi.Request(scope, receive), asgi.Response(send))
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(sent[1]["body"])).encode()
    return sent[0]["status"], sent[1]["body"].decode()


@pytest.mark.parametrize(
    "path",
    ["/exec", "/exec/ns", "/exec/ns/p", "/exec/ns/p/u/main/x", "/portForward/ns", "/attach/"],
)
async def test_unknown_paths_are_not_found(path: str) -> None:
    assert await response(path, "output=1") == (404, "404 page not found")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD"])
async def test_unknown_methods_are_not_found(method: str) -> None:
    assert (await response("/exec/ns/p/main", "output=1", method=method))[0] == 404


@pytest.mark.parametrize(
    ("path", "query", "wanted"),
    [
        ("/exec/ns/other/main", "output=1", (404, "pod does not exist")),
        ("/attach/ns/p/other", "output=1", (500, 'container not found ("other")')),
        (f"/exec/ns/p/{UID[:-1]}2/main", "output=1", (404, "pod not found")),
        ("/portForward/ns/p/2", "", (404, "pod not found")),
        ("/portForward/ns/p", "port=80,x", (400, 'unable to parse "x" as a port')),
        ("/portForward/ns/p", "port=0", (400, 'unable to parse "0" as a port')),
        ("/portForward/ns/p", "port=65536", (400, 'unable to parse "65536" as a port')),
    ],
)
async def test_missing_pod_or_container_is_reported(
    path: str, query: str, wanted: tuple[int, str]
) -> None:
    assert await response(path, query, headers=SPDY) == wanted


@pytest.mark.parametrize("query", ["", "command=true", "input=0", "error=1&tty=1"])
async def test_session_without_streams_is_a_bad_request(query: str) -> None:
    """With a terminal there is no standard error."""
    text = "you must specify at least 1 of stdin, stdout, stderr"
    assert await response("/exec/ns/p/main", query, headers=SPDY) == (400, text)


@pytest.mark.parametrize("path", ["/exec/ns/p/main", f"/exec/ns/p/{UID}/main", "/attach/ns/p/main"])
async def test_request_without_upgrade_is_a_bad_request(path: str) -> None:
    wanted = (400, "Upgrade request required")
    assert await response(path, "output=1") == wanted
    assert await response(path, "output=1", headers=SPDY) == wanted  # of HTTP/1.0, or with a body


@pytest.mark.parametrize(
    ("path", "query"),
    [("/exec/ns/p/main", "output=1&command=true"), ("/attach/ns/p/main", "output=1")],
)
async def test_disconnected_client_gets_no_session(path: str, query: str) -> None:
    def raise_disconnected() -> asgi.Hijacked:
        raise asgi.Disconnected

    paths = kubelet_streaming.ExecPaths(find, shim=Path("/nowhere/s"))
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": SPDY,
        "extensions": {asgi.HIJACK: raise_disconnected},
    }

    async def receive() -> Any:
        raise AssertionError("there is no body to be read")

    async def send(message: Any) -> None:
        raise AssertionError(f"unexpected message: {message}")

    await paths.serve(asgi.Request(scope, receive), asgi.Response(send))
    await paths.stop()
