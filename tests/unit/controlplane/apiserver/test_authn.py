"""Who is asking: certificates, the admin token, and tokens that die with what they belong to."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kilnwork.api import resource
from kilnwork.controlplane.apiserver import authn, tokens
from kilnwork.kit import asgi, ids
from kilnwork.kit import clock as clocks
from support import memory_lookup

ADMIN_TOKEN = "0123456789abcdef"


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
def minter(clock: clocks.ManualClock) -> tokens.TokenIssuer:
    key = ec.generate_private_key(ec.SECP256R1())
    return tokens.TokenIssuer(key, clock=clock, new_uid=ids.new_uid)


@pytest.fixture
def stored() -> memory_lookup.MemoryLookup:
    account = {"metadata": {"name": "sa", "namespace": "ns", "uid": "sa-uid"}}
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"}}
    return memory_lookup.MemoryLookup((resource.SERVICE_ACCOUNTS, account), (resource.PODS, pod))


@pytest.fixture
def checked(minter: tokens.TokenIssuer, stored: memory_lookup.MemoryLookup) -> authn.Authenticator:
    return authn.Authenticator(minter, admin_token=ADMIN_TOKEN, lookup=stored)


def sent(headers: list[tuple[bytes, bytes]], certificate: Any = None) -> asgi.Request:
    async def receive() -> asgi.Message:
        raise AssertionError("who comes is not in the body")

    state = {"peer_certificate": certificate}
    scope = {"method": "GET", "path": "/", "headers": headers, "state": state}
    return asgi.Request(scope, receive)


def bearer(token: str) -> asgi.Request:
    return sent([(b"host", b"x"), (b"authorization", f"Bearer {token}".encode())])


async def test_admin_token(checked: authn.Authenticator) -> None:
    user = await checked.authenticate(bearer(ADMIN_TOKEN))
    assert user is not None
    assert user.is_admin
    assert (user.name, user.groups) == (
        "kubernetes-admin",
        ("system:masters", "system:authenticated"),
    )


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", f"Bearer {ADMIN_TOKEN[:-1]}".encode())],
        [(b"authorization", f"Basic {ADMIN_TOKEN}".encode())],
        [(b"authorization", ADMIN_TOKEN.encode())],
        [(b"authorization", b"Bearer \xff\xfe")],
    ],
)
async def test_invalid_credentials_give_no_user(
    checked: authn.Authenticator, headers: list[tuple[bytes, bytes]]
) -> None:
    assert await checked.authenticate(sent(headers)) is None


async def test_service_account_has_name_groups_and_pod(
    checked: authn.Authenticator, minter: tokens.TokenIssuer
) -> None:
    bound = tokens.Bound("Pod", "p", "pod-uid")
    user = await checked.authenticate(
        bearer(minter.mint("ns", "sa", uid="sa-uid", bound=bound).token)
    )
    assert user is not None
    assert user.name == "system:serviceaccount:ns:sa"
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:ns",
        "system:authenticated",
    )
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert not user.is_admin


async def test_token_dies_with_its_account(
    checked: authn.Authenticator, minter: tokens.TokenIssuer, stored: memory_lookup.MemoryLookup
) -> None:
    headers = bearer(minter.mint("ns", "sa", uid="sa-uid").token)
    assert await checked.authenticate(headers) is not None
    made_again = {"metadata": {"name": "sa", "namespace": "ns", "uid": "another"}}
    stored.add(resource.SERVICE_ACCOUNTS, made_again)
    assert await checked.authenticate(headers) is None
    stored.remove(resource.SERVICE_ACCOUNTS, "ns", "sa")
    assert await checked.authenticate(headers) is None


async def test_token_dies_with_its_pod(
    checked: authn.Authenticator, minter: tokens.TokenIssuer, stored: memory_lookup.MemoryLookup
) -> None:
    bound = tokens.Bound("Pod", "p", "pod-uid")
    headers = bearer(minter.mint("ns", "sa", uid="sa-uid", bound=bound).token)
    assert await checked.authenticate(headers) is not None
    stored.remove(resource.PODS, "ns", "p")
    assert await checked.authenticate(headers) is None


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (None, resource.SERVICE_ACCOUNTS),
        ("Pod", resource.PODS),
        ("Secret", resource.SECRETS),
        ("Node", resource.NODES),
    ],
)
async def test_a_token_outlives_a_deletion_by_a_minute(
    clock: clocks.ManualClock, minter: tokens.TokenIssuer, kind: str | None, held: resource.Resource
) -> None:
    """Though a finalizer holds the account, or what the token is bound to, for longer."""
    name = "sa" if kind is None else "it"
    namespace = {"namespace": "ns"} if held.namespaced else {}
    found = {"metadata": {"name": name, **namespace, "uid": f"{name}-uid"}}
    account = {"metadata": {"name": "sa", "namespace": "ns", "uid": "sa-uid"}}
    stored = memory_lookup.MemoryLookup((resource.SERVICE_ACCOUNTS, account), (held, found))
    checked = authn.Authenticator(minter, admin_token=ADMIN_TOKEN, lookup=stored)
    bound = None if kind is None else tokens.Bound(kind, "it", "it-uid")
    token = minter.mint("ns", "sa", uid="sa-uid", bound=bound).token
    deleted = clocks.rfc3339(clock.wall())
    held_object = {"metadata": {**found["metadata"], "deletionTimestamp": deleted}}
    stored.add(held, held_object)
    clock.advance(58)
    assert await checked.authenticate(bearer(token)) is not None
    clock.advance(4)
    assert await checked.authenticate(bearer(token)) is None


async def test_remembered_token_still_ends(
    checked: authn.Authenticator, minter: tokens.TokenIssuer, clock: clocks.ManualClock
) -> None:
    headers = bearer(minter.mint("ns", "sa", uid="sa-uid", seconds=600).token)
    assert await checked.authenticate(headers) is not None
    clock.advance(600)
    assert await checked.authenticate(headers) is None


async def test_remembered_token_is_not_good_for_another_audience(
    checked: authn.Authenticator, minter: tokens.TokenIssuer
) -> None:
    token = minter.mint("ns", "sa", uid="sa-uid", audiences=["vault"]).token
    assert checked.token_user(token, audience="vault") is not None
    assert checked.token_user(token) is None


async def test_certificate_gives_name_and_groups(checked: authn.Authenticator) -> None:
    certificate = {
        "subject": (
            (("organizationName", "system:nodes"),),
            (("commonName", "system:node:local"),),
        )
    }
    user = await checked.authenticate(sent([], certificate))
    assert user == authn.User("system:node:local", groups=("system:nodes", "system:authenticated"))
    assert await checked.authenticate(sent([], {})) is None
    headers = [(b"authorization", f"Bearer {ADMIN_TOKEN}".encode())]
    assert await checked.authenticate(sent(headers, {"subject": ()})) == authn.ADMIN
