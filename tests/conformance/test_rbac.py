"""Rights: refusals to the letter, Roles and ClusterRoles, no user gives away what they lack."""

from collections.abc import Iterator
from typing import Any

import pytest

from support import kube_servers, waiting

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
EVERYBODY = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"


@pytest.fixture
def roles(namespace: str) -> str:
    """The path of what RBAC has in this namespace."""
    return f"{RBAC}/namespaces/{namespace}"


@pytest.fixture
def joe(admin: kube_servers.Http) -> kube_servers.Http:
    """A user with no rights of their own."""
    return admin.impersonating("joe", EVERYBODY)


def rule(resources: str, *verbs: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "resources": resources.split(),
        "verbs": list(verbs),
        **more,
    }


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, of: str, kind: str = "Role", user: str = "joe") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": of},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    }


def grant(admin: kube_servers.Http, roles: str, *rules: dict[str, Any]) -> None:
    """Give joe rights in the namespace."""
    name = kube_servers.fresh_name("r")
    admin.post(f"{roles}/roles", role(name, *rules)).ok()
    admin.post(f"{roles}/rolebindings", binding(name, name)).ok()


def until_allowed(http: kube_servers.Http, path: str) -> None:
    waiting.wait_until(lambda: http.get(path).status != 403, what=f"{path} is allowed")


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "subject", "cannot"),
    [
        ("GET", "configmaps", "configmaps", 'list resource "configmaps" in API group ""'),
        ("GET", "configmaps/a", 'configmaps "a"', 'get resource "configmaps" in API group ""'),
        ("GET", "configmaps?watch=1", "configmaps", 'watch resource "configmaps" in API group ""'),
        ("POST", "configmaps", "configmaps", 'create resource "configmaps" in API group ""'),
        ("PUT", "configmaps/a", 'configmaps "a"', 'update resource "configmaps" in API group ""'),
        (
            "PATCH",
            "configmaps/a",
            'configmaps "a"',
            'patch resource "configmaps" in API group ""',
        ),
        (
            "DELETE",
            "configmaps/a",
            'configmaps "a"',
            'delete resource "configmaps" in API group ""',
        ),
        (
            "DELETE",
            "configmaps",
            "configmaps",
            'deletecollection resource "configmaps" in API group ""',
        ),
        ("GET", "pods/p/log", 'pods "p"', 'get resource "pods/log" in API group ""'),
        (
            "POST",
            "pods/p/eviction",
            'pods "p"',
            'create resource "pods/eviction" in API group ""',
        ),
    ],
)
def test_forbidden_message_names_verb_and_resource(
    joe: kube_servers.Http, namespace: str, method: str, path: str, subject: str, cannot: str
) -> None:
    """403 before anything is looked up or read."""
    done = joe.send(method, f"/api/v1/namespaces/{namespace}/{path}", {})
    assert done.status == 403
    assert done.reason == "Forbidden"
    assert done.message == (
        f'{subject} is forbidden: User "joe" cannot {cannot} in the namespace "{namespace}"'
    )
    resource = path.partition("?")[0].split("/")
    details = {"kind": resource[0]} | ({"name": resource[1]} if len(resource) > 1 else {})
    assert done.json["details"] == details


def test_forbidden_message_names_group_and_scope(joe: kube_servers.Http, namespace: str) -> None:
    """The group is part of the resource's name; without a namespace it is `the cluster scope`."""
    lease = joe.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/x")
    assert lease.message == (
        'leases.coordination.k8s.io "x" is forbidden: User "joe" cannot get resource "leases" in '
        f'API group "coordination.k8s.io" in the namespace "{namespace}"'
    )
    assert lease.json["details"] == {
        "name": "x",
        "group": "coordination.k8s.io",
        "kind": "leases",
    }
    nodes = joe.get("/api/v1/nodes")
    assert nodes.message == (
        'nodes is forbidden: User "joe" cannot list resource "nodes" in API group "" at the '
        "cluster scope"
    )
    path = joe.get("/metrics")
    assert path.status == 403
    assert path.message == 'forbidden: User "joe" cannot get path "/metrics"'
    assert path.json["details"] == {}


# --- roles --------------------------------------------------------------------------------------


