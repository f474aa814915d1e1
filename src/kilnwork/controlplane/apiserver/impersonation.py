"""Impersonation of another user: the `Impersonate-*` headers of `kubectl --as`.

Used by `app` after authentication. The client must have the permission to `impersonate` the user or
service account, each group, the uid and each value of `extra`; from then on the permissions of the
impersonated user count. As k8s.io/apiserver pkg/endpoints/filters/impersonation.go.
"""

import urllib.parse
from collections.abc import Iterable, Mapping

from kilnwork.api import api_resources, names
from kilnwork.controlplane.apiserver import authn, authz, statuses

_USERS = api_resources.Resource(
    group="", version="v1", kind="User", plural="users", singular="user", namespaced=False
)
_GROUPS = api_resources.Resource(
    group="", version="v1", kind="Group", plural="groups", singular="group", namespaced=False
)
_UIDS = api_resources.Resource(
    group="authentication.k8s.io",
    version="v1",
    kind="UID",
    plural="uids",
    singular="uid",
    namespaced=False,
)
_EXTRAS = api_resources.Resource(
    group="authentication.k8s.io",
    version="v1",
    kind="UserExtra",
    plural="userextras",
    singular="userextra",
    namespaced=False,
)
_EXTRA = "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"


def is_requested(names: Iterable[bytes]) -> bool:
    """Return whether a request may ask for impersonation, from its lower-case header names.

    The test is fast, and may be true for another header.
    """
    return b"impersonate-" in b"\0".join(names)


def impersonated_user(
    user: authn.User, headers: Mapping[str, str], authorizer: authz.Authorizer
) -> authn.User:
    """Return the user whose permissions a request has after impersonation.

    Without impersonation it is `user`. `headers`: all headers by lower-case name. Raises 403 if
    `user` may not impersonate that user, 500 for groups, uid or extra without a user.
    """
    if not headers:
        return user
    name = headers.get("impersonate-user", "")
    listed = headers.get("impersonate-group", "")
    groups = tuple(g.strip() for g in listed.split(",") if g.strip())
    uid = headers.get("impersonate-uid", "")
    extra = {
        urllib.parse.unquote(key.removeprefix(_EXTRA)): tuple(v.strip() for v in value.split(","))
        for key, value in headers.items()
        if key.startswith(_EXTRA)
    }
    if not name:
        if groups or uid or extra:
            raise statuses.plain_internal(
                "requested groups, uid or extra without impersonating a user"
            )
        return user
    namespace, account = _account_of(name)
    if account:
        _check(user, api_resources.SERVICE_ACCOUNTS, account, authorizer, namespace=namespace)
    else:
        _check(user, _USERS, name, authorizer)
    for group in groups:
        _check(user, _GROUPS, group, authorizer)
    if uid:
        _check(user, _UIDS, uid, authorizer)
    for key, values in extra.items():
        for value in values:
            # The permission is for userextras/KEY, with the value as the name of the resource.
            _check(user, _EXTRAS, value, authorizer, subresource=key)
    if account and not groups:
        groups = (authn.SERVICE_ACCOUNTS, f"{authn.SERVICE_ACCOUNTS}:{namespace}")
    return authn.User(name, uid=uid, groups=(*groups, *_added_groups(name, groups)), extra=extra)


def _added_groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups that an impersonated user has in addition to `groups`.

    The anonymous user is in `system:unauthenticated`. Any other user is in `system:authenticated`,
    unless `groups` contains one of these two.
    """
    if name == authn.ANONYMOUS.name:
        return () if authn.UNAUTHENTICATED in groups else (authn.UNAUTHENTICATED,)
    given = {authn.AUTHENTICATED, authn.UNAUTHENTICATED} & {*groups}
    return () if given else (authn.AUTHENTICATED,)


def _account_of(name: str) -> tuple[str, str]:
    """Return namespace and name of a service account; both are empty for other users."""
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    known = name.startswith(_ACCOUNT) and names.is_dns_label(namespace)
    return (namespace, account) if known and names.is_dns_subdomain(account) else ("", "")


def _check(
    user: authn.User,
    what: api_resources.Resource,
    name: str,
    authorizer: authz.Authorizer,
    *,
    namespace: str = "",
    subresource: str = "",
) -> None:
    asked = authz.Attributes(
        verb="impersonate",
        api_group=what.group,
        resource=what.plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )
    if not authorizer.allowed(user, asked).allowed:
        raise statuses.forbidden(authz.denial_message(user, asked), what=what, name=name)
