"""Discovery: plain and aggregated say the same."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import discovery
from support import served_kinds

AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


def plain(path: str) -> dict[str, Any]:
    found = discovery.document(
        path, accept="application/json", address="127.0.0.1:7443", kinds=served_kinds.SERVED
    )
    assert found is not None
    assert found[1] == "application/json"
    return found[0]


def test_discovery_lists_groups_and_versions() -> None:
    assert plain("/api")["versions"] == ["v1"]
    groups = {g["name"]: g["preferredVersion"]["groupVersion"] for g in plain("/apis")["groups"]}
    assert groups == {
        "apiextensions.k8s.io": "apiextensions.k8s.io/v1",
        "authentication.k8s.io": "authentication.k8s.io/v1",
        "authorization.k8s.io": "authorization.k8s.io/v1",
        "coordination.k8s.io": "coordination.k8s.io/v1",
        "rbac.authorization.k8s.io": "rbac.authorization.k8s.io/v1",
        "kilnwork.dev": "kilnwork.dev/v1alpha1",
    }
    assert plain("/apis/kilnwork.dev")["kind"] == "APIGroup"


def test_discovery_lists_our_resources() -> None:
    listed = {r["name"]: r for r in plain("/apis/kilnwork.dev/v1alpha1")["resources"]}
    assert listed.keys() >= {"tasks", "tasks/status", "taskobjects", "taskclusters"}
    assert listed["tasks"]["shortNames"] == ["ktask"]
    assert listed["tasks"]["categories"] == ["kiln"]
    assert "taskobjects/status" not in listed


def test_subresources_name_the_kind_of_their_body() -> None:
    listed = {r["name"]: r for r in plain("/api/v1")["resources"]}
    assert listed["serviceaccounts/token"]["group"] == "authentication.k8s.io"
    assert listed["pods/log"]["verbs"] == ["get"]
    assert not listed["nodes"]["namespaced"]


@pytest.mark.parametrize(
    "path", ["/apis/nope", "/apis/kilnwork.dev/v1", "/api/v2", "/apis/kilnwork.dev/v1alpha1/x"]
)
def test_unknown_discovery_path_has_no_document(path: str) -> None:
    assert discovery.document(path, accept="*/*") is None


@pytest.mark.parametrize("root", ["/api", "/apis"])
def test_aggregated_and_plain_discovery_agree(root: str) -> None:
    found = discovery.document(root, accept=AGGREGATED, kinds=served_kinds.SERVED)
    assert found is not None
    document, media_type = found
    assert media_type == ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    for group in document["items"]:
        [version] = group["versions"]
        name = group["metadata"].get("name")
        path = f"/apis/{name}/{version['version']}" if name else "/api/v1"
        listed = plain(path)["resources"]
        aggregated = [r["resource"] for r in version["resources"]]
        aggregated += [
            f"{r['resource']}/{s['subresource']}"
            for r in version["resources"]
            for s in r.get("subresources", ())
        ]
        assert sorted(aggregated) == sorted(r["name"] for r in listed)


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (AGGREGATED, "v2"),
        ("application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io", "v2beta1"),
        ("application/json", None),
        ("*/*", None),
        ("", None),
        ("application/json;as=APIGroupDiscoveryList;v=v9;g=apidiscovery.k8s.io", None),
    ],
)
def test_aggregated_discovery_depends_on_accept_order(accept: str, version: str | None) -> None:
    assert discovery.aggregated_version(accept) == version


def test_version_document_is_parsable_by_clients() -> None:
    said = discovery.version()
    assert (said["major"], said["minor"]) == ("1", "32")
    assert said["gitVersion"].startswith("v1.32.0+kilnwork-")