def test_role_allows_its_rules(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str, namespace: str
) -> None:
    """Verbs, resources, names; nothing elsewhere."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("a", "b"):
        admin.post(path, {"metadata": {"name": name}}).ok()
    grant(admin, roles, rule("configmaps", "get", resourceNames=["a"]))
    until_allowed(joe, f"{path}/a")
    assert joe.get(f"{path}/a").status == 200
    assert joe.get(f"{path}/b").status == 403
    assert joe.get(path).status == 403
    assert joe.delete(f"{path}/a").status == 403
    assert joe.get("/api/v1/namespaces/default/configmaps/a").status == 403


def test_name_selector_matches_resource_names(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str, namespace: str
) -> None:
    """So that one object may be watched by a user who may see only that."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(path, {"metadata": {"name": "a"}}).ok()
    grant(admin, roles, rule("configmaps", "list", "watch", resourceNames=["a"]))
    one = f"{path}?fieldSelector=metadata.name%3Da"
    until_allowed(joe, one)
    assert [i["metadata"]["name"] for i in joe.get(one).ok()["items"]] == ["a"]
    assert joe.get(path).status == 403


def test_subresources_need_their_own_rule(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str, namespace: str
) -> None:
    """`pods` does not mean `pods/log`; `*` means all."""
    log = f"/api/v1/namespaces/{namespace}/pods/p/log"
    grant(admin, roles, rule("pods", "get"))
    until_allowed(joe, f"/api/v1/namespaces/{namespace}/pods/p")
    assert joe.get(log).status == 403
    grant(admin, roles, rule("*", "get"))
    until_allowed(joe, log)
    assert joe.get(log).status == 404


