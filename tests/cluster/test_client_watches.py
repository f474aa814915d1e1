"""Caches that follow the real API server through every interruption of lists and watches.

On a control plane of its own: one resource is read past the watch cache, so that etcd's compaction
shows, and the server admits very few requests at once, so that it responds with 429.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hack.kube import cluster

from kilnwork.api import api_resources, meta
from kilnwork.kube import cache, client, config, errors, objects, reflector
from support import waiting

pytestmark = pytest.mark.timeout(180)

NS = "default"
LEAN = ("configmaps#0", "secrets#0")
"""No watch cache for these: lists and watches go to etcd, as they do when the cache is behind."""


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """Run etcd and an API server that admits two requests and two writes at once."""
    flags = [
        f"--watch-cache-sizes={','.join(LEAN)}",
        "--max-requests-inflight=2",
        "--max-mutating-requests-inflight=2",
        "--v=1",
    ]
    settings = cluster.Settings(
        directory=tmp_path_factory.mktemp("lean"), controllers=(), extra={"kube-apiserver": flags}
    )
    running = cluster.Cluster(settings)
    running.start()
    yield running
    running.remove()


@pytest.fixture
async def admin(control_plane: cluster.Cluster) -> AsyncIterator[client.Client]:
    settings = config.load(control_plane.kubeconfig)
    async with client.Client(settings) as opened:
        yield opened
        for kind in (api_resources.CONFIG_MAPS, api_resources.SERVICE_ACCOUNTS):
            await opened.raw("DELETE", kind.base(NS))


class Follower:
    """A running reflector, the changes that it reported, and how often it listed."""

    def __init__(self, kube: client.Client, kind: api_resources.Resource) -> None:
        self.cache: cache.Cache[meta.Partial] = cache.Cache()
        self.changes: list[tuple[str, str]] = []
        self.kube = kube
        self.kind = kind
        self.reflector = reflector.Reflector(
            kube,
            kind,
            meta.Partial,
            self.cache,
            self._on_change,
            scope=reflector.Scope(namespace=NS),
        )

    def _on_change(
        self, key: objects.Key, old: meta.Partial | None, new: meta.Partial | None
    ) -> None:
        self.changes.append((key[1], "added" if old is None else "changed" if new else "deleted"))

    async def like_server(self) -> None:
        """Wait until the cache equals a list."""

        async def same() -> bool:
            listed = await self.kube.list(self.kind, NS, type=meta.Partial)
            theirs = {objects.key(o): objects.resource_version(o) for o in listed.items}
            return theirs == {
                objects.key(o): objects.resource_version(o) for o in self.cache.list()
            }

        await waiting.wait_until_async(same, what="the cache like the server", timeout_s=90)


@contextlib.asynccontextmanager
async def _following(kube: client.Client, kind: api_resources.Resource) -> AsyncIterator[Follower]:
    follower = Follower(kube, kind)
    async with _running(follower):
        await asyncio.wait_for(follower.reflector.synced.wait(), 60)
        yield follower


@contextlib.asynccontextmanager
async def _running(follower: Follower) -> AsyncIterator[None]:
    """Run a reflector; one that is cancelled and run again resumes where it stopped."""
    running = asyncio.create_task(follower.reflector.run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def _object(name: str, *, size: int = 1, **labels: str) -> meta.JsonObject:
    return {"metadata": {"name": name, "labels": labels}, "data": {"x": "x" * size}}


async def _write(
    kube: client.Client, kind: api_resources.Resource, *names: str, size: int = 1
) -> None:
    gate = asyncio.Semaphore(16)

    async def one(name: str) -> None:
        body = _object(name, size=size) if kind is api_resources.CONFIG_MAPS else _bare(name)
        async with gate:
            await kube.create(kind, body, NS)

    await asyncio.gather(*(one(name) for name in names))


def _bare(name: str) -> meta.JsonObject:
    return {"metadata": {"name": name}}


async def test_list_interrupted_by_compaction_is_complete(
    control_plane: cluster.Cluster, admin: client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _write(admin, api_resources.CONFIG_MAPS, *(f"m{n:03}" for n in range(30)))
    torn = admin.pages(api_resources.CONFIG_MAPS, NS, type=meta.Partial, limit=10)
    assert len((await anext(torn)).items) == 10
    await admin.create(api_resources.CONFIG_MAPS, _object("z"), NS)
    control_plane.compact()
    with pytest.raises(errors.Expired, match="The provided continue parameter is too old"):
        await anext(torn)
    monkeypatch.setattr(client, "PAGE", 10)
    pages = admin.pages

    async def compacting(*args: Any, **more: Any) -> AsyncIterator[Any]:
        async for page in pages(*args, **more):
            yield page
            if more["limit"]:
                await admin.create(
                    api_resources.CONFIG_MAPS, _object(f"y{time.monotonic_ns()}"), NS
                )
                control_plane.compact()

    monkeypatch.setattr(admin, "pages", compacting)
    async with _following(admin, api_resources.CONFIG_MAPS) as follower:
        monkeypatch.undo()
        await follower.like_server()
        assert len(follower.cache) == 32


async def test_watch_from_before_a_compaction_lists_again(
    control_plane: cluster.Cluster, admin: client.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await _write(admin, api_resources.CONFIG_MAPS, "a", "b")
    follower = Follower(admin, api_resources.CONFIG_MAPS)
    async with _running(follower):
        await follower.like_server()
    await admin.delete(api_resources.CONFIG_MAPS, "a", NS)
    await _write(admin, api_resources.CONFIG_MAPS, "c")
    control_plane.compact()
    async with _running(follower):
        await follower.like_server()
    assert sorted(follower.changes[2:]) == [("a", "deleted"), ("c", "added")]
    assert "watch is too old, listing again" in caplog.messages


async def _away(control_plane: cluster.Cluster, follower: Follower) -> None:
    """Kill and restart the API server; the follower has noticed and not yet reconnected."""
    control_plane.processes.kill("kube-apiserver")
    await waiting.wait_until_async(lambda: follower.reflector.problem, what="a problem")
    control_plane.start_part("kube-apiserver")


async def test_watch_resumes_after_a_server_restart(
    control_plane: cluster.Cluster, admin: client.Client
) -> None:
    await _write(admin, api_resources.SERVICE_ACCOUNTS, "before")
    async with _following(admin, api_resources.SERVICE_ACCOUNTS) as follower:
        for round_ in range(2):
            await _away(control_plane, follower)
            await _write(admin, api_resources.SERVICE_ACCOUNTS, f"after{round_}")
            await follower.like_server()
            await waiting.wait_until_async(
                lambda: not follower.reflector.problem, what="no problem"
            )
        names = [name for name, _ in follower.changes if name != "default"]
        assert names == ["before", "after0", "after1"]


async def test_server_that_hangs_is_noticed(
    control_plane: cluster.Cluster, admin: client.Client
) -> None:
    """A server stopped by a signal keeps its connections open and sends nothing."""
    settings = admin.config
    async with client.Client(settings, timeout_s=1.0) as hasty:
        control_plane.pause_part("kube-apiserver")
        try:
            with pytest.raises(errors.Unavailable, match="did not respond in time"):
                await hasty.list(api_resources.CONFIG_MAPS, NS, type=meta.Partial)
        finally:
            control_plane.resume_part("kube-apiserver")

        async def responses() -> bool:
            with contextlib.suppress(errors.Unavailable):  # it has to catch up first
                await hasty.list(api_resources.CONFIG_MAPS, NS, type=meta.Partial)
                return True
            return False

        await waiting.wait_until_async(responses, what="it responds again")


async def test_bookmarks_keep_a_quiet_watch_fresh(
    admin: client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The selector matches nothing, so only a bookmark can move the resourceVersion.

    The server sends one a minute, and one two seconds before it ends a watch.
    """
    monkeypatch.setattr(client, "WATCH_S", 4)
    listed = await admin.list(api_resources.SERVICE_ACCOUNTS, NS, type=meta.Partial)

    async def first() -> Any:
        changes = admin.watch(
            api_resources.SERVICE_ACCOUNTS,
            NS,
            resource_version=listed.resource_version,
            type=meta.Partial,
            label_selector="never=ever",
        )
        async with contextlib.aclosing(changes):
            return await anext(changes, None)

    change = None
    async with asyncio.timeout(60):
        while change is None:  # a server that stood still ends a watch without a bookmark
            pending = asyncio.create_task(first())
            while not pending.done():
                with contextlib.suppress(errors.AlreadyExists):
                    await _write(
                        admin, api_resources.SERVICE_ACCOUNTS, f"busy-{time.monotonic_ns()}"
                    )
                await asyncio.wait([pending], timeout=0.5)
            change = await pending
    assert change.kind == "BOOKMARK"
    assert int(change.resource_version) > int(listed.resource_version)


