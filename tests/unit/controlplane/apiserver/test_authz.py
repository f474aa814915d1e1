"""RBAC: who may do what, and the text of a refusal."""

from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.cli import embedded_crds
from kilnwork.controlplane.apiserver import authn, authz, default_roles
from support import memory_lookup

GROUP = "rbac.authorization.k8s.io"
TASK_MAKER = authn.User(
    "system:serviceaccount:default:counter-task",
    groups=("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
)
NODE = authn.User("system:node:local", groups=("system:nodes", "system:authenticated"))


def role(name: str, *rules: dict[str, Any]) -> tuple[api_resources.Resource, dict[str, Any]]:
    return api_resources.ROLES, {
        "metadata": {"name": name, "namespace": "default"},
        "rules": list(rules),
    }


def binding(
    name: str, subject: dict[str, str], kind: str = "Role"
) -> tuple[api_resources.Resource, dict[str, Any]]:
    return api_resources.ROLE_BINDINGS, {
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
def authorizer() -> authz.Authorizer:
    return authz.Authorizer(
        memory_lookup.MemoryLookup(role("counter-task", COUNTER), binding("counter-task", ACCOUNT))
    )


def attributes_of(verb: str, plural: str = "tasks", **more: str) -> authz.Attributes:
    given = {"api_group": "kilnwork.dev", "namespace": "default", **more}
    return authz.Attributes(verb=verb, resource=plural, **given)


def test_role_allows_its_rules(authorizer: authz.Authorizer) -> None:
    decision = authorizer.allowed(TASK_MAKER, attributes_of("create"))
    assert decision.allowed
    assert 'RoleBinding "b-counter-task-counter-task/default"' in decision.reason


@pytest.mark.parametrize(
    "attributes",
    [
        attributes_of("delete"),
        attributes_of("list"),
        attributes_of("create", "taskclusters"),
        attributes_of("create", subresource="status"),
        attributes_of("create", api_group=""),
        attributes_of("create", namespace="other"),
        attributes_of("create", namespace=""),
    ],
)
def test_requests_outside_the_rules_are_denied(
    authorizer: authz.Authorizer, attributes: authz.Attributes
) -> None:
    assert authorizer.allowed(TASK_MAKER, attributes) == authz.DENIED


def test_members_of_masters_may_do_everything(authorizer: authz.Authorizer) -> None:
    assert authorizer.allowed(
        authn.ADMIN, attributes_of("delete", "anything", namespace="")
    ).allowed
    assert authorizer.allowed(authn.ADMIN, authz.Attributes(verb="post", path="/v1/x")).allowed


def test_groups_users_and_accounts_are_subjects() -> None:
    for subject in (
        {"kind": "Group", "name": "system:serviceaccounts:default"},
        {"kind": "User", "name": TASK_MAKER.name},
        {"kind": "ServiceAccount", "name": "counter-task"},
    ):
        found = authz.Authorizer(
            memory_lookup.MemoryLookup(role("r", COUNTER), binding("r", subject))
        )
        assert found.allowed(TASK_MAKER, attributes_of("get")).allowed
        assert not found.allowed(NODE, attributes_of("get")).allowed


def test_wildcards_and_subresources_match() -> None:
    rules = [
        {"apiGroups": [""], "resources": ["pods/*", "*/log"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]},
    ]
    found = authz.Authorizer(memory_lookup.MemoryLookup(role("r", *rules), binding("r", ACCOUNT)))

    def is_allowed(verb: str, plural: str, **more: str) -> bool:
        attributes = attributes_of(verb, plural, **{"api_group": "", **more})
        return found.allowed(TASK_MAKER, attributes).allowed

    assert is_allowed("get", "pods", subresource="log")
    assert not is_allowed("get", "pods", subresource="status")
    assert is_allowed("list", "secrets")
    assert is_allowed("list", "secrets", subresource="status")


def test_resource_names_restrict_a_rule() -> None:
    rule = {**COUNTER, "resourceNames": ["task-0"]}
    found = authz.Authorizer(memory_lookup.MemoryLookup(role("r", rule), binding("r", ACCOUNT)))
    assert found.allowed(TASK_MAKER, attributes_of("get", name="task-0")).allowed
    assert not found.allowed(TASK_MAKER, attributes_of("get", name="task-1")).allowed
    assert not found.allowed(TASK_MAKER, attributes_of("create")).allowed


@pytest.mark.parametrize(
    ("name", "allowed"), [("view", ["get"]), ("edit", ["get", "create"]), ("unknown", [])]
)
def test_built_in_cluster_roles_allow_their_rules(name: str, allowed: list[str]) -> None:
    roles = [
        (api_resources.CLUSTER_ROLES, role)
        for role in default_roles.roles(embedded_crds.EXTENSIONS)
    ]
    held = memory_lookup.MemoryLookup(*roles, binding(name, ACCOUNT, "ClusterRole"))
    found = authz.Authorizer(held)
    for verb in ("get", "create"):
        assert found.allowed(TASK_MAKER, attributes_of(verb)).allowed is (verb in allowed)
    secrets = attributes_of("get", "secrets", api_group="")
    assert found.allowed(TASK_MAKER, secrets).allowed is (name == "edit")


def test_node_has_only_the_permissions_of_a_node(authorizer: authz.Authorizer) -> None:
    work = [
        ("watch", "pods", ""),
        ("patch", "pods", "status"),
        ("create", "serviceaccounts", "token"),
        ("get", "secrets", ""),
        ("create", "events", ""),
    ]
    for verb, plural, sub in work:
        asked = attributes_of(verb, plural, subresource=sub, api_group="", namespace="x")
        assert authorizer.allowed(NODE, asked).allowed
    assert authorizer.allowed(
        NODE, attributes_of("create", "nodes", api_group="", namespace="")
    ).allowed
    assert not authorizer.allowed(NODE, attributes_of("create", "pods", api_group="")).allowed
    assert not authorizer.allowed(NODE, attributes_of("delete", "secrets", api_group="")).allowed


def test_discovery_is_allowed_for_every_authenticated_user(authorizer: authz.Authorizer) -> None:
    for path in ("/api", "/apis/kilnwork.dev/v1alpha1", "/openapi/v3", "/version"):
        assert authorizer.allowed(TASK_MAKER, authz.Attributes(verb="get", path=path)).allowed
        assert not authorizer.allowed(
            authn.ANONYMOUS, authz.Attributes(verb="get", path=path)
        ).allowed
    for path in ("/v1/namespaces/default/tasks", "/apiserver", "/metrics"):
        assert not authorizer.allowed(TASK_MAKER, authz.Attributes(verb="get", path=path)).allowed


def test_denial_messages_match_kubernetes() -> None:
    user = authn.User("system:serviceaccount:default:y")
    assert authz.denial_message(user, attributes_of("get", name="x")) == (
        'tasks.kilnwork.dev "x" is forbidden: User "system:serviceaccount:default:y" cannot get '
        'resource "tasks" in API group "kilnwork.dev" in the namespace "default"'
    )
    assert authz.denial_message(
        user, attributes_of("list", "pods", api_group="", namespace="", subresource="log")
    ) == (
        'pods is forbidden: User "system:serviceaccount:default:y" cannot list '
        'resource "pods/log" in API group "" at the cluster scope'
    )
    assert authz.denial_message(user, authz.Attributes(verb="get", path="/metrics")) == (
        'forbidden: User "system:serviceaccount:default:y" cannot get path "/metrics"'
    )


def test_missing_rules_are_those_not_held(authorizer: authz.Authorizer) -> None:
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    assert authorizer.missing_rules(TASK_MAKER, "default", [COUNTER, secrets]) == [secrets]
    assert authorizer.missing_rules(TASK_MAKER, "other", [COUNTER]) == [
        {**COUNTER, "resources": ["tasks"]},
        {**COUNTER, "resources": ["taskobjects"]},
    ]
    assert authorizer.missing_rules(authn.ADMIN, "default", [secrets]) == []
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    assert authorizer.missing_rules(TASK_MAKER, "default", [everything]) == [everything]


def test_cluster_roles_apply_to_all_namespaces_and_paths() -> None:
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
            (api_resources.CLUSTER_ROLES, reader), (api_resources.CLUSTER_ROLE_BINDINGS, bound)
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


def test_aggregated_roles_include_selected_roles() -> None:
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
    roles = [(api_resources.CLUSTER_ROLES, one) for one in (*parts, whole)]
    found = authz.Authorizer(
        memory_lookup.MemoryLookup(*roles, binding("whole", ACCOUNT, "ClusterRole"))
    )
    for plural, allowed in (("pods", True), ("secrets", True), ("events", False)):
        assert (
            found.allowed(TASK_MAKER, attributes_of("get", plural, api_group="")).allowed is allowed
        )
