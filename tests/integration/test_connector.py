"""Connections to a manager through an API server: tokens, their renewal, and errors.

The API server here is a small fake of the real one (tests/cluster/test_drivers.py): it consumes
`Authorization` and forwards requests to its proxy path.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kilnwork.api import manager_access as names
from kilnwork.channel import http_upgrade
from kilnwork.data import cached_blobs, remote_blobs
from kilnwork.endpoints import connector
from kilnwork.kit import asgi, clock, errors, serving
from kilnwork.kube import config
from kilnwork.sdk import driver_session
from support import certificates, remote_manager, tcp_proxy

R = TypeVar("R")
PROXY = names.proxy_path()
_clients = futures.ThreadPoolExecutor(4, "client")


async def in_thread(story: Callable[[], R]) -> R:
    """Run a blocking driver in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_clients, story)


class Cluster:
    """An API server with a manager behind it. `responses` overrides responses by path prefix."""

    def __init__(self, directory: Path, far: remote_manager.RemoteManager) -> None:
        self.far = far
        self.known = {"mine"}
        self.minted: list[str] = []
        self.responses: dict[str, tuple[int, Any]] = {}
        authority = certificates.Authority()
        pair = authority.issue_file("server", directory)
        listening = serving.bind("127.0.0.1", 0)
        port = listening.getsockname()[1]
        self.listener = serving.Listener(self._app, listening, tls=serving.tls_context(pair, pair))
        self.settings = config.Config(
            server=f"https://127.0.0.1:{port}", ca_data=authority.pem, token=None
        )

    async def _app(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        path, response = scope["path"], asgi.Response(send)
        for prefix, (status, document) in self.responses.items():
            if path.startswith(prefix):
                await response.json(document, status=status)
                return
        if path == "/version":
            await response.json({"gitVersion": "v1.33.0"})
        elif path.endswith(f"/serviceaccounts/{names.DRIVER_ACCOUNT}/token"):
            self.minted.append(path)
            made = {"spec": {"expirationSeconds": 600}, "status": {"token": remote_manager.SECRET}}
            await response.json(made, status=201)
        elif path == PROXY + "/v1/endpoints":
            await response.json({"channel": {"unix": ""}})
        elif path.startswith(PROXY):
            kept = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
            inner = {**scope, "path": path.removeprefix(PROXY), "headers": kept}
            await self.far._app(inner, receive, send)
        else:
            await response.text(404, "404 page not found")

    def to_manager(
        self, *, time: clock.Clock | None = None, **more: Any
    ) -> connector.ManagerConnector:
        """Return a connector to the manager, which it has not resolved yet."""
        settings = config.Config(server=self.settings.server, ca_data=self.settings.ca_data, **more)
        return connector.ManagerConnector(lambda: settings, namespace="ns", clock=time)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with remote_manager.running(tmp_path) as far:
        made = Cluster(tmp_path, far)
        await made.listener.start()
        yield made
        await made.listener.stop(timeout_s=1)


async def test_driver_account_token_is_requested_once(cluster: Cluster) -> None:
    to = cluster.to_manager()

    def story() -> None:
        to.find()
        opened = driver_session.Driver(
            connect=lambda: http_upgrade.open_channel(to), credential=to.token, namespace="ns"
        )
        opened.open(timeout_s=10)
        opened.close()
        store = remote_blobs.RemoteBlobs(to, path=to.path("/blobs/ns"))
        kept = cached_blobs.CachedBlobs(cluster.far.directory / "cache", store)
        kept.put([b"value"])
        store.close()

    await in_thread(story)
    assert cluster.minted == [f"/api/v1/namespaces/ns/serviceaccounts/{names.DRIVER_ACCOUNT}/token"]
    assert [path.partition("sha256")[0] for _, path in cluster.far.requests] == [
        names.CHANNEL_PATH,
        "/blobs/ns/",
    ]


async def test_token_is_renewed_before_it_expires(cluster: Cluster) -> None:
    time = clock.ManualClock()
    to = cluster.to_manager(time=time)
    await in_thread(to.find)
    assert await in_thread(to.token) == remote_manager.SECRET
    time.advance(0.7 * 600)
    await in_thread(to.token)
    assert len(cluster.minted) == 1
    time.advance(0.2 * 600)
    await in_thread(to.token)
    assert len(cluster.minted) == 2


async def test_refused_token_is_requested_again(cluster: Cluster) -> None:
    to = cluster.to_manager()
    await in_thread(to.find)
    cluster.far.forced_status = 401
    with pytest.raises(errors.ConfigurationError, match="refuses the channel: a test says so"):
        await in_thread(lambda: http_upgrade.open_channel(to))
    assert len(cluster.minted) == 2
    cluster.far.forced_status = None
    (await in_thread(lambda: http_upgrade.open_channel(to))).close()


async def test_failed_renewal_of_a_token_is_retried(cluster: Cluster) -> None:
    to = cluster.to_manager()
    await in_thread(to.find)
    to.refused()
    cluster.responses["/api/v1/namespaces/ns/serviceaccounts"] = 503, {"message": "etcd is away"}
    with pytest.raises(OSError, match="is not ready: etcd is away"):  # links try again after these
        await in_thread(lambda: http_upgrade.open_channel(to))
    cluster.responses.clear()
    (await in_thread(lambda: http_upgrade.open_channel(to))).close()


async def test_own_token_is_sent_to_api_server_and_manager(cluster: Cluster) -> None:
    to = cluster.to_manager(token=remote_manager.SECRET)
    await in_thread(to.find)
    shown = to.headers()
    assert shown["Authorization"] == f"Bearer {remote_manager.SECRET}"
    assert shown[names.TOKEN_HEADER] == remote_manager.SECRET
    assert cluster.minted == []


async def test_connection_to_an_unready_manager_is_retried(cluster: Cluster) -> None:
    to = cluster.to_manager()
    await in_thread(to.find)
    cluster.far.forced_status = 503
    opened = driver_session.Driver(
        connect=lambda: http_upgrade.open_channel(to), credential=to.token, namespace="ns"
    )
    opening = asyncio.get_running_loop().run_in_executor(
        _clients, lambda: opened.open(timeout_s=20)
    )
    async with asyncio.timeout(30):
        while len(cluster.far.requests) < 3:
            await asyncio.sleep(0.01)
    cluster.far.forced_status = None
    await opening
    await in_thread(opened.close)


STATUS = {"kind": "Status", "message": "said so"}


@pytest.mark.parametrize(
    ("path", "status", "document", "words"),
    [
        (PROXY, 404, STATUS, "no manager is installed in namespace kilnwork-system"),
        (PROXY, 403, STATUS, "you may not reach the manager .* said so.*services/proxy"),
        (PROXY, 503, STATUS, "the manager in namespace kilnwork-system .* is not ready: said so"),
        (PROXY, 401, {"detail": "no"}, "does not accept the token: no"),
        ("/api/v1/namespaces/ns/s", 404, STATUS, "no ServiceAccount kilnwork-driver"),
        ("/api/v1/namespaces/ns/s", 503, STATUS, "is not ready: said so"),
        ("/api/v1/namespaces/ns/s", 403, STATUS, "you may not request one .*: said so"),
        ("/v1/endpoints", 401, STATUS, "does not accept the token"),
        ("/v1/endpoints", 500, STATUS, "is not ready: said so"),
        ("/version", 404, {}, "not a kilnwork server: it has no /v1"),
        ("/v1/endpoints", 200, {"other": 1}, "not a kilnwork server"),
    ],
)
async def test_connection_error_names_its_cause(
    cluster: Cluster, path: str, status: int, document: dict[str, Any], words: str
) -> None:
    cluster.responses[path] = status, document
    with pytest.raises(errors.ConfigurationError, match=words):
        await in_thread(cluster.to_manager().find)


async def test_impersonation_is_refused(cluster: Cluster) -> None:
    to = cluster.to_manager(token="mine", impersonate=config.Impersonation(user="else"))
    with pytest.raises(errors.ConfigurationError, match="acts as another user"):
        await in_thread(to.find)


async def test_changed_kubeconfig_is_read_again(cluster: Cluster) -> None:
    settings = [cluster.settings]
    to = connector.ManagerConnector(lambda: settings[-1], namespace="ns")
    await in_thread(to.find)
    settings.append(
        config.Config(server=cluster.settings.server, ca_data=cluster.settings.ca_data, token="new")
    )
    to.refused()
    assert to.token() == "new"


def test_unreachable_server_is_named() -> None:
    to = connector.ManagerConnector(
        lambda: config.Config(server="https://127.0.0.1:1", token="x"), namespace="ns"
    )
    with pytest.raises(errors.ConfigurationError, match=r"https://127\.0\.0\.1:1 does not respond"):
        to.find()


async def test_proxy_of_the_kubeconfig_is_used(cluster: Cluster) -> None:
    async with tcp_proxy.HttpProxy() as proxy:
        to = cluster.to_manager(
            token=remote_manager.SECRET, proxy_url=f"http://127.0.0.1:{proxy.port}"
        )
        await in_thread(to.find)
        (await in_thread(lambda: http_upgrade.open_channel(to))).close()
        assert set(proxy.asked) == {to.server.removeprefix("https://")}
        proxy.status = 403
        with pytest.raises(errors.ConfigurationError, match="responds with 403"):
            await in_thread(to.find)
