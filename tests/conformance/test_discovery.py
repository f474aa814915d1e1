"""Discovery: groups, versions, resources and their verbs, one by one and aggregated."""

from functools import partial
from typing import Any

import pytest

from support import kube_servers, waiting

WRITE = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
STATUS = ["get", "patch", "update"]
RBAC = "rbac.authorization.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = (
    f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)


def resources(http: kube_servers.Http, path: str) -> dict[str, Any]:
    return by_name(http.get(path), path)


def by_name(response: kube_servers.Response, path: str) -> dict[str, Any]:
    found = response.ok()
    assert (found["kind"], found["groupVersion"]) == (
        "APIResourceList",
        path.removeprefix("/apis/").removeprefix("/api/"),
    )
    listed = [one["name"] for one in found["resources"]]
    assert len(set(listed)) == len(listed)
    return {one["name"]: one for one in found["resources"]}


@pytest.mark.parametrize(
    ("path", "name", "kind", "short", "namespaced"),
    [
        ("/api/v1", "configmaps", "ConfigMap", ["cm"], True),
        ("/api/v1", "events", "Event", ["ev"], True),
        ("/api/v1", "nodes", "Node", ["no"], False),
        ("/api/v1", "pods", "Pod", ["po"], True),
        ("/api/v1", "secrets", "Secret", None, True),
        ("/api/v1", "serviceaccounts", "ServiceAccount", ["sa"], True),
        (f"/apis/{RBAC}/v1", "roles", "Role", None, True),
        (f"/apis/{RBAC}/v1", "rolebindings", "RoleBinding", None, True),
        (f"/apis/{RBAC}/v1", "clusterroles", "ClusterRole", None, False),
        (f"/apis/{RBAC}/v1", "clusterrolebindings", "ClusterRoleBinding", None, False),
        ("/apis/coordination.k8s.io/v1", "leases", "Lease", None, True),
        (
            "/apis/apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            ["crd", "crds"],
            False,
        ),
        ("/apis/kilnwork.dev/v1alpha1", "tasks", "Task", ["ktask"], True),
        ("/apis/kilnwork.dev/v1alpha1", "taskclusters", "TaskCluster", ["ktc"], True),
    ],
)
def test_resources_have_names_scope_and_verbs(
    admin: kube_servers.Http,
    path: str,
    name: str,
    kind: str,
    short: list[str] | None,
    *,
    namespaced: bool,
) -> None:
    """What each is called, whether it has namespaces, and all that can be done with it."""
    found = resources(admin, path)[name]
    assert (found["kind"], found["namespaced"], found.get("shortNames")) == (
        kind,
        namespaced,
        short,
    )
    assert found["singularName"] == kind.lower()
    assert sorted(found["verbs"]) == WRITE


def test_namespaces_cannot_be_deleted_as_collection(admin: kube_servers.Http) -> None:
    found = resources(admin, "/api/v1")["namespaces"]
    assert sorted(found["verbs"]) == [verb for verb in WRITE if verb != "deletecollection"]
    assert found["shortNames"] == ["ns"]


@pytest.mark.parametrize(
    ("name", "verbs", "kind"),
    [
        ("namespaces/finalize", ["update"], "Namespace"),
        ("namespaces/status", STATUS, "Namespace"),
        ("nodes/status", STATUS, "Node"),
        ("pods/attach", ["create", "get"], "PodAttachOptions"),
        ("pods/binding", ["create"], "Binding"),
        ("pods/eviction", ["create"], "Eviction"),
        ("pods/exec", ["create", "get"], "PodExecOptions"),
        ("pods/log", ["get"], "Pod"),
        ("pods/portforward", ["create", "get"], "PodPortForwardOptions"),
        ("pods/status", STATUS, "Pod"),
        ("serviceaccounts/token", ["create"], "TokenRequest"),
    ],
)
def test_subresources_name_the_kind_of_their_body(
    admin: kube_servers.Http, name: str, verbs: list[str], kind: str
) -> None:
    """With the kind of their body, and its group where that is another one."""
    found = resources(admin, "/api/v1")[name]
    assert (sorted(found["verbs"]), found["kind"], found["singularName"]) == (verbs, kind, "")
    others = {"Eviction": ("policy", "v1"), "TokenRequest": ("authentication.k8s.io", "v1")}
    assert (found.get("group"), found.get("version")) == others.get(kind, (None, None))


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("authentication.k8s.io", {"tokenreviews": False, "selfsubjectreviews": False}),
        (
            "authorization.k8s.io",
            {
                "selfsubjectaccessreviews": False,
                "subjectaccessreviews": False,
                "localsubjectaccessreviews": True,
                "selfsubjectrulesreviews": False,
            },
        ),
    ],
)
def test_reviews_are_discovered(
    admin: kube_servers.Http, group: str, expected: dict[str, bool]
) -> None:
    found = resources(admin, f"/apis/{group}/v1")
    assert {name: one["namespaced"] for name, one in found.items()} == expected
    assert all(one["verbs"] == ["create"] for one in found.values())


