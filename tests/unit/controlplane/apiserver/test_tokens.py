"""Service-account tokens: what a good one says, and that nothing else is taken."""

import base64
import hmac

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kilnwork.controlplane.apiserver import tokens
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def issuer(key: ec.EllipticCurvePrivateKey, clock: clocks.ManualClock) -> tokens.TokenIssuer:
    return tokens.TokenIssuer(key, clock=clock, new_uid=ids.new_uid)


def test_token_contains_account_and_audience(issuer: tokens.TokenIssuer) -> None:
    bound = tokens.Bound("Pod", "p", "pod-uid")
    claims = issuer.verify(issuer.mint("ns", "sa", uid="u", bound=bound).token)
    assert claims is not None
    assert (claims.namespace, claims.service_account, claims.service_account_uid) == (
        "ns",
        "sa",
        "u",
    )
    assert claims.bound == bound
    assert claims.audiences == (tokens.API_AUDIENCE,)


def test_claims_have_kubernetes_format(issuer: tokens.TokenIssuer) -> None:
    token = issuer.mint("ns", "sa", uid="u", seconds=600).token
    said = jwt.decode(token, options={"verify_signature": False})
    assert said["sub"] == "system:serviceaccount:ns:sa"
    assert said["kubernetes.io"] == {
        "namespace": "ns",
        "serviceaccount": {"name": "sa", "uid": "u"},
    }
    assert said["exp"] - said["iat"] == 600


def test_token_expires(issuer: tokens.TokenIssuer, clock: clocks.ManualClock) -> None:
    minted = issuer.mint("ns", "sa", uid="u", seconds=600)
    assert minted.expires == clock.wall() + 600
    clock.advance(599)
    assert issuer.verify(minted.token) is not None
    clock.advance(1)
    assert issuer.verify(minted.token) is None


def test_clock_set_back_a_little_is_tolerated(
    key: ec.EllipticCurvePrivateKey, clock: clocks.ManualClock
) -> None:
    token = (
        tokens.TokenIssuer(key, clock=clock, new_uid=ids.new_uid).mint("ns", "sa", uid="u").token
    )
    for back, taken in ((30, True), (90, False)):
        earlier = clocks.ManualClock(clock.wall() - back)
        found = tokens.TokenIssuer(key, clock=earlier, new_uid=ids.new_uid).verify(token)
        assert (found is not None) is taken


def test_other_audience_is_rejected(issuer: tokens.TokenIssuer) -> None:
    token = issuer.mint("ns", "sa", uid="u", audiences=["vault"]).token
    assert issuer.verify(token) is None
    assert issuer.verify(token, audience="vault") is not None


def test_other_key_is_rejected(issuer: tokens.TokenIssuer, clock: clocks.ManualClock) -> None:
    stranger = tokens.TokenIssuer(
        ec.generate_private_key(ec.SECP256R1()), clock=clock, new_uid=ids.new_uid
    )
    assert issuer.verify(stranger.mint("ns", "sa", uid="u").token) is None


def test_tokens_with_other_algorithms_are_rejected(
    issuer: tokens.TokenIssuer, key: ec.EllipticCurvePrivateKey
) -> None:
    """`none`, and HS256 with the public key as secret (CVE-2015-9235)."""
    _, payload, _ = issuer.mint("ns", "sa", uid="u").token.split(".")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def header(algorithm: str) -> str:
        return base64.urlsafe_b64encode(f'{{"alg":"{algorithm}"}}'.encode()).decode().strip("=")

    assert issuer.verify(f"{header('none')}.{payload}.") is None
    signed = f"{header('HS256')}.{payload}"
    mac = hmac.digest(public, signed.encode(), "sha256")
    signature = base64.urlsafe_b64encode(mac).decode().strip("=")
    assert issuer.verify(f"{signed}.{signature}") is None


@pytest.mark.parametrize(
    "change",
    [
        {"sub": "system:serviceaccount:ns:admin"},
        {"kubernetes.io": {}},
        {"kubernetes.io": "x"},
        {"iss": "other"},
        {"exp": "soon"},
    ],
)
def test_malformed_claims_are_rejected(
    issuer: tokens.TokenIssuer, key: ec.EllipticCurvePrivateKey, change: dict[str, object]
) -> None:
    claims = jwt.decode(issuer.mint("ns", "sa", uid="u").token, options={"verify_signature": False})
    assert issuer.verify(jwt.encode(claims, key, "ES256")) is not None
    assert issuer.verify(jwt.encode({**claims, **change}, key, "ES256")) is None


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "é.é.é", "." * 100])
def test_malformed_tokens_are_rejected(issuer: tokens.TokenIssuer, text: str) -> None:
    assert issuer.verify(text) is None


def test_repr_of_minted_token_hides_the_token(issuer: tokens.TokenIssuer) -> None:
    minted = issuer.mint("ns", "sa", uid="u")
    assert minted.token not in repr(minted)
