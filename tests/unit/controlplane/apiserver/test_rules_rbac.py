"""Rules for Roles and RoleBindings."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import authn, authz, rules_rbac, statuses
from support import memory_lookup

Json = dict[str, Any]
RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
GROUP = "rbac.authorization.k8s.io"
ROLE = {"apiGroup": GROUP, "kind": "Role", "name": "r"}
EVE = authn.User("eve", groups=(authn.AUTHENTICATED,))


@pytest.mark.parametrize(
    ("rule", "cluster", "wrong"),
    [
        (RULE, False, []),
        (RULE | {"verbs": []}, False, ["verbs"]),
        (RULE | {"apiGroups": []}, False, ["apiGroups"]),
        (RULE | {"resources": []}, False, ["resources"]),
        ({"nonResourceURLs": ["/a"], "verbs": ["get"]}, True, []),
        ({"nonResourceURLs": ["/a"], "verbs": ["get"]}, False, ["nonResourceURLs"]),
        (RULE | {"nonResourceURLs": ["/a"]}, True, ["nonResourceURLs"]),
    ],
)
def test_invalid_role_rules_are_rejected(rule: Json, *, cluster: bool, wrong: list[str]) -> None:
    found = rules_rbac.validate_role({"rules": [rule]}, cluster=cluster)
    assert [c.field for c in found] == [f"rules[0].{field}" for field in wrong]


@pytest.mark.parametrize(
    ("binding", "cluster", "wrong"),
    [
        ({"roleRef": ROLE}, False, []),
        ({"roleRef": ROLE}, True, ["roleRef.kind"]),
        ({"roleRef": ROLE | {"kind": "ClusterRole"}}, True, []),
        ({"roleRef": ROLE | {"apiGroup": "x"}}, False, ["roleRef.apiGroup"]),
        ({"roleRef": ROLE | {"name": ""}}, False, ["roleRef.name"]),
    ],
)
def test_invalid_bindings_are_rejected(binding: Json, *, cluster: bool, wrong: list[str]) -> None:
    found = rules_rbac.validate_role_binding(binding, cluster=cluster)
    assert [c.field for c in found] == wrong


@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        ({"kind": "User", "name": "u", "apiGroup": GROUP}, []),
        ({"kind": "User", "name": "u", "apiGroup": "x"}, ["apiGroup"]),
        ({"kind": "Group", "name": "", "apiGroup": GROUP}, ["name"]),
        ({"kind": "ServiceAccount", "name": "a", "namespace": "n"}, []),
        ({"kind": "ServiceAccount", "name": "a"}, ["namespace"]),
        (
            {"kind": "ServiceAccount", "name": "a", "namespace": "n", "apiGroup": "x"},
            ["apiGroup"],
        ),
        ({"kind": "Other", "name": "a"}, ["kind"]),
    ],
)
def test_invalid_subjects_are_rejected(subject: Json, wrong: list[str]) -> None:
    found = rules_rbac.validate_role_binding({"roleRef": ROLE, "subjects": [subject]})
    assert [c.field for c in found] == [f"subjects[0].{field}" for field in wrong]


def test_api_groups_are_defaulted_except_for_accounts() -> None:
    kinds = ("User", "Group", "ServiceAccount")
    binding: Json = {"roleRef": {"kind": "Role"}, "subjects": [{"kind": kind} for kind in kinds]}
    rules_rbac.default_role_binding(binding)
    assert binding["roleRef"]["apiGroup"] == GROUP
    assert [s.get("apiGroup") for s in binding["subjects"]] == [GROUP, GROUP, None]


def test_role_of_a_binding_cannot_change() -> None:
    old, new = {"roleRef": ROLE}, {"roleRef": ROLE | {"name": "other"}}
    assert [c.field for c in rules_rbac.validate_role_binding_update(old, new)] == ["roleRef"]
    assert list(rules_rbac.validate_role_binding_update(old, old)) == []


def test_users_cannot_grant_permissions_they_lack() -> None:
    authorizer = authz.Authorizer(memory_lookup.MemoryLookup())
    role = {"metadata": {"name": "r", "namespace": "n"}, "rules": [RULE]}
    with pytest.raises(statuses.StatusError) as refused:
        rules_rbac.guard_role(role, user=EVE, authorizer=authorizer)
    assert refused.value.code == 403
    assert '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}' in refused.value.message
    rules_rbac.guard_role(role | {"rules": []}, user=EVE, authorizer=authorizer)


def test_bound_role_must_exist() -> None:
    role = {"metadata": {"name": "r", "namespace": "n"}, "rules": []}
    stored = memory_lookup.MemoryLookup()
    binding = {"metadata": {"name": "b", "namespace": "n"}, "roleRef": ROLE}
    authorizer = authz.Authorizer(stored)
    with pytest.raises(statuses.StatusError) as missing:
        rules_rbac.guard_role_binding(binding, user=EVE, authorizer=authorizer)
    assert missing.value.code == 404
    stored.add(api_resources.ROLES, role)
    rules_rbac.guard_role_binding(binding, user=EVE, authorizer=authorizer)
