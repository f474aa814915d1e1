"""Who is asking: certificates, the admin token, and tokens that die with what they belong to."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import authn, tokens
from kilnwork.kit import asgi, ids
from kilnwork.kit import clock as clocks
from support import memory_lookup

ADMIN_TOKEN = "0123456789abcdef"


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
def token_issuer(clock: clocks.ManualClock) -> tokens.TokenIssuer:
    key = ec.generate_private_key(ec.SECP256R1())
    return tokens.TokenIssuer(key, clock=clock, new_uid=ids.new_uid)


@pytest.fixture
def stored_objects() -> memory_lookup.MemoryLookup:
    account = {"metadata": {"name": "sa", "namespace": "ns", "uid": "sa-uid"}}
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"}}
    return memory_lookup.MemoryLookup(
        (api_resources.SERVICE_ACCOUNTS, account), (api_resources.PODS, pod)
    )


@pytest.fixture
def authenticator(
    token_issuer: tokens.TokenIssuer, stored_objects: memory_lookup.MemoryLookup
) -> authn.Authenticator:
    return authn.Authenticator(token_issuer, admin_token=ADMIN_TOKEN, lookup=stored_objects)


def request_with(headers: list[tuple[bytes, bytes]], certificate: Any = None) -> asgi.Request:
    async def receive() -> asgi.Message:
        raise AssertionError("who comes is not in the body")

    state = {"peer_certificate": certificate}
    scope = {"method": "GET", "path": "/", "headers": headers, "state": state}
    return asgi.Request(scope, receive)


def request_with_token(token: str) -> asgi.Request:
    return request_with([(b"host", b"x"), (b"authorization", f"Bearer {token}".encode())])


async def test_admin_token_authenticates_the_admin(authenticator: authn.Authenticator) -> None:
    user = await authenticator.authenticate(request_with_token(ADMIN_TOKEN))
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
    authenticator: authn.Authenticator, headers: list[tuple[bytes, bytes]]
) -> None:
    assert await authenticator.authenticate(request_with(headers)) is None


async def test_service_account_user_has_name_groups_and_pod(
    authenticator: authn.Authenticator, token_issuer: tokens.TokenIssuer
) -> None:
    bound = tokens.Bound("Pod", "p", "pod-uid")
    user = await authenticator.authenticate(
        request_with_token(token_issuer.mint("ns", "sa", uid="sa-uid", bound=bound).token)
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


async def test_token_is_invalid_after_deletion_of_its_account(
    authenticator: authn.Authenticator,
    token_issuer: tokens.TokenIssuer,
    stored_objects: memory_lookup.MemoryLookup,
) -> None:
    headers = request_with_token(token_issuer.mint("ns", "sa", uid="sa-uid").token)
    assert await authenticator.authenticate(headers) is not None
    made_again = {"metadata": {"name": "sa", "namespace": "ns", "uid": "another"}}
    stored_objects.add(api_resources.SERVICE_ACCOUNTS, made_again)
    assert await authenticator.authenticate(headers) is None
    stored_objects.remove(api_resources.SERVICE_ACCOUNTS, "ns", "sa")
    assert await authenticator.authenticate(headers) is None


async def test_token_is_invalid_after_deletion_of_its_pod(
    authenticator: authn.Authenticator,
    token_issuer: tokens.TokenIssuer,
    stored_objects: memory_lookup.MemoryLookup,
) -> None:
    bound = tokens.Bound("Pod", "p", "pod-uid")
    headers = request_with_token(token_issuer.mint("ns", "sa", uid="sa-uid", bound=bound).token)
    assert await authenticator.authenticate(headers) is not None
    stored_objects.remove(api_resources.PODS, "ns", "p")
    assert await authenticator.authenticate(headers) is None


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (None, api_resources.SERVICE_ACCOUNTS),
        ("Pod", api_resources.PODS),
        ("Secret", api_resources.SECRETS),
        ("Node", api_resources.NODES),
    ],
)
async def test_token_is_valid_for_a_minute_after_deletion(
    clock: clocks.ManualClock,
    token_issuer: tokens.TokenIssuer,
    kind: str | None,
    held: api_resources.Resource,
) -> None:
    """Though a finalizer holds the account, or what the token is bound to, for longer."""
    name = "sa" if kind is None else "it"
    namespace = {"namespace": "ns"} if held.namespaced else {}
    found = {"metadata": {"name": name, **namespace, "uid": f"{name}-uid"}}
    account = {"metadata": {"name": "sa", "namespace": "ns", "uid": "sa-uid"}}
    stored_objects = memory_lookup.MemoryLookup(
        (api_resources.SERVICE_ACCOUNTS, account), (held, found)
    )
    authenticator = authn.Authenticator(
        token_issuer, admin_token=ADMIN_TOKEN, lookup=stored_objects
    )
    bound = None if kind is None else tokens.Bound(kind, "it", "it-uid")
    token = token_issuer.mint("ns", "sa", uid="sa-uid", bound=bound).token
    deleted = clocks.rfc3339(clock.wall())
    held_object = {"metadata": {**found["metadata"], "deletionTimestamp": deleted}}
    stored_objects.add(held, held_object)
    clock.advance(58)
    assert await authenticator.authenticate(request_with_token(token)) is not None
    clock.advance(4)
    assert await authenticator.authenticate(request_with_token(token)) is None


async def test_cached_token_still_expires(
    authenticator: authn.Authenticator, token_issuer: tokens.TokenIssuer, clock: clocks.ManualClock
) -> None:
    headers = request_with_token(token_issuer.mint("ns", "sa", uid="sa-uid", seconds=600).token)
    assert await authenticator.authenticate(headers) is not None
    clock.advance(600)
    assert await authenticator.authenticate(headers) is None


async def test_cached_token_is_invalid_for_another_audience(
    authenticator: authn.Authenticator, token_issuer: tokens.TokenIssuer
) -> None:
    token = token_issuer.mint("ns", "sa", uid="sa-uid", audiences=["vault"]).token
    assert authenticator.token_user(token, audience="vault") is not None
    assert authenticator.token_user(token) is None


async def test_certificate_gives_name_and_groups(authenticator: authn.Authenticator) -> None:
    certificate = {
        "subject": (
            (("organizationName", "system:nodes"),),
            (("commonName", "system:node:local"),),
        )
    }
    user = await authenticator.authenticate(request_with([], certificate))
    assert user == authn.User("system:node:local", groups=("system:nodes", "system:authenticated"))
    assert await authenticator.authenticate(request_with([], {})) is None
    headers = [(b"authorization", f"Bearer {ADMIN_TOKEN}".encode())]
    assert await authenticator.authenticate(request_with(headers, {"subject": ()})) == authn.ADMIN
