"""A cache under faults: the API server killed and stopped, etcd compacted, with concurrent writers.

`KILN_FAULT_SEED=N` repeats one storm.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hack.kube import cluster

from kilnwork.api import api_resources, meta
from kilnwork.kube import cache, client, config, errors, objects, reflector
from support import waiting

NS = "default"
KIND = api_resources.CONFIG_MAPS
ROUNDS = 4


@pytest.fixture
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """Run a control plane without watch caches, so that compaction reaches watches and pages."""
    flags = ["--watch-cache-sizes=configmaps#0"]
    settings = cluster.Settings(
        directory=tmp_path_factory.mktemp("storm"), controllers=(), extra={"kube-apiserver": flags}
    )
    running = cluster.Cluster(settings)
    running.start()
    yield running
    running.remove()


class Story:
    """Checks each notification of a subscriber: an object is added, then changed, then deleted."""

    def __init__(self) -> None:
        self.known: dict[objects.Key, str] = {}
        self.wrong: list[str] = []
        self.notified = 0

    def __call__(
        self, key: objects.Key, old: meta.Partial | None, new: meta.Partial | None
    ) -> None:
        self.notified += 1
        if (old is None) == (key in self.known):
            self.wrong.append(f"{key}: reported as {'new' if old is None else 'known'}")
        if new is None:
            self.known.pop(key, None)
            return
        version = objects.resource_version(new)
        if int(version) <= int(self.known.get(key, "0")):
            self.wrong.append(f"{key}: went back from {self.known[key]} to {version}")
        self.known[key] = version


async def _write(kube: client.Client, luck: random.Random, *, until: asyncio.Event) -> None:
    """Create, change and delete objects, whatever the server responds."""
    while not until.is_set():
        name = f"m{luck.randrange(60)}"
        with contextlib.suppress(errors.ApiError):
            match luck.randrange(3):
                case 0:
                    await kube.create(KIND, {"metadata": {"name": name}}, NS)
                case 1:
                    patch: dict[str, Any] = {"data": {"x": str(luck.random())}}
                    await kube.merge_patch(KIND, name, patch, NS)
                case _:
                    await kube.delete(KIND, name, NS)
        await asyncio.sleep(0)


def _strike(control_plane: cluster.Cluster, luck: random.Random) -> None:
    """Inject one fault, which is repaired when this returns."""
    match luck.randrange(3):
        case 0:
            control_plane.processes.kill("kube-apiserver")
            control_plane.compact()
            control_plane.start_part("kube-apiserver")
        case 1:
            control_plane.pause_part("kube-apiserver")
            control_plane.compact()
            control_plane.resume_part("kube-apiserver")
        case _:
            control_plane.compact()


@pytest.mark.timeout(180)
async def test_cache_equals_the_server_after_each_storm(
    control_plane: cluster.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("KILN_FAULT_SEED", "7"))
    luck = random.Random(seed)
    monkeypatch.setattr(client, "PAGE", 7)
    monkeypatch.setattr(client, "WATCH_S", 6)
    known: cache.Cache[meta.Partial] = cache.Cache()
    story, over = Story(), asyncio.Event()
    async with client.Client(config.load(control_plane.kubeconfig)) as kube:
        scope = reflector.Scope(namespace=NS)
        follower = reflector.Reflector(kube, KIND, meta.Partial, known, story, scope=scope)
        running = asyncio.create_task(follower.run())
        writers = [
            asyncio.create_task(_write(kube, random.Random(seed + n), until=over)) for n in range(4)
        ]
        for _ in range(ROUNDS):
            await asyncio.sleep(luck.random() * 1.5)
            await asyncio.to_thread(_strike, control_plane, luck)
        over.set()
        await asyncio.gather(*writers)
        await _like_server(kube, known)
        running.cancel()
    assert story.wrong == [], f"repeat with KILN_FAULT_SEED={seed}"
    assert story.known == {objects.key(o): objects.resource_version(o) for o in known.list()}
    assert story.notified > 0


async def _like_server(kube: client.Client, known: cache.Cache[meta.Partial]) -> None:
    async def same() -> bool:
        listed = await kube.list(KIND, NS, type=meta.Partial)
        theirs = {objects.key(o): objects.resource_version(o) for o in listed.items}
        return theirs == {objects.key(o): objects.resource_version(o) for o in known.list()}

    await waiting.wait_until_async(same, what="the cache like the server", timeout_s=90)
