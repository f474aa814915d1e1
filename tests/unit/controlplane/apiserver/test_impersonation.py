"""Acting as another user: which rights it needs, and whose rights the request has."""

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import authn, authz, impersonation, statuses
from support import memory_lookup

ADMIN = authn.User("root", groups=("system:masters",))
USER = authn.User("eve", groups=(authn.AUTHENTICATED,))
ALL = authn.AUTHENTICATED
NONE = authn.UNAUTHENTICATED


@pytest.fixture
def authorizer() -> authz.Authorizer:
    rules = [{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}]
    reference = {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    subjects = [{"kind": "User", "name": "eve"}]
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    return authz.Authorizer(
        memory_lookup.MemoryLookup(
            (api_resources.CLUSTER_ROLES, {"metadata": {"name": "r"}, "rules": rules}),
            (api_resources.CLUSTER_ROLE_BINDINGS, binding),
        )
    )


def test_without_headers_the_user_is_unchanged(authorizer: authz.Authorizer) -> None:
    assert impersonation.impersonated_user(USER, {}, authorizer) is USER
    assert impersonation.impersonated_user(USER, {"accept": "x"}, authorizer) is USER


def test_impersonated_user_has_given_groups_and_authenticated(
    authorizer: authz.Authorizer,
) -> None:
    headers = {
        "impersonate-user": "amy",
        "impersonate-group": "a, b,",
        "impersonate-uid": "7",
        "impersonate-extra-a%2fb": "x, y",
    }
    expected = authn.User("amy", uid="7", groups=("a", "b", ALL), extra={"a/b": ("x", "y")})
    assert impersonation.impersonated_user(ADMIN, headers, authorizer) == expected


def test_impersonated_service_account_has_namespace_groups(authorizer: authz.Authorizer) -> None:
    name = "system:serviceaccount:ns:sa"
    found = impersonation.impersonated_user(ADMIN, {"impersonate-user": name}, authorizer)
    accounts = authn.SERVICE_ACCOUNTS
    assert found.groups == (accounts, f"{accounts}:ns", ALL)


@pytest.mark.parametrize(
    ("name", "given", "groups"),
    [
        ("system:anonymous", "", (NONE,)),
        ("system:anonymous", "a", ("a", NONE)),
        ("system:anonymous", f"{NONE}, a", (NONE, "a")),
        ("system:anonymous", ALL, (ALL, NONE)),
        ("amy", f"a, {NONE}", ("a", NONE)),
        ("amy", f"{ALL}, a", (ALL, "a")),
    ],
)
def test_impersonated_user_is_authenticated_unless_anonymous(
    authorizer: authz.Authorizer, name: str, given: str, groups: tuple[str, ...]
) -> None:
    headers = {"impersonate-user": name, "impersonate-group": given, "impersonate-uid": "7"}
    expected = authn.User(name, uid="7", groups=groups)
    assert impersonation.impersonated_user(ADMIN, headers, authorizer) == expected


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"impersonate-user": "amy"}, True),
        ({"impersonate-user": "amy", "impersonate-group": "g"}, False),
        ({"impersonate-user": "amy", "impersonate-uid": "7"}, False),
        ({"impersonate-user": "amy", "impersonate-extra-k": "v"}, False),
        ({"impersonate-user": "system:serviceaccount:ns:sa"}, False),
        ({"impersonate-user": "system:serviceaccount:NS:sa"}, True),
    ],
)
def test_each_impersonated_part_needs_its_own_permission(
    headers: dict[str, str], authorizer: authz.Authorizer, *, allowed: bool
) -> None:
    if allowed:
        assert impersonation.impersonated_user(USER, headers, authorizer).name != USER.name
        return
    with pytest.raises(statuses.StatusError) as refused:
        impersonation.impersonated_user(USER, headers, authorizer)
    assert refused.value.code == 403


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-uid", "impersonate-extra-k"])
def test_impersonated_groups_without_user_are_an_error(
    header: str, authorizer: authz.Authorizer
) -> None:
    with pytest.raises(statuses.StatusError) as refused:
        impersonation.impersonated_user(ADMIN, {header: "x"}, authorizer)
    assert refused.value.code == 500


def test_impersonation_headers_are_recognized() -> None:
    assert impersonation.is_requested([b"accept", b"impersonate-user"])
    assert not impersonation.is_requested([b"accept", b"impersonate"])