def test_groups_are_discovered(admin: kube_servers.Http) -> None:
    found = admin.get("/apis").ok()
    assert (found["kind"], found["apiVersion"]) == ("APIGroupList", "v1")
    groups = {group["name"]: group for group in found["groups"]}
    assert {RBAC, "coordination.k8s.io", "authorization.k8s.io", "kilnwork.dev"} <= set(groups)
    version = {"groupVersion": "kilnwork.dev/v1alpha1", "version": "v1alpha1"}
    assert groups["kilnwork.dev"] == {
        "name": "kilnwork.dev",
        "versions": [version],
        "preferredVersion": version,
    }
    alone = admin.get("/apis/kilnwork.dev").ok()
    assert alone == {"kind": "APIGroup", "apiVersion": "v1", **groups["kilnwork.dev"]}


def test_core_versions_are_discovered(admin: kube_servers.Http) -> None:
    found = admin.get("/api").ok()
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])
    assert found["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"
    assert admin.get("/api/").ok() == found


def test_aggregated_discovery_has_two_documents(admin: kube_servers.Http) -> None:
    """All of it in two documents (KEP-3352), for who accepts that."""
    for path, group in (("/api", None), ("/apis", "kilnwork.dev")):
        response = admin.get(path, headers={"Accept": KUBECTL})
        assert response.headers["Content-Type"] == AGGREGATED
        found = response.ok()
        assert (found["kind"], found["apiVersion"]) == (
            "APIGroupDiscoveryList",
            "apidiscovery.k8s.io/v2",
        )
        [one] = [item for item in found["items"] if item["metadata"].get("name") == group]
        [version] = one["versions"]
        assert version["freshness"] == "Current"
        names = {
            f"{r['resource']}{sub}": r
            for r in version["resources"]
            for sub in ("", *(f"/{s['subresource']}" for s in r.get("subresources", ())))
        }
        assert ("tasks/status" if group else "pods/log") in names
        some = names["tasks" if group else "pods"]
        assert (some["scope"], some["singularResource"]) == (
            "Namespaced",
            "task" if group else "pod",
        )
        assert sorted(some["verbs"]) == WRITE
        assert some["responseKind"]["kind"] == ("Task" if group else "Pod")
        assert some["categories"] == (["kiln"] if group else ["all"])


def test_aggregated_and_plain_discovery_agree(admin: kube_servers.Http) -> None:
    """Of every group that both know, once no other test defines a kind in between."""

    def is_same() -> bool:
        found = admin.get("/apis", headers={"Accept": AGGREGATED}).ok()["items"]
        plain = {group["name"] for group in admin.get("/apis").ok()["groups"]}
        if plain != {item["metadata"]["name"] for item in found}:
            return False
        for item in found:
            for version in item["versions"]:
                path = f"/apis/{item['metadata']['name']}/{version['version']}"
                names = {r["resource"] for r in version["resources"]}
                response = admin.get(path)
                if response.status == 404:
                    return False
                if names != {name.partition("/")[0] for name in by_name(response, path)}:
                    return False
        return True

    waiting.wait_until(is_same, what="both say the same")


def is_cached(http: kube_servers.Http, path: str) -> bool:
    """Unless another test defines a kind just now."""
    tag = http.get(path, headers={"Accept": AGGREGATED}).headers["ETag"]
    again = http.get(path, headers={"Accept": AGGREGATED, "If-None-Match": tag})
    return (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)


def test_aggregated_discovery_has_an_etag(admin: kube_servers.Http) -> None:
    """By an ETag: 304 for who has it already."""
    for path in ("/api", "/apis"):
        response = admin.get(path, headers={"Accept": AGGREGATED})
        assert response.headers["ETag"].startswith('"')
        assert response.headers["Vary"] == "Accept"
        waiting.wait_until(partial(is_cached, admin, path), what=f"{path} is kept")
        other = admin.get(path, headers={"Accept": AGGREGATED, "If-None-Match": '"else"'})
        assert other.status == 200


def test_plain_discovery_is_the_default(admin: kube_servers.Http) -> None:
    """For everybody who does not ask for the other."""
    assert admin.get("/apis", headers={"Accept": "application/json"}).ok()["kind"] == "APIGroupList"
