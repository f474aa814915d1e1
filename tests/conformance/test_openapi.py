"""OpenAPI: what kubectl and client generators look for."""

import re
from typing import Any

import pytest

from support import kube_servers, waiting

KILN = "apis/kilnwork.dev/v1alpha1"
GVK = "x-kubernetes-group-version-kind"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"


def group(http: kube_servers.Http, name: str) -> Any:
    """The document of a group and version, by the URL of the index."""
    index = http.get("/openapi/v3").json["paths"]
    return http.get(index[name]["serverRelativeURL"]).ok()


def schemas(http: kube_servers.Http, name: str) -> dict[str, Any]:
    found: dict[str, Any] = group(http, name)["components"]["schemas"]
    return found


@pytest.mark.parametrize(
    "name", ["api/v1", "apis/rbac.authorization.k8s.io/v1", "apis/apiextensions.k8s.io/v1", KILN]
)
def test_every_group_has_a_document(admin: kube_servers.Http, name: str) -> None:
    """Named in the index with a hash; each reference in it leads somewhere."""
    url = admin.get("/openapi/v3").json["paths"][name]["serverRelativeURL"]
    assert re.fullmatch(rf"/openapi/v3/{re.escape(name)}\?hash=[0-9A-F]+", url)
    response = admin.get(url)
    found = response.ok()
    assert found["openapi"].startswith("3.0")
    known = found["components"]["schemas"]
    for target in re.findall(r'"#/components/schemas/([^"]+)"', response.body.decode()):
        assert target in known


