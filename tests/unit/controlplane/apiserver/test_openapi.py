"""OpenAPI: what kubectl looks for is there, and every reference leads somewhere."""

import re
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.apiserver import openapi, statuses

OURS = "apis/kilnwork.dev/v1alpha1"


def document(path: str) -> dict[str, Any]:
    raw = openapi.document(f"/openapi/v3/{path}")
    assert raw is not None
    found: dict[str, Any] = msgspec.json.decode(raw)
    return found


def test_index_names_every_group_with_a_hash() -> None:
    paths = msgspec.json.decode(openapi.document("/openapi/v3") or b"")["paths"]
    assert sorted(paths) == [
        "api/v1",
        "apis/coordination.k8s.io/v1",
        OURS,
        "apis/rbac.authorization.k8s.io/v1",
    ]
    url = paths[OURS]["serverRelativeURL"]
    assert re.fullmatch(rf"/openapi/v3/{OURS}\?hash=[0-9A-F]{{32}}", url)
    assert openapi.document("/openapi/v3/apis/nope/v1") is None


@pytest.mark.parametrize("path", ["api/v1", OURS, "apis/rbac.authorization.k8s.io/v1"])
def test_references_lead_somewhere(path: str) -> None:
    found = document(path)
    schemas = found["components"]["schemas"]
    for name in re.findall(
        r'"#/components/schemas/([^"]+)"', (openapi.document(f"/openapi/v3/{path}") or b"").decode()
    ):
        assert name in schemas


def test_our_kind_is_described_in_full() -> None:
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


def test_built_in_kinds_hold_more_than_is_described() -> None:
    pod = document("api/v1")["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-preserve-unknown-fields"]
    containers = pod["properties"]["spec"]["properties"]["containers"]
    assert containers["items"]["properties"]["image"] == {"type": "string"}


def test_v2_has_no_words_of_v3() -> None:
    text = (openapi.document("/openapi/v2") or b"").decode()
    found = msgspec.json.decode(text)
    assert found["swagger"] == "2.0"
    assert '"nullable"' not in text
    for name in re.findall(r'"#/definitions/([^"]+)"', text):
        assert name in found["definitions"]


@pytest.mark.parametrize("accept", ["application/json", "*/*", "", "x/y, application/json;q=0.5"])
def test_v2_is_sent_as_json(accept: str) -> None:
    assert openapi.document("/openapi/v2", accept=accept)


def test_v2_is_not_sent_as_protobuf() -> None:
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    with pytest.raises(statuses.StatusError) as caught:
        openapi.document("/openapi/v2", accept=protobuf)
    assert caught.value.code == 406
