"""Acting as somebody else: the `Impersonate-*` headers behind `kubectl --as`.

Used by `app` after authentication. Only who may `impersonate` the user (and each group) gets
through; the rights that count from then on are those of the other.
"""

from collections.abc import Mapping

from kilnwork.api import resource
from kilnwork.controlplane.apiserver import authn, authz, statuses

_USERS = resource.Resource(
    group="", version="v1", kind="User", plural="users", singular="user", namespaced=False
)
_GROUPS = resource.Resource(
    group="", version="v1", kind="Group", plural="groups", singular="group", namespaced=False
)
_ACCOUNT = "system:serviceaccount:"


def acting(
    user: authn.User, headers: Mapping[str, str], authorizer: authz.Authorizer
) -> authn.User:
    """Whose rights the request has; 403 when `user` may not take them."""
    name = headers.get("impersonate-user", "")
    listed = headers.get("impersonate-group", "")
    groups = tuple(g.strip() for g in listed.split(",") if g.strip())
    if not name:
        if groups:
            raise statuses.bad_request("requested groups without impersonating a user")
        return user
    _check(user, _USERS, name, authorizer)
    for group in groups:
        _check(user, _GROUPS, group, authorizer)
    if name == authn.ANONYMOUS.name:
        return authn.ANONYMOUS
    if name.startswith(_ACCOUNT) and not groups:
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        groups = (authn.SERVICE_ACCOUNTS, f"{authn.SERVICE_ACCOUNTS}:{namespace}")
    return authn.User(name, groups=tuple(dict.fromkeys((*groups, authn.AUTHENTICATED))))


def _check(
    user: authn.User, what: resource.Resource, name: str, authorizer: authz.Authorizer
) -> None:
    asked = authz.Attributes(verb="impersonate", resource=what.plural, name=name)
    if not authorizer.allowed(user, asked).allowed:
        raise statuses.forbidden(authz.refusal(user, asked), what=what, name=name)
