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
def made(key: ec.EllipticCurvePrivateKey, clock: clocks.ManualClock) -> tokens.TokenIssuer:
    return tokens.TokenIssuer(key, clock=clock, new_uid=ids.new_uid)


def test_token_says_who_and_for_whom(made: tokens.TokenIssuer) -> None:
    bound = tokens.Bound("Pod", "p", "pod-uid")
    claims = made.verify(made.mint("ns", "sa", uid="u", bound=bound).token)
    assert claims is not None
    assert (claims.namespace, claims.service_account, claims.service_account_uid) == (
        "ns",
        "sa",
        "u",
    )
    assert claims.bound == bound
    assert claims.audiences == (tokens.API_AUDIENCE,)


def test_claims_have_the_form_of_kubernetes(made: tokens.TokenIssuer) -> None:
    token = made.mint("ns", "sa", uid="u", seconds=600).token
    said = jwt.decode(token, options={"verify_signature": False})
    assert said["sub"] == "system:serviceaccount:ns:sa"
    assert said["kubernetes.io"] == {
        "namespace": "ns",
        "serviceaccount": {"name": "sa", "uid": "u"},
    }
    assert said["exp"] - said["iat"] == 600


def test_token_ends(made: tokens.TokenIssuer, clock: clocks.ManualClock) -> None:
    minted = made.mint("ns", "sa", uid="u", seconds=600)
    assert minted.expires == clock.wall() + 600
    clock.advance(599)
    assert made.verify(minted.token) is not None
    clock.advance(1)
    assert made.verify(minted.token) is None


def test_clock_set_back_a_little_is_forgiven(
    key: ec.EllipticCurvePrivateKey, clock: clocks.ManualClock
) -> None:
    token = (
        tokens.TokenIssuer(key, clock=clock, new_uid=ids.new_uid).mint("ns", "sa", uid="u").token
    )
    for back, taken in ((30, True), (90, False)):
        earlier = clocks.ManualClock(clock.wall() - back)
        found = tokens.TokenIssuer(key, clock=earlier, new_uid=ids.new_uid).verify(token)
        assert (found is not None) is taken


def test_other_audience_is_refused(made: tokens.TokenIssuer) -> None:
    token = made.mint("ns", "sa", uid="u", audiences=["vault"]).token
    assert made.verify(token) is None
    assert made.verify(token, audience="vault") is not None


def test_other_key_is_refused(made: tokens.TokenIssuer, clock: clocks.ManualClock) -> None:
    stranger = tokens.TokenIssuer(
        ec.generate_private_key(ec.SECP256R1()), clock=clock, new_uid=ids.new_uid
    )
    assert made.verify(stranger.mint("ns", "sa", uid="u").token) is None


def test_tokens_that_choose_their_algorithm_are_refused(
    made: tokens.TokenIssuer, key: ec.EllipticCurvePrivateKey
) -> None:
    """`none`, and HS256 with the public key as secret (CVE-2015-9235)."""
    _, payload, _ = made.mint("ns", "sa", uid="u").token.split(".")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def header(algorithm: str) -> str:
        return base64.urlsafe_b64encode(f'{{"alg":"{algorithm}"}}'.encode()).decode().strip("=")

    assert made.verify(f"{header('none')}.{payload}.") is None
    signed = f"{header('HS256')}.{payload}"
    mac = hmac.digest(public, signed.encode(), "sha256")
    signature = base64.urlsafe_b64encode(mac).decode().strip("=")
    assert made.verify(f"{signed}.{signature}") is None


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
def test_claims_of_another_shape_are_refused(
    made: tokens.TokenIssuer, key: ec.EllipticCurvePrivateKey, change: dict[str, object]
) -> None:
    claims = jwt.decode(made.mint("ns", "sa", uid="u").token, options={"verify_signature": False})
    assert made.verify(jwt.encode(claims, key, "ES256")) is not None
    assert made.verify(jwt.encode({**claims, **change}, key, "ES256")) is None


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "é.é.é", "." * 100])
def test_nonsense_is_refused(made: tokens.TokenIssuer, text: str) -> None:
    assert made.verify(text) is None


def test_a_minted_token_does_not_show_itself(made: tokens.TokenIssuer) -> None:
    minted = made.mint("ns", "sa", uid="u")
    assert minted.token not in repr(minted)
