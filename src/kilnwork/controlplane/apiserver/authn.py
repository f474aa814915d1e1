"""Authentication: by client certificate, admin token, or service-account token.

Used once per request, before `authz`. Responses never say why a credential was refused, and no
token is logged. The channel has a verifier of its own for its credentials.
"""

import hashlib
import hmac
from collections import OrderedDict

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import lookup_interface as lookups
from kilnwork.controlplane.apiserver import tokens as tokens_
from kilnwork.kit import asgi

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
SERVICE_ACCOUNTS = "system:serviceaccounts"

_REMEMBERED = 4096
"""Size of the cache of verified tokens, since a verification takes 100 µs. Its keys are hashes of
the tokens."""


class User(msgspec.Struct, frozen=True):
    """Authenticated identity of a client.

    `extra` holds facts of the credential, such as the Pod of a token.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        """Return whether the user is a member of `system:masters`, which may do everything."""
        return MASTERS in self.groups


ADMIN = User("kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))
SERVER = User("system:apiserver", groups=(MASTERS, AUTHENTICATED))
"""The server itself: garbage collector, binder, namespace clean-up."""

_BOUND_KINDS = {
    "Pod": api_resources.PODS,
    "Secret": api_resources.SECRETS,
    "Node": api_resources.NODES,
}


class Authenticator:
    """Authenticator of requests: it verifies their credentials and returns their `User`."""

    def __init__(
        self, tokens: tokens_.TokenIssuer, *, admin_token: str, lookup: lookups.Lookup
    ) -> None:
        self._tokens = tokens
        self._admin_digest = hashlib.sha256(admin_token.encode()).digest()
        self._lookup = lookup
        self._remembered: OrderedDict[bytes, tokens_.Claims] = OrderedDict()

    async def authenticate(self, request: asgi.Request) -> User | None:
        """Return the user of a request.

        None when the request has no valid credential; the response is then a 401.
        """
        # A client certificate comes before a token, as in the authenticator of Kubernetes.
        subject = request.client_subject
        if subject is not None:
            name, organizations = subject
            return User(name, groups=(*organizations, AUTHENTICATED))
        token = request.bearer_token
        return self.token_user(token) if token else None

    def token_user(self, token: str, *, audience: str = tokens_.API_AUDIENCE) -> User | None:
        """Return the user of a bearer token, or None if the token is not valid."""
        digest = hashlib.sha256(token.encode()).digest()
        # Hashes of equal length, so that the time of the comparison reveals nothing.
        if hmac.compare_digest(digest, self._admin_digest):
            return ADMIN
        claims = self._claims(token, digest, audience=audience)
        # Checked each time: the account or the Pod of a cached token may be gone.
        if claims is None or not self._is_still_valid(claims):
            return None
        return _service_account(claims)

    def _claims(self, token: str, digest: bytes, *, audience: str) -> tokens_.Claims | None:
        known = self._remembered.get(digest)
        # Only the signature is not verified again; audience and times depend on the request.
        if known is not None and audience in known.audiences and self._tokens.in_time(known):
            self._remembered.move_to_end(digest)
            return known
        claims = self._tokens.verify(token, audience=audience)
        if claims is not None:
            self._remembered[digest] = claims
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return claims

    def _is_still_valid(self, claims: tokens_.Claims) -> bool:
        """Return whether the account and the bound object of a token still exist.

        As pkg/serviceaccount/claims.go: a finalizer that holds a deleted object does not keep the
        token valid (see `tokens.TokenIssuer.outlives`).
        """
        account = self._lookup.get(
            api_resources.SERVICE_ACCOUNTS, claims.namespace, claims.service_account
        )
        if not self._is_alive(account, claims.service_account_uid):
            return False
        if claims.bound is None:
            return True
        kind = _BOUND_KINDS[claims.bound.kind]
        namespace = claims.namespace if kind.namespaced else None
        bound = self._lookup.get(kind, namespace, claims.bound.name)
        return self._is_alive(bound, claims.bound.uid)

    def _is_alive(self, obj: meta.JsonObject | None, uid: str) -> bool:
        """Return whether an object still has the given uid and its deletion is not overdue."""
        if obj is None or obj["metadata"].get("uid") != uid:
            return False
        return self._tokens.outlives(obj["metadata"])


def _service_account(claims: tokens_.Claims) -> User:
    extra: dict[str, tuple[str, ...]] = {}
    if claims.token_id:
        # Shows which token was used, without revealing it (KEP-4193).
        extra["authentication.kubernetes.io/credential-id"] = (f"JTI={claims.token_id}",)
    if claims.bound is not None:
        kind = claims.bound.kind.lower()
        extra[f"authentication.kubernetes.io/{kind}-name"] = (claims.bound.name,)
        extra[f"authentication.kubernetes.io/{kind}-uid"] = (claims.bound.uid,)
    return User(
        tokens_.user_name(claims.namespace, claims.service_account),
        uid=claims.service_account_uid,
        groups=(SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{claims.namespace}", AUTHENTICATED),
        extra=extra,
    )