def test_permissions_end_with_their_binding(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(f"{roles}/roles", role("r", rule("configmaps", "list"))).ok()
    admin.post(f"{roles}/rolebindings", binding("b", "r")).ok()
    until_allowed(joe, path)
    admin.delete(f"{roles}/rolebindings/b").ok()
    waiting.wait_until(lambda: joe.get(path).status == 403, what="the right is gone")


def test_default_cluster_roles_exist(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str, namespace: str
) -> None:
    """view does not show Secrets; edit does; both are objects."""
    for name in ("view", "edit", "admin", "cluster-admin"):
        assert admin.get(f"{RBAC}/clusterroles/{name}").status == 200
    path = f"/api/v1/namespaces/{namespace}"
    admin.post(f"{roles}/rolebindings", binding("v", "view", "ClusterRole")).ok()
    until_allowed(joe, f"{path}/configmaps")
    assert joe.get(f"{path}/secrets").status == 403
    admin.post(f"{roles}/rolebindings", binding("e", "edit", "ClusterRole")).ok()
    until_allowed(joe, f"{path}/secrets")
    assert joe.get(f"{roles}/roles").status == 403


# --- the whole cluster --------------------------------------------------------------------------


@pytest.fixture
def cluster_role(admin: kube_servers.Http) -> Iterator[str]:
    """A ClusterRole that lists Nodes and ConfigMaps and sees paths, bound everywhere to the user of
    its name: what joe must not do is tested at the same time."""
    name = kube_servers.fresh_name("c")
    rules = [
        rule("nodes configmaps", "list"),
        {"nonResourceURLs": ["/foo*"], "verbs": ["get"]},
    ]
    admin.post(f"{RBAC}/clusterroles", role(name, *rules)).ok()
    admin.post(f"{RBAC}/clusterrolebindings", binding(name, name, "ClusterRole", user=name)).ok()
    yield name
    admin.delete(f"{RBAC}/clusterrolebindings/{name}")
    admin.delete(f"{RBAC}/clusterroles/{name}")


def test_bound_cluster_role_applies_everywhere(
    admin: kube_servers.Http, cluster_role: str, namespace: str
) -> None:
    """Across the cluster, in each namespace and for paths of no resource."""
    ann = admin.impersonating(cluster_role, EVERYBODY)
    until_allowed(ann, "/api/v1/nodes")
    assert ann.get("/api/v1/nodes").status == 200
    assert ann.get("/api/v1/configmaps").status == 200
    assert ann.get(f"/api/v1/namespaces/{namespace}/configmaps").status == 200
    assert ann.get("/foobar").status == 404
    assert ann.get("/bar").status == 403
    assert ann.get("/api/v1/namespaces").status == 403


def test_cluster_role_bound_in_a_namespace_applies_there(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str, namespace: str
) -> None:
    name = kube_servers.fresh_name("c")
    admin.post(f"{RBAC}/clusterroles", role(name, rule("configmaps", "list"))).ok()
    admin.post(f"{roles}/rolebindings", binding("b", name, "ClusterRole")).ok()
    until_allowed(joe, f"/api/v1/namespaces/{namespace}/configmaps")
    assert joe.get("/api/v1/configmaps").status == 403
    assert joe.get("/api/v1/namespaces/default/configmaps").status == 403
    admin.delete(f"{RBAC}/clusterroles/{name}").ok()


def test_aggregated_role_includes_selected_roles(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str, namespace: str
) -> None:
    """An aggregationRule: the parts hold for every user who is bound to the whole."""
    name = kube_servers.fresh_name("c")
    selectors = [{"matchLabels": {name: "x"}}]
    whole = {**role(name), "aggregationRule": {"clusterRoleSelectors": selectors}}
    admin.post(f"{RBAC}/clusterroles", whole).ok()
    part = role(f"{name}-part", rule("configmaps", "list"))
    part["metadata"]["labels"] = {name: "x"}
    admin.post(f"{RBAC}/clusterroles", part).ok()
    admin.post(f"{roles}/rolebindings", binding("b", name, "ClusterRole")).ok()
    until_allowed(joe, f"/api/v1/namespaces/{namespace}/configmaps")
    for one in (name, f"{name}-part"):
        admin.delete(f"{RBAC}/clusterroles/{one}").ok()


def test_aggregated_rules_are_written_into_the_role(admin: kube_servers.Http) -> None:
    name = kube_servers.fresh_name("c")
    selectors = [{"matchLabels": {name: "x"}}]
    whole = {**role(name), "aggregationRule": {"clusterRoleSelectors": selectors}}
    admin.post(f"{RBAC}/clusterroles", whole).ok()
    part = role(f"{name}-part", rule("configmaps", "list"))
    part["metadata"]["labels"] = {name: "x"}
    admin.post(f"{RBAC}/clusterroles", part).ok()
    waiting.wait_until(
        lambda: admin.get(f"{RBAC}/clusterroles/{name}").json["rules"] == part["rules"],
        what="the rules are there",
    )


# --- giving rights ------------------------------------------------------------------------------


def test_role_with_permissions_the_user_lacks_is_forbidden(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str
) -> None:
    """403 lists what is missing, a line for each resource."""
    manage = rule("roles rolebindings", "create", "get", "patch", group=GROUP)
    grant(admin, roles, manage, rule("configmaps", "get"))
    until_allowed(joe, f"{roles}/roles/none")
    joe.post(f"{roles}/roles", role("same", rule("configmaps", "get"))).ok()
    more = role("more", rule("secrets", "list", "get"), rule("configmaps", "get", "list"))
    refused = joe.post(f"{roles}/roles", more)
    assert refused.status == 403
    assert refused.message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "joe" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
        'held:\n{APIGroups:[""], Resources:["configmaps"], Verbs:["list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["list" "get"]}'
    )
    changed = joe.patch(f"{roles}/roles/same", {"rules": [rule("*", "*", group="*")]})
    assert changed.status == 403
    assert changed.message.endswith('\n{APIGroups:["*"], Resources:["*"], Verbs:["*"]}')


