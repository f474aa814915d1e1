"""Whether a worker belongs to the cluster that it names."""

import asyncio
import base64

import pytest

from kilnwork.api import meta, task_cluster
from kilnwork.controllers import caches, errors, worker_verifier


def _caches(*, word: str = "sesame", owner: str = "u-1", leaving: bool = False) -> caches.Caches:
    known = caches.Caches()
    stamp = "2026-01-01T00:00:00Z" if leaving else None
    metadata = meta.ObjectMeta(name="c", namespace="ns", uid="u-1", deletion_timestamp=stamp)
    known.clusters.put(task_cluster.TaskCluster(metadata=metadata))
    reference = meta.OwnerReference(
        api_version="kilnwork.dev/v1alpha1",
        kind="TaskCluster",
        name="c",
        uid=owner,
        controller=True,
    )
    secret = meta.ObjectMeta(name="c-channel", namespace="ns", owner_references=(reference,))
    data = {"token": base64.b64encode(word.encode()).decode()}
    known.secrets.put(caches.Secret(metadata=secret, data=data))
    return known


@pytest.mark.parametrize(
    ("namespace", "cluster", "credential", "welcome"),
    [
        ("ns", "c", "sesame", True),
        ("ns", "c", "sesam", False),
        ("ns", "c", "", False),
        ("ns", "other", "sesame", False),
        ("other", "c", "sesame", False),
    ],
)
async def test_only_the_token_of_the_cluster_is_accepted(
    *, namespace: str, cluster: str, credential: str, welcome: bool
) -> None:
    verifier = worker_verifier.SecretVerifier(_caches())
    assert await verifier.verify(namespace, cluster, credential) is welcome


async def test_secret_of_another_owner_is_not_accepted() -> None:
    verifier = worker_verifier.SecretVerifier(_caches(owner="u-0"))
    with pytest.raises(errors.NotYet):
        await verifier.verify("ns", "c", "sesame")


async def test_empty_token_is_refused() -> None:
    assert not await worker_verifier.SecretVerifier(_caches(word="")).verify("ns", "c", "")


async def test_cluster_being_deleted_refuses_workers() -> None:
    verifier = worker_verifier.SecretVerifier(_caches(leaving=True))
    assert not await verifier.verify("ns", "c", "sesame")


async def test_check_waits_until_the_caches_are_complete() -> None:
    synced = asyncio.Event()
    verifier = worker_verifier.SecretVerifier(_caches(), synced=[synced])
    asyncio.get_running_loop().call_soon(synced.set)
    assert await verifier.verify("ns", "c", "sesame")
