"""OpenAPI: what kubectl looks for is there, and every reference leads somewhere."""

import re
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.apiserver import openapi, statuses
from support import served_kinds

OURS = "apis/kilnwork.dev/v1alpha1"


DOCUMENTS = openapi.Documents()


def raw(path: str, **more: str) -> bytes:
    page = DOCUMENTS.find(path, served_kinds.SERVED, **more)
    assert page is not None
    return page.body


def document(path: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(raw(f"/openapi/v3/{path}"))
    return found


def test_index_names_every_group_with_a_hash() -> None:
    paths = msgspec.json.decode(raw("/openapi/v3"))["paths"]
    assert sorted(paths) == [
        "api/v1",
        "apis/apiextensions.k8s.io/v1",
        "apis/coordination.k8s.io/v1",
        OURS,
        "apis/rbac.authorization.k8s.io/v1",
    ]
    url = paths[OURS]["serverRelativeURL"]
    assert re.fullmatch(rf"/openapi/v3/{OURS}\?hash=[0-9A-F]{{128}}", url)
    assert DOCUMENTS.find("/openapi/v3/apis/nope/v1", served_kinds.SERVED) is None


@pytest.mark.parametrize("path", ["api/v1", OURS, "apis/rbac.authorization.k8s.io/v1"])
def test_all_references_resolve(path: str) -> None:
    found = document(path)
    schemas = found["components"]["schemas"]
    text = raw(f"/openapi/v3/{path}").decode()
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert name in schemas


def test_our_kind_has_a_complete_schema() -> None:
    task = document(OURS)["components"]["schemas"]["dev.kilnwork.v1alpha1.Task"]
    gvk = {"group": "kilnwork.dev", "version": "v1alpha1", "kind": "Task"}
    assert task["x-kubernetes-group-version-kind"] == [gvk]
    assert task["properties"]["spec"]["properties"]["clusterName"]["default"] == "default"
    assert task["properties"]["metadata"]["allOf"][0]["$ref"].endswith(".ObjectMeta")


def test_kubectl_finds_field_validation_on_patch() -> None:
    """As cli-runtime's query_param_verifier_v3 looks for it, before it trusts the server."""
    for path, kind in (("api/v1", "Namespace"), ("api/v1", "Pod"), (OURS, "Task")):
        operations = [
            item["patch"]
            for item in document(path)["paths"].values()
            if item.get("patch", {}).get("x-kubernetes-group-version-kind", {}).get("kind") == kind
        ]
        assert operations
        for operation in operations:
            assert "fieldValidation" in [p["name"] for p in operation["parameters"]]


def test_built_in_kinds_have_complete_schemas() -> None:
    found = document("api/v1")["components"]["schemas"]
    assert "ephemeralContainers" in found["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert found["io.k8s.api.core.v1.Container"]["properties"]["image"]["description"]


def test_documents_change_with_served_kinds() -> None:
    documents = openapi.Documents()
    few = served_kinds.SERVED[:1]
    assert documents.find("/openapi/v3/api/v1", few) is documents.find("/openapi/v3/api/v1", few)
    assert documents.find("/openapi/v3/apis/coordination.k8s.io/v1", few) is None
    assert documents.find("/openapi/v3/apis/coordination.k8s.io/v1", served_kinds.SERVED)


def test_v2_has_no_v3_keywords() -> None:
    text = raw("/openapi/v2").decode()
    found = msgspec.json.decode(text)
    assert found["swagger"] == "2.0"
    assert '"nullable"' not in text
    for name in re.findall(r'"#/definitions/([^"]+)"', text):
        assert name in found["definitions"]


@pytest.mark.parametrize("accept", ["application/json", "*/*", "", "x/y, application/json;q=0.5"])
def test_v2_is_sent_as_json(accept: str) -> None:
    assert raw("/openapi/v2", accept=accept)


PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@pytest.mark.parametrize(
    "accept", [PROTOBUF, PROTOBUF.replace("v2.v1", "v2@v1"), f"x/y,{PROTOBUF}"]
)
def test_v2_is_sent_as_protobuf(accept: str) -> None:
    page = DOCUMENTS.find("/openapi/v2", served_kinds.SERVED, accept=accept)
    json = DOCUMENTS.find("/openapi/v2", served_kinds.SERVED)
    assert page is not None
    assert json is not None
    assert (page.media_type, page.digest) == (PROTOBUF, json.digest)
    assert json.media_type == "application/json"


def test_v2_in_another_format_is_not_acceptable() -> None:
    with pytest.raises(statuses.StatusError) as caught:
        raw("/openapi/v2", accept="application/yaml")
    assert caught.value.code == 406