async def test_slow_reader_is_cut_off_and_misses_nothing(
    control_plane: cluster.Cluster, admin: client.Client
) -> None:
    """The server ends such a watch without an error; see its log at -v=1."""
    names = [f"b{n:04}" for n in range(600)]
    flooded = threading.Event()

    def flood() -> None:
        try:
            asyncio.run(_flood(admin.config, names))
        finally:
            flooded.set()

    def stand_still(*_: object) -> None:
        flooded.wait()

    async with _following(admin, api_resources.PODS) as follower:
        follower.reflector.subscribe(stand_still)
        await asyncio.to_thread(flood)
        await follower.like_server()
    log = control_plane.directory / "log" / "kube-apiserver.log"
    await waiting.wait_until_async(
        lambda: "unresponsiveness" in log.read_text(), what="the server has cut it off"
    )
    assert sorted(name for name, verb in follower.changes if verb == "added") == names


async def _flood(settings: config.Config, names: list[str]) -> None:
    """Create Pods of some 30 kB each, so that socket buffers cannot hold them all."""
    async with client.Client(settings) as own:
        gate = asyncio.Semaphore(16)

        async def one(name: str) -> None:
            metadata = {"name": name, "annotations": {"filler": "x" * 30_000}}
            container = {"name": "c", "image": "localhost/none:1"}
            spec = {"containers": [container], "automountServiceAccountToken": False}
            async with gate:
                await own.create(api_resources.PODS, {"metadata": metadata, "spec": spec}, NS)

        with contextlib.suppress(errors.AlreadyExists):
            await own.create(api_resources.SERVICE_ACCOUNTS, _bare("default"), NS)
        await asyncio.gather(*(one(name) for name in names))


async def test_busy_server_loses_no_write(
    control_plane: cluster.Cluster, admin: client.Client
) -> None:
    """Priority and fairness queues some 300 requests of one user; the others get 429 and wait."""
    await _may_do_all(admin, "many")
    path = control_plane.kubeconfig_for("many")
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(client.Client(config.load(path))) for _ in range(10)
        ]
        await asyncio.gather(
            *(
                each.create(api_resources.CONFIG_MAPS, _object(f"w{number}-{n}"), NS)
                for number, each in enumerate(clients)
                for n in range(50)
            )
        )
        assert sum(each.throttled for each in clients) > 0
    listed = await admin.list(api_resources.CONFIG_MAPS, NS, type=meta.Partial)
    assert len([o for o in listed.items if o.metadata.name.startswith("w")]) == 500


async def _may_do_all(admin: client.Client, user: str) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {
        "metadata": {"name": f"{user}-all"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    with contextlib.suppress(errors.AlreadyExists):
        await admin.raw("POST", path, body=json.dumps(binding).encode())
