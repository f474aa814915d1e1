"""RBAC: who may do what, and the text of a refusal."""

from typing import Any

import pytest

from kilnwork.api import resource
from kilnwork.cli import embedded_kinds
from kilnwork.controlplane.apiserver import authn, authz, bootstrap
from support import memory_lookup

GROUP = "rbac.authorization.k8s.io"
TASK_MAKER = authn.User(
    "system:serviceaccount:default:counter-task",
    groups=("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
)
NODE = authn.User("system:node:local", groups=("system:nodes", "system:authenticated"))


def role(name: str, *rules: dict[str, Any]) -> tuple[resource.Resource, dict[str, Any]]:
    return resource.ROLES, {
        "metadata": {"name": name, "namespace": "default"},
        "rules": list(rules),
    }


def binding(
    name: str, subject: dict[str, str], kind: str = "Role"
) -> tuple[resource.Resource, dict[str, Any]]:
    return resource.ROLE_BINDINGS, {
        "metadata": {"name": f"b-{name}-{subject['name']}", "namespace": "default"},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
        "subjects": [subject],
    }


COUNTER = {
    "apiGroups": ["kilnwork.dev"],
    "resources": ["tasks", "taskobjects"],
    "verbs": ["get", "create"],
}
ACCOUNT = {"kind": "ServiceAccount", "name": "counter-task", "namespace": "default"}


@pytest.fixture
def decided() -> authz.Authorizer:
    return authz.Authorizer(
        memory_lookup.MemoryLookup(role("counter-task", COUNTER), binding("counter-task", ACCOUNT))
    )


def asks(verb: str, plural: str = "tasks", **more: str) -> authz.Attributes:
    given = {"api_group": "kilnwork.dev", "namespace": "default", **more}
    return authz.Attributes(verb=verb, resource=plural, **given)


def test_role_allows_what_it_says(decided: authz.Authorizer) -> None:
    decision = decided.allowed(TASK_MAKER, asks("create"))
    assert decision.allowed
    assert 'RoleBinding "b-counter-task-counter-task/default"' in decision.reason


@pytest.mark.parametrize(
    "attributes",
    [
        asks("delete"),
        asks("list"),
        asks("create", "taskclusters"),
        asks("create", subresource="status"),
        asks("create", api_group=""),
        asks("create", namespace="other"),
        asks("create", namespace=""),
    ],
)
def test_nothing_else_is_allowed(decided: authz.Authorizer, attributes: authz.Attributes) -> None:
    assert decided.allowed(TASK_MAKER, attributes) == authz.DENIED


def test_members_of_masters_may_do_everything(decided: authz.Authorizer) -> None:
    assert decided.allowed(authn.ADMIN, asks("delete", "anything", namespace="")).allowed
    assert decided.allowed(authn.ADMIN, authz.Attributes(verb="post", path="/v1/x")).allowed


def test_groups_users_and_accounts_are_subjects() -> None:
    for subject in (
        {"kind": "Group", "name": "system:serviceaccounts:default"},
        {"kind": "User", "name": TASK_MAKER.name},
        {"kind": "ServiceAccount", "name": "counter-task"},
    ):
        found = authz.Authorizer(
            memory_lookup.MemoryLookup(role("r", COUNTER), binding("r", subject))
        )
        assert found.allowed(TASK_MAKER, asks("get")).allowed
        assert not found.allowed(NODE, asks("get")).allowed


def test_stars_and_subresources() -> None:
    rules = [
        {"apiGroups": [""], "resources": ["pods/*", "*/log"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]},
    ]
    found = authz.Authorizer(memory_lookup.MemoryLookup(role("r", *rules), binding("r", ACCOUNT)))

    def may(verb: str, plural: str, **more: str) -> bool:
        attributes = asks(verb, plural, **{"api_group": "", **more})
        return found.allowed(TASK_MAKER, attributes).allowed

    assert may("get", "pods", subresource="log")
    assert not may("get", "pods", subresource="status")
    assert may("list", "secrets")
    assert may("list", "secrets", subresource="status")


def test_names_narrow_a_rule() -> None:
    rule = {**COUNTER, "resourceNames": ["task-0"]}
    found = authz.Authorizer(memory_lookup.MemoryLookup(role("r", rule), binding("r", ACCOUNT)))
    assert found.allowed(TASK_MAKER, asks("get", name="task-0")).allowed
    assert not found.allowed(TASK_MAKER, asks("get", name="task-1")).allowed
    assert not found.allowed(TASK_MAKER, asks("create")).allowed


@pytest.mark.parametrize(
    ("name", "allowed"), [("view", ["get"]), ("edit", ["get", "create"]), ("unknown", [])]
)
def test_built_in_cluster_roles(name: str, allowed: list[str]) -> None:
    roles = [(resource.CLUSTER_ROLES, role) for role in bootstrap.roles(embedded_kinds.EXTENSIONS)]
    held = memory_lookup.MemoryLookup(*roles, binding(name, ACCOUNT, "ClusterRole"))
    found = authz.Authorizer(held)
    for verb in ("get", "create"):
        assert found.allowed(TASK_MAKER, asks(verb)).allowed is (verb in allowed)
    secrets = asks("get", "secrets", api_group="")
    assert found.allowed(TASK_MAKER, secrets).allowed is (name == "edit")


def test_node_may_do_its_work_and_no_more(decided: authz.Authorizer) -> None:
    work = [
        ("watch", "pods", ""),
        ("patch", "pods", "status"),
        ("create", "serviceaccounts", "token"),
        ("get", "secrets", ""),
        ("create", "events", ""),
    ]
    for verb, plural, sub in work:
        asked = asks(verb, plural, subresource=sub, api_group="", namespace="x")
        assert decided.allowed(NODE, asked).allowed
    assert decided.allowed(NODE, asks("create", "nodes", api_group="", namespace="")).allowed
    assert not decided.allowed(NODE, asks("create", "pods", api_group="")).allowed
    assert not decided.allowed(NODE, asks("delete", "secrets", api_group="")).allowed


def test_discovery_is_open_to_everybody_with_a_name(decided: authz.Authorizer) -> None:
    for path in ("/api", "/apis/kilnwork.dev/v1alpha1", "/openapi/v3", "/version"):
        assert decided.allowed(TASK_MAKER, authz.Attributes(verb="get", path=path)).allowed
        assert not decided.allowed(authn.ANONYMOUS, authz.Attributes(verb="get", path=path)).allowed
    for path in ("/v1/namespaces/default/tasks", "/apiserver", "/metrics"):
        assert not decided.allowed(TASK_MAKER, authz.Attributes(verb="get", path=path)).allowed


def test_refusals_read_as_in_kubernetes() -> None:
    user = authn.User("system:serviceaccount:default:y")
    assert authz.denial_message(user, asks("get", name="x")) == (
        'tasks.kilnwork.dev "x" is forbidden: User "system:serviceaccount:default:y" cannot get '
        'resource "tasks" in API group "kilnwork.dev" in the namespace "default"'
    )
    assert authz.denial_message(
        user, asks("list", "pods", api_group="", namespace="", subresource="log")
    ) == (
        'pods is forbidden: User "system:serviceaccount:default:y" cannot list '
        'resource "pods/log" in API group "" at the cluster scope'
    )
    assert authz.denial_message(user, authz.Attributes(verb="get", path="/metrics")) == (
        'forbidden: User "system:serviceaccount:default:y" cannot get path "/metrics"'
    )


def test_what_one_does_not_hold_is_missing(decided: authz.Authorizer) -> None:
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    assert decided.missing_rules(TASK_MAKER, "default", [COUNTER, secrets]) == [secrets]
    assert decided.missing_rules(TASK_MAKER, "other", [COUNTER]) == [
        {**COUNTER, "resources": ["tasks"]},
        {**COUNTER, "resources": ["taskobjects"]},
    ]
    assert decided.missing_rules(authn.ADMIN, "default", [secrets]) == []
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    assert decided.missing_rules(TASK_MAKER, "default", [everything]) == [everything]


def test_cluster_roles_hold_everywhere_and_for_paths() -> None:
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
    ]
    reader = {"metadata": {"name": "reader"}, "rules": rules}
    bound = {
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "reader"},
        "subjects": [ACCOUNT],
    }
    found = authz.Authorizer(
        memory_lookup.MemoryLookup(
            (resource.CLUSTER_ROLES, reader), (resource.CLUSTER_ROLE_BINDINGS, bound)
        )
    )
    nodes = authz.Attributes(verb="list", resource="nodes")
    assert found.allowed(TASK_MAKER, nodes).reason == (
        'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" '
        'to ServiceAccount "counter-task/default"'
    )
    for path, allowed in (("/metrics", True), ("/logs/x", True), ("/metrics/x", False)):
        asked = authz.Attributes(verb="get", path=path)
        assert found.allowed(TASK_MAKER, asked).allowed is allowed
    missing = found.missing_rules(TASK_MAKER, "", [{"nonResourceURLs": ["/x"], "verbs": ["get"]}])
    assert missing == [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]


def test_aggregated_roles_hold_what_they_select() -> None:
    parts: list[dict[str, Any]] = [
        {
            "metadata": {"name": name, "labels": {"part": name, "kind": "p"}},
            "rules": [{"apiGroups": [""], "resources": [name], "verbs": ["get"]}],
        }
        for name in ("pods", "secrets", "events")
    ]
    chosen = {"key": "part", "operator": "In", "values": ["pods", "secrets"]}
    odd = {"matchExpressions": [{"key": "part", "operator": "Like", "values": ["events"]}]}
    whole: dict[str, Any] = {
        "metadata": {"name": "whole"},
        "aggregationRule": {
            "clusterRoleSelectors": [
                {"matchLabels": {"kind": "p"}, "matchExpressions": [chosen]},
                odd,
            ]
        },
    }
    roles = [(resource.CLUSTER_ROLES, one) for one in (*parts, whole)]
    found = authz.Authorizer(
        memory_lookup.MemoryLookup(*roles, binding("whole", ACCOUNT, "ClusterRole"))
    )
    for plural, allowed in (("pods", True), ("secrets", True), ("events", False)):
        assert found.allowed(TASK_MAKER, asks("get", plural, api_group="")).allowed is allowed
