"""Service-account tokens: minting and verification.

Tokens are JSON Web Tokens signed with ES256, with the claims of Kubernetes (KEP-1205), so that
clients can read them as usual. Used by the API server's `serviceaccounts/token` and by `authn`.
Tokens are not stored; `authn` checks that the object a token is bound to still exists with the same
uid. The admin token, a random string, is not handled here; neither are tokens of the channel.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

ISSUER = "https://kubernetes.default.svc"
API_AUDIENCE = ISSUER
"""Audience of tokens for the API server itself, and the default of a TokenRequest."""

MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
DEFAULT_SECONDS = 3600
"""Lifetimes in seconds, as in the TokenRequest of kube-apiserver: at least ten minutes, at most
2^32 seconds, by default one hour."""

_ALGORITHM = "ES256"
_LEEWAY_S = 60.0
"""Seconds that `nbf` may be in the future: a machine's clock may be set back between two starts.
Also the time that a token stays valid after its bound object was deleted, if a finalizer still
keeps that object."""


class Bound(msgspec.Struct, frozen=True):
    """The object that a token is bound to. The token is invalid once the object is removed, or 60 s
    after its deletion if a finalizer keeps it.
    """

    kind: str
    name: str
    uid: str


class Minted(msgspec.Struct, frozen=True):
    """A new token with the time of its expiry."""

    token: str
    expires: float
    """Seconds since the epoch."""

    def __repr__(self) -> str:
        return f"Minted(token=…, expires={self.expires})"


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a valid token. Times are seconds since the epoch."""

    namespace: str
    service_account: str
    service_account_uid: str
    token_id: str
    audiences: tuple[str, ...]
    issued: float
    expires: float
    bound: Bound | None = None


class TokenIssuer:
    """Mints and verifies tokens with one key (`Pki.signing_key`)."""

    def __init__(
        self, key: ec.EllipticCurvePrivateKey, *, clock: clocks.Clock, new_uid: ids.NewUid
    ) -> None:
        self._key = key
        self._public = key.public_key()
        self._key_id = _key_id(self._public)
        self._clock = clock
        self._new_uid = new_uid

    def mint(
        self,
        namespace: str,
        service_account: str,
        *,
        uid: str,
        audiences: Sequence[str] = (),
        seconds: float = DEFAULT_SECONDS,
        bound: Bound | None = None,
    ) -> Minted:
        """Return a new token for the account with `uid`.

        `audiences` defaults to this API server.
        """
        now = int(self._clock.wall())
        expires = now + int(seconds)
        private: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": service_account, "uid": uid},
        }
        if bound is not None:
            private[bound.kind.lower()] = {"name": bound.name, "uid": bound.uid}
        claims = {
            "aud": list(audiences) or [API_AUDIENCE],
            "exp": expires,
            "iat": now,
            "nbf": now,
            "iss": ISSUER,
            "jti": self._new_uid(),
            "sub": user_name(namespace, service_account),
            "kubernetes.io": private,
        }
        token = jwt.encode(claims, self._key, _ALGORITHM, headers={"kid": self._key_id})
        return Minted(token, float(expires))

    def verify(self, token: str, *, audience: str = API_AUDIENCE) -> Claims | None:
        """Return the claims of a token, or None if the token is not valid.

        Signature, issuer, audience, times and format are checked.
        """
        try:
            claims = jwt.decode(
                token,
                self._public,
                # Fixed: a token must not choose `none`, or an HMAC with the public key.
                algorithms=[_ALGORITHM],
                issuer=ISSUER,
                audience=audience,
                options={
                    "require": ["exp", "nbf", "iss", "aud", "sub"],
                    "verify_exp": False,  # by our clock, below
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            parsed = _parse(claims)
        except (jwt.InvalidTokenError, KeyError, TypeError, ValueError, AttributeError):
            return None
        return parsed if self.in_time(parsed) else None

    def in_time(self, claims: Claims) -> bool:
        """Return whether the token of `claims` is valid now."""
        return claims.issued - _LEEWAY_S <= self._clock.wall() < claims.expires

    def outlives(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether tokens that are bound to the object of `metadata` are still valid.

        They are if the object is not deleted, or was deleted at most `_LEEWAY_S` ago.
        """
        deleted = metadata.get("deletionTimestamp")
        if not deleted:
            return True
        return clocks.parse_rfc3339(deleted) >= self._clock.wall() - _LEEWAY_S


def user_name(namespace: str, service_account: str) -> str:
    """Return the user of an account's tokens: `system:serviceaccount:NAMESPACE:NAME`."""
    return f"system:serviceaccount:{namespace}:{service_account}"


def _parse(claims: dict[str, Any]) -> Claims:
    private = claims["kubernetes.io"]
    account = private["serviceaccount"]
    namespace, name = str(private["namespace"]), str(account["name"])
    if claims["sub"] != user_name(namespace, name):
        raise ValueError("subject and account differ")
    audiences = claims["aud"]
    return Claims(
        namespace=namespace,
        service_account=name,
        service_account_uid=str(account["uid"]),
        token_id=str(claims.get("jti", "")),
        audiences=(audiences,) if isinstance(audiences, str) else tuple(audiences),
        issued=float(claims["nbf"]),
        expires=float(claims["exp"]),
        bound=_bound(private),
    )


def _bound(private: dict[str, Any]) -> Bound | None:
    for kind in ("Pod", "Secret", "Node"):
        claim = private.get(kind.lower())
        if claim is not None:
            return Bound(kind, str(claim["name"]), str(claim["uid"]))
    return None


def _key_id(public: ec.EllipticCurvePublicKey) -> str:
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    # Derived from the key, so that it stays the same after a restart.
    return hashlib.sha256(der).hexdigest()[:32]