def test_binding_a_role_the_user_lacks_is_forbidden(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str
) -> None:
    """Unless they may `bind`; 404 for a role that is not there, with the wrong resource."""
    manage = rule("roles rolebindings", "create", "get", group=GROUP)
    grant(admin, roles, manage, rule("configmaps", "get"))
    until_allowed(joe, f"{roles}/roles/none")
    admin.post(f"{roles}/roles", role("same", rule("configmaps", "get"))).ok()
    admin.post(f"{roles}/roles", role("more", rule("secrets", "get"))).ok()
    joe.post(f"{roles}/rolebindings", binding("one", "same", user="jim")).ok()
    refused = joe.post(f"{roles}/rolebindings", binding("two", "more", user="jim"))
    assert refused.status == 403
    assert refused.message == (
        'rolebindings.rbac.authorization.k8s.io "two" is forbidden: user "joe" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
        'held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    missing = joe.post(f"{roles}/rolebindings", binding("three", "none", user="jim"))
    assert missing.status == 404
    assert missing.message == 'rolebindings.rbac.authorization.k8s.io "none" not found'
    bind = rule("roles", "bind", group=GROUP, resourceNames=["more"])
    grant(admin, roles, bind)
    waiting.wait_until(
        lambda: joe.post(f"{roles}/rolebindings", binding("two", "more", user="jim")).status == 201,
        what="joe may bind",
    )


def test_escalate_verb_allows_any_role(
    admin: kube_servers.Http, joe: kube_servers.Http, roles: str
) -> None:
    """The verb `escalate` on roles."""
    grant(admin, roles, rule("roles", "create", "escalate", "get", group=GROUP))
    until_allowed(joe, f"{roles}/roles/none")
    joe.post(f"{roles}/roles", role("more", rule("secrets", "get"))).ok()


def test_aggregation_rule_needs_all_permissions(admin: kube_servers.Http) -> None:
    """An aggregationRule could pick up anything, now or later: 403 on create and on change."""
    name = kube_servers.fresh_name("c")
    manage = rule("clusterroles", "create", "get", "patch", group=GROUP)
    admin.post(f"{RBAC}/clusterroles", role(name, manage)).ok()
    admin.post(f"{RBAC}/clusterrolebindings", binding(name, name, "ClusterRole", user=name)).ok()
    ann = admin.impersonating(name, EVERYBODY)
    until_allowed(ann, f"{RBAC}/clusterroles/{name}")
    everything = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    whole = {**role(f"{name}-w"), "aggregationRule": everything}
    made = ann.post(f"{RBAC}/clusterroles", whole)
    changed = ann.patch(f"{RBAC}/clusterroles/{name}", {"aggregationRule": everything})
    for refused, of in ((made, f"{name}-w"), (changed, name)):
        assert refused.status == 403
        assert refused.message == (
            f'clusterroles.rbac.authorization.k8s.io "{of}" is forbidden: must have cluster-admin '
            "privileges to use the aggregationRule"
        )
    for plural in ("clusterrolebindings", "clusterroles"):
        admin.delete(f"{RBAC}/{plural}/{name}").ok()


@pytest.mark.parametrize(
    ("plural", "body", "text"),
    [
        (
            "roles",
            {
                "metadata": {"name": "bad"},
                "rules": [
                    {"resources": ["a"], "verbs": []},
                    {"nonResourceURLs": ["/x"], "verbs": ["get"]},
                ],
            },
            (
                'Role.rbac.authorization.k8s.io "bad" is invalid: [rules[0].verbs: Required '
                "value: verbs must contain at least one value, rules[0].apiGroups: Required "
                "value: resource rules must supply at least one api group, "
                'rules[1].nonResourceURLs: Invalid value: []string{"/x"}: namespaced rules '
                "cannot apply to non-resource URLs]"
            ),
        ),
        (
            "rolebindings",
            {
                "metadata": {"name": "bad"},
                "roleRef": {"kind": "X", "name": ""},
                "subjects": [{"kind": "Foo", "name": ""}],
            },
            (
                'RoleBinding.rbac.authorization.k8s.io "bad" is invalid: [roleRef.kind: '
                'Unsupported value: "X": supported values: "Role", "ClusterRole", roleRef.name: '
                "Required value, subjects[0].name: Required value, subjects[0].kind: Unsupported "
                'value: "Foo": supported values: "ServiceAccount", "User", "Group"]'
            ),
        ),
    ],
    ids=["role", "binding"],
)
def test_invalid_roles_and_bindings_are_rejected(
    admin: kube_servers.Http, roles: str, plural: str, body: Any, text: str
) -> None:
    done = admin.post(f"{roles}/{plural}", body)
    assert (done.status, done.message) == (422, text)


def test_invalid_cluster_roles_are_rejected(admin: kube_servers.Http) -> None:
    """A rule is about resources or about paths; a binding of the cluster wants a ClusterRole."""
    both = {
        "nonResourceURLs": ["/x"],
        "resources": ["a"],
        "apiGroups": [""],
        "verbs": ["get"],
    }
    done = admin.post(f"{RBAC}/clusterroles", role("bad", both))
    assert done.message == (
        'ClusterRole.rbac.authorization.k8s.io "bad" is invalid: rules[0].nonResourceURLs: '
        'Invalid value: []string{"/x"}: rules cannot apply to both regular resources and '
        "non-resource URLs"
    )
    bound = admin.post(f"{RBAC}/clusterrolebindings", binding("bad", "x"))
    assert bound.message == (
        'ClusterRoleBinding.rbac.authorization.k8s.io "bad" is invalid: roleRef.kind: Unsupported '
        'value: "Role": supported values: "ClusterRole"'
    )


# --- acting as others ---------------------------------------------------------------------------


def test_impersonation_uses_permissions_of_the_other_user(
    admin: kube_servers.Http, namespace: str
) -> None:
    """Groups given; those of an account are known."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert (
        admin.impersonating("bob")
        .get(path)
        .message.startswith('configmaps is forbidden: User "bob" cannot list')
    )
    assert admin.impersonating("bob", "system:masters").get(path).status == 200
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    whole = admin.acting(
        Impersonate_User="bob",
        Impersonate_Group="g1",
        Impersonate_Uid="u1",
        Impersonate_Extra_Scopes="a",
    )
    assert whole.post(reviews, {}).ok()["status"]["userInfo"] == {
        "username": "bob",
        "uid": "u1",
        "groups": ["g1", EVERYBODY],
        "extra": {"scopes": ["a"]},
    }
    account = admin.impersonating(f"system:serviceaccount:{namespace}:default")
    assert account.post(reviews, {}).ok()["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        EVERYBODY,
    ]


@pytest.mark.parametrize(
    ("user", "given", "groups"),
    [
        ("system:anonymous", ["system:masters"], ["system:masters", UNAUTHENTICATED]),
        (
            "system:anonymous",
            [UNAUTHENTICATED, "system:masters"],
            [UNAUTHENTICATED, "system:masters"],
        ),
        (
            "system:anonymous",
            ["system:masters", EVERYBODY],
            ["system:masters", EVERYBODY, UNAUTHENTICATED],
        ),
        ("bob", ["system:masters", UNAUTHENTICATED], ["system:masters", UNAUTHENTICATED]),
        ("bob", [EVERYBODY, "system:masters"], [EVERYBODY, "system:masters"]),
    ],
)
def test_impersonated_user_is_authenticated_unless_anonymous(
    admin: kube_servers.Http, user: str, given: list[str], groups: list[str]
) -> None:
    other = admin.impersonating(user, *given)
    found = other.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).ok()
    assert found["status"]["userInfo"]["groups"] == groups


def test_impersonated_groups_need_a_user(admin: kube_servers.Http, namespace: str) -> None:
    """500: no user to put into the group."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert admin.acting(Impersonate_Group="g").get(path).status == 500
    assert admin.acting(Impersonate_Uid="x").get(path).status == 500


def test_impersonation_needs_permission(
    admin: kube_servers.Http, server: kube_servers.Server, namespace: str
) -> None:
    """The verb `impersonate`, for the user and for each group."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    token = admin.post(f"{accounts}/default/token", {"spec": {}}).ok()["status"]["token"]
    account = f"system:serviceaccount:{namespace}:default"
    mine = server.bearer(token).acting(Impersonate_User="bob")
    refused = mine.get("/api/v1/nodes")
    assert refused.status == 403
    assert refused.message == (
        f'users "bob" is forbidden: User "{account}" cannot impersonate resource "users" in API '
        'group "" at the cluster scope'
    )


def test_impersonating_accounts_needs_separate_permission(
    admin: kube_servers.Http, server: kube_servers.Server, namespace: str
) -> None:
    """A service account is asked for as such, in its namespace."""
    name = kube_servers.fresh_name("c")
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    token = admin.post(f"{accounts}/default/token", {"spec": {}}).ok()["status"]["token"]
    account = f"system:serviceaccount:{namespace}:default"
    admin.post(f"{RBAC}/clusterroles", role(name, rule("users", "impersonate"))).ok()
    bound = {**binding(name, name, "ClusterRole", user=account)}
    admin.post(f"{RBAC}/clusterrolebindings", bound).ok()
    mine = server.bearer(token)
    waiting.wait_until(
        lambda: (
            "list nodes" in str(mine.acting(Impersonate_User="bob").get("/api/v1/nodes").json)
            or "cannot list" in mine.acting(Impersonate_User="bob").get("/api/v1/nodes").message
        ),
        what="the account may act as bob",
    )
    other = "system:serviceaccount:kube-system:default"
    refused = mine.acting(Impersonate_User=other).get("/api/v1/nodes")
    assert refused.status == 403
    assert refused.message == (
        f'serviceaccounts "default" is forbidden: User "{account}" cannot impersonate resource '
        '"serviceaccounts" in API group "" in the namespace "kube-system"'
    )
    for plural in ("clusterrolebindings", "clusterroles"):
        admin.delete(f"{RBAC}/{plural}/{name}").ok()
