"""The Kubernetes client against the embedded API server, over TLS and with its kubeconfig."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources, kinds, meta, task
from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster
from kilnwork.kube import cache, client, config, errors, events, objects, reflector
from support import certificates, waiting

NS = "default"


async def _server(directory: Path, port: int = 0) -> cluster.ControlPlane:
    server = cluster.ControlPlane(
        cluster.ControlPlaneSettings(
            data_dir=directory, port=port, installed=embedded_crds.EXTENSIONS
        )
    )
    await server.start()
    return server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[cluster.ControlPlane]:
    server = await _server(tmp_path / "data")
    yield server
    await server.stop()


@pytest.fixture
async def kube(server: cluster.ControlPlane) -> AsyncIterator[client.Client]:
    async with client.Client(config.load(server.kubeconfig)) as kube:
        yield kube


@contextlib.asynccontextmanager
async def following(
    kube: client.Client, on_change: reflector.OnChange[dict[str, Any]] | None = None
) -> AsyncIterator[cache.Cache[dict[str, Any]]]:
    """Run a cache of the ConfigMaps of the namespace, kept up to date by a reflector."""
    known: cache.Cache[dict[str, Any]] = cache.Cache()
    scope = reflector.Scope(namespace=NS, label_selector="test=yes")
    follower = reflector.Reflector(
        kube, api_resources.CONFIG_MAPS, dict, known, on_change, scope=scope
    )
    running = asyncio.create_task(follower.run())
    try:
        await asyncio.wait_for(follower.synced.wait(), 30)
        yield known
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def _map(name: str, **data: str) -> meta.JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"test": "yes"}},
        "data": data,
    }


async def test_object_passes_all_verbs(kube: client.Client) -> None:
    made = await kube.create(
        kinds.TASKS, {"metadata": {"generateName": "t-"}, "spec": {"command": ["true"]}}
    )
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    assert name.startswith("t-")
    patched = await kube.merge_patch(
        kinds.TASKS, name, {"status": {"state": "Running"}}, subresource="status"
    )
    assert patched["metadata"]["generation"] == 1
    read = await kube.get(kinds.TASKS, name, type=task.Task)
    assert (read.spec.command, read.status.state) == (("true",), "Running")
    with pytest.raises(errors.Conflict):
        await kube.replace(kinds.TASKS, made)
    with pytest.raises(errors.Conflict):
        await kube.delete(kinds.TASKS, name, uid="another")
    await kube.delete(kinds.TASKS, name, uid=uid)
    with pytest.raises(errors.NotFound, match=f'tasks.kilnwork.dev "{name}" not found'):
        await kube.get(kinds.TASKS, name)


async def test_each_refusal_has_its_error_class(kube: client.Client) -> None:
    await kube.create(api_resources.CONFIG_MAPS, _map("a"))
    with pytest.raises(errors.AlreadyExists):
        await kube.create(api_resources.CONFIG_MAPS, _map("a"))
    with pytest.raises(errors.Invalid):
        await kube.create(api_resources.CONFIG_MAPS, _map("Not_A_Name"))
    with pytest.raises(errors.Expired):
        async for _ in kube.watch(api_resources.PODS, resource_version="99999999", type=dict):
            pass
    stranger = dataclasses.replace(kube.config, token="wrong")
    async with client.Client(stranger) as other:
        with pytest.raises(errors.Unauthorized):
            await other.list(api_resources.PODS, type=dict)
    fooled = dataclasses.replace(kube.config, ca_data=certificates.Authority().pem, ca_file=None)
    async with client.Client(fooled) as other:
        with pytest.raises(errors.Untrusted):
            await other.list(api_resources.PODS, type=dict)


async def test_pages_are_one_snapshot(kube: client.Client) -> None:
    for n in range(7):
        await kube.create(api_resources.CONFIG_MAPS, _map(f"m{n}"))
    names: list[str] = []
    pages = kube.pages(
        api_resources.CONFIG_MAPS, NS, type=meta.Partial, label_selector="test=yes", limit=3
    )
    async for page in pages:
        names += [item.metadata.name for item in page.items]
        if len(names) == 3:
            await kube.create(api_resources.CONFIG_MAPS, _map("m99"))
    assert names == [f"m{n}" for n in range(7)]


async def test_large_objects_pass_through_a_watch(kube: client.Client) -> None:
    big = "x" * 400_000
    async with following(kube) as known:
        await kube.create(api_resources.CONFIG_MAPS, _map("big", text=big))
        await waiting.wait_until_async(lambda: (NS, "big") in known, what="the object")
        found = known.get((NS, "big"))
        assert found is not None
        assert found["data"]["text"] == big


async def test_cache_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    reported: list[tuple[str, bool]] = []

    def on_change(key: objects.Key, old: object, new: object) -> None:
        reported.append((key[1], new is not None))

    server = await _server(tmp_path / "data")
    port = int(config.load(server.kubeconfig).server.rpartition(":")[2])
    async with client.Client(config.load(server.kubeconfig)) as kube:
        await kube.create(api_resources.CONFIG_MAPS, _map("before"))
        async with following(kube, on_change) as known:
            await server.stop()
            server = await _server(tmp_path / "data", port)
            await kube.create(api_resources.CONFIG_MAPS, _map("after"))
            await kube.delete(api_resources.CONFIG_MAPS, "before")
            await waiting.wait_until_async(
                lambda: (NS, "before") not in known and (NS, "after") in known, what="both changes"
            )
    await server.stop()
    assert reported == [("before", True), ("after", True), ("before", False)]


async def test_slow_reader_misses_no_change(kube: client.Client) -> None:
    def slow(*_: object) -> None:
        time.sleep(0.002)

    async def fill(worker: int) -> None:
        for n in range(60):
            name = f"m{worker}-{n % 20}"
            with contextlib.suppress(errors.AlreadyExists):
                await kube.create(api_resources.CONFIG_MAPS, _map(name))
            await kube.merge_patch(api_resources.CONFIG_MAPS, name, {"data": {"n": str(n)}})

    async with following(kube, slow) as known:
        await asyncio.gather(*(fill(worker) for worker in range(4)))
        listed = await kube.list(
            api_resources.CONFIG_MAPS, NS, type=dict, label_selector="test=yes"
        )
        expected = {objects.key(m): objects.resource_version(m) for m in listed.items}
        await waiting.wait_until_async(
            lambda: {objects.key(m): objects.resource_version(m) for m in known.list()} == expected,
            what="the cache like the server",
        )
        assert len(expected) == 80


async def test_kube_events_are_counted_on_the_server(kube: client.Client) -> None:
    recorder = events.Recorder(kube, component="test")
    await recorder.start()
    about = events.reference(
        api_resources.CONFIG_MAPS, {"metadata": {"name": "m", "namespace": NS}}
    )
    for _ in range(3):
        recorder.emit(about, events.WARNING, "Odd", "something is odd")
        assert await recorder.flush()
    await recorder.stop()
    listed = await kube.list(api_resources.EVENTS, NS, type=dict)
    assert [(e["reason"], e["count"]) for e in listed.items] == [("Odd", 3)]