def test_documents_are_cached_by_hash(admin: kube_servers.Http) -> None:
    """For ever; another hash leads to the right one; without one there is an ETag."""
    url = admin.get("/openapi/v3").json["paths"][KILN]["serverRelativeURL"]
    response = admin.get(url)
    assert response.headers["Cache-Control"] == "public, immutable"
    assert response.headers["Vary"] == "Accept"
    wrong = admin.get(f"/openapi/v3/{KILN}", hash="ABC")
    assert (wrong.status, wrong.headers["Location"]) == (301, url)
    tag = response.headers["ETag"]
    assert tag == f'"{url.partition("=")[2]}"'
    again = admin.get(f"/openapi/v3/{KILN}", headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")


def test_unknown_group_has_no_document(admin: kube_servers.Http) -> None:
    assert admin.get("/openapi/v3/apis/nope.example.com/v1").status == 404
    assert admin.get("/openapi").status == 404


@pytest.mark.parametrize(
    ("name", "type_", "kind"),
    [
        ("api/v1", "io.k8s.api.core.v1.Pod", ("", "v1", "Pod")),
        ("api/v1", "io.k8s.api.core.v1.ConfigMapList", ("", "v1", "ConfigMapList")),
        (
            "apis/coordination.k8s.io/v1",
            "io.k8s.api.coordination.v1.Lease",
            ("coordination.k8s.io", "v1", "Lease"),
        ),
        (KILN, "dev.kilnwork.v1alpha1.Task", ("kilnwork.dev", "v1alpha1", "Task")),
        (KILN, "dev.kilnwork.v1alpha1.TaskList", ("kilnwork.dev", "v1alpha1", "TaskList")),
    ],
)
def test_types_name_their_kind(
    admin: kube_servers.Http, name: str, type_: str, kind: tuple[str, str, str]
) -> None:
    """By which `kubectl explain` finds them."""
    found = schemas(admin, name)[type_]
    assert found[GVK] == [dict(zip(("group", "version", "kind"), kind, strict=True))]
    assert {"apiVersion", "kind", "metadata"} <= set(found["properties"])


def test_custom_kind_has_metadata_type(admin: kube_servers.Http) -> None:
    found = schemas(admin, KILN)
    target = found["dev.kilnwork.v1alpha1.Task"]["properties"]["metadata"]["allOf"]
    assert target == [{"$ref": f"#/components/schemas/{META}.ObjectMeta"}]
    assert "ownerReferences" in found[f"{META}.ObjectMeta"]["properties"]
    assert f"{META}.DeleteOptions" in found


def test_built_in_kinds_are_described(admin: kube_servers.Http) -> None:
    """Down to the last field, with how lists merge."""
    found = schemas(admin, "api/v1")
    spec = found["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert "topologySpreadConstraints" in spec
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["x-kubernetes-list-type"] == "map"
    assert found["io.k8s.api.core.v1.Container"]["required"] == ["name"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("api/v1", "/api/v1/namespaces/{namespace}/configmaps/{name}"),
        ("api/v1", "/api/v1/namespaces/{name}"),
        (KILN, f"/{KILN}/namespaces/{{namespace}}/tasks/{{name}}"),
    ],
)
def test_patch_operation_has_parameters_and_types(
    admin: kube_servers.Http, name: str, path: str
) -> None:
    """Where clients look whether fieldValidation and dryRun are known, and which patches."""
    patch = group(admin, name)["paths"][path]["patch"]
    parameters = {parameter["name"] for parameter in patch["parameters"]}
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= parameters
    assert patch["x-kubernetes-action"] == "patch"
    assert patch[GVK]["version"] == name.rpartition("/")[2]
    taken = {"application/json-patch+json", "application/merge-patch+json"}
    if name == "api/v1":
        taken.add("application/strategic-merge-patch+json")
    assert taken <= set(patch["requestBody"]["content"])
    assert ("application/strategic-merge-patch+json" in patch["requestBody"]["content"]) == (
        name == "api/v1"
    )


def test_v2_describes_all_types(admin: kube_servers.Http) -> None:
    """Still there, for old clients, with the same types in its own words."""
    response = admin.get("/openapi/v2")
    found = response.ok()
    assert found["swagger"] == "2.0"
    for target in re.findall(r'"#/definitions/([^"]+)"', response.body.decode()):
        assert target in found["definitions"]
    config_map = found["definitions"]["io.k8s.api.core.v1.ConfigMap"]
    assert config_map["properties"]["metadata"]["$ref"] == f"#/definitions/{META}.ObjectMeta"
    assert "dev.kilnwork.v1alpha1.Task" in found["definitions"]
    assert "/api/v1/namespaces/{namespace}/configmaps/{name}" in found["paths"]


def test_v2_has_an_etag(admin: kube_servers.Http) -> None:
    """By an ETag; another one when another test has defined a kind meanwhile."""

    def is_cached() -> bool:
        tag = admin.get("/openapi/v2").headers["ETag"]
        again = admin.get("/openapi/v2", headers={"If-None-Match": tag})
        return (again.status, again.body) == (304, b"")

    waiting.wait_until(is_cached, what="it is kept")


PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (PROTOBUF, PROTOBUF),
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF),
        (f"{PROTOBUF};q=0.5, application/json;q=0.9", "application/json"),
        (f"{PROTOBUF}, application/json;q=0.9", PROTOBUF),
        ("application/yaml, */*;q=0.1", "application/json"),
    ],
)
def test_v2_is_json_or_protobuf_as_accepted(
    admin: kube_servers.Http, accept: str, media_type: str
) -> None:
    """kubectl takes protobuf only. The ETag is the same in all forms."""

    def is_same() -> bool:
        response = admin.get("/openapi/v2", headers={"Accept": accept})
        assert (response.status, response.headers["Content-Type"]) == (200, media_type)
        assert response.headers["Vary"].startswith("Accept")
        tag = admin.get("/openapi/v2").headers["ETag"]
        again = admin.get("/openapi/v2", headers={"Accept": accept, "If-None-Match": tag})
        return response.headers["ETag"] == tag and (again.status, again.body) == (304, b"")

    waiting.wait_until(is_same, what="no other test defines a kind meanwhile")


def test_v2_in_another_format_is_not_acceptable(admin: kube_servers.Http) -> None:
    assert admin.get("/openapi/v2", headers={"Accept": "application/yaml"}).status == 406
