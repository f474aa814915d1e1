"""Only the token in the pond's own Secret authenticates an agent."""

import asyncio
import base64

import pytest

from kilnwork.api import data_pond, meta
from kilnwork.controllers import caches, errors
from kilnwork.controllers.data_pond import agent_verifier, pods

OWNER = meta.OwnerReference(
    api_version="v1", kind="DataPond", name="lake", uid="u1", controller=True
)
TOKEN = base64.b64encode(b"secret").decode()


def known(
    *, token: str | None = TOKEN, uid: str = "u1", deleted: str | None = None
) -> agent_verifier.PondVerifier:
    made = caches.Caches()
    metadata = meta.ObjectMeta(name="lake", namespace="quant", uid=uid, deletion_timestamp=deleted)
    made.ponds.put(data_pond.DataPond(metadata=metadata, spec=data_pond.DataPondSpec()))
    if token is not None:
        named = meta.ObjectMeta(
            name=pods.secret_name("lake"), namespace="quant", owner_references=(OWNER,)
        )
        made.secrets.put(caches.Secret(metadata=named, data={"token": token}))
    done = asyncio.Event()
    done.set()
    return agent_verifier.PondVerifier(made, synced=[done])


@pytest.mark.parametrize(
    ("credential", "good"), [("secret", True), ("Secret", False), ("", False), (TOKEN, False)]
)
async def test_only_the_token_of_the_pond_is_accepted(credential: str, *, good: bool) -> None:
    assert await known().verify("quant", "lake", credential) is good


async def test_credential_for_an_unknown_pond_is_refused() -> None:
    assert not await known().verify("quant", "sea", "secret")


@pytest.mark.parametrize("token", ["", "no base64!"])
async def test_broken_secret_refuses_all_credentials(token: str) -> None:
    assert not await known(token=token).verify("quant", "lake", "")


async def test_secret_of_an_earlier_pond_is_ignored() -> None:
    with pytest.raises(errors.NotYet):
        await known(uid="u2").verify("quant", "lake", "secret")
    with pytest.raises(errors.NotYet):
        await known(token=None).verify("quant", "lake", "secret")


async def test_deleted_pond_without_finalizer_refuses_credentials() -> None:
    deleted = known(deleted="2026-01-01T00:00:00Z")
    assert not await deleted.verify("quant", "lake", "secret")
