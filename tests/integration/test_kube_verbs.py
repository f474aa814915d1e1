"""Elections, finalizers, apply, impersonation: our client on the embedded API server."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import api_resources, meta
from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster
from kilnwork.kube import client, config, election, errors, finalizers
from support import waiting

NS = "default"


@pytest.fixture
async def kube(tmp_path: Path) -> AsyncIterator[client.Client]:
    server = cluster.ControlPlane(
        cluster.ControlPlaneSettings(
            data_dir=tmp_path / "data", port=0, installed=embedded_crds.EXTENSIONS
        )
    )
    await server.start()
    async with client.Client(config.load(server.kubeconfig)) as kube:
        yield kube
    await server.stop()


def _candidate(kube: client.Client, identity: str) -> election.Elector:
    settings = election.ElectionSettings(
        namespace=NS, name="lease", identity=identity, lease_s=15, renew_s=10, retry_s=0.05
    )
    return election.Elector(kube, settings)


async def test_candidates_lead_one_after_the_other(kube: client.Client) -> None:
    first, second = _candidate(kube, "first"), _candidate(kube, "second")
    one = await first.acquire()
    waits = asyncio.create_task(second.acquire())
    await waiting.wait_until_async(lambda: second.holder == "first", what="the second looks")
    await first.stop()
    two = await asyncio.wait_for(waits, 10)  # the lease would last 15
    assert (one.epoch, two.epoch, one.holds(), two.holds()) == (1, 2, False, True)
    await second.stop()
    lease = await kube.get(api_resources.LEASES, "lease", NS)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 2)


async def test_lease_can_be_taken_by_force(kube: client.Client) -> None:
    elector = _candidate(kube, "first")
    term = await elector.acquire()

    async def taken() -> bool:
        patch = {"spec": {"holderIdentity": "stranger", "leaseTransitions": 9}}
        await kube.merge_patch(api_resources.LEASES, "lease", patch, NS)
        return not term.holds()

    await waiting.wait_until_async(taken, what="the end of the term")
    assert await term.lost() == "stranger holds the Lease now"
    await elector.stop()


def _map(**data: str) -> meta.JsonObject:
    return {"metadata": {"name": "m", "namespace": NS}, "data": data}


async def test_finalizer_holds_an_object(kube: client.Client) -> None:
    made = await kube.create(api_resources.CONFIG_MAPS, _map())
    await kube.merge_patch(api_resources.CONFIG_MAPS, "m", {"data": {"by": "another"}}, NS)
    await finalizers.add(kube, api_resources.CONFIG_MAPS, made, finalizer="test.dev/x")
    await kube.delete(api_resources.CONFIG_MAPS, "m", NS)
    going = await kube.get(api_resources.CONFIG_MAPS, "m", NS, type=meta.Partial)
    assert going.metadata.deletion_timestamp is not None
    await finalizers.remove(kube, api_resources.CONFIG_MAPS, going, finalizer="test.dev/x")
    with pytest.raises(errors.NotFound):
        await kube.get(api_resources.CONFIG_MAPS, "m", NS)


async def test_apply_tracks_field_owners(kube: client.Client) -> None:
    await kube.apply(api_resources.CONFIG_MAPS, _map(a="1", b="1"), manager="one")
    with pytest.raises(errors.Conflict, match=r'conflict with "one"'):
        await kube.apply(api_resources.CONFIG_MAPS, _map(a="2"), manager="two")
    await kube.apply(api_resources.CONFIG_MAPS, _map(a="2"), manager="two", force=True)
    left = await kube.apply(api_resources.CONFIG_MAPS, _map(), manager="one")
    assert left["data"] == {"a": "2"}


async def test_impersonation_acts_as_another_user(kube: client.Client) -> None:
    jane = config.Impersonation(user="jane", groups=("developers",))
    async with client.Client(dataclasses.replace(kube.config, impersonate=jane)) as other:
        with pytest.raises(errors.Forbidden, match='User "jane" cannot list resource "pods"'):
            await other.list(api_resources.PODS, NS, type=dict)
