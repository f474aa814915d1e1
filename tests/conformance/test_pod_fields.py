"""Fields of Pods that may be written in some ways only."""

from typing import Any

import pytest

from support import kube_servers

GATE = {"name": "example.com/wait"}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "label", "command": ["true"]}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_ephemeral_containers_are_rejected_on_create(
    admin: kube_servers.Http, namespace: str
) -> None:
    more = {"name": "e", "image": "label"}
    refused = admin.post(
        f"/api/v1/namespaces/{namespace}/pods", pod("p", ephemeralContainers=[more])
    )
    assert refused.status == 422
    causes = refused.json["details"]["causes"]
    assert {c["field"]: c["message"] for c in causes}["spec.ephemeralContainers"] == (
        "Forbidden: cannot be set on create"
    )


def test_scheduling_gates_can_only_be_removed(admin: kube_servers.Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/gated"
    admin.post(f"/api/v1/namespaces/{namespace}/pods", pod("gated", schedulingGates=[GATE])).ok()
    other = {"name": "example.com/other"}
    refused = admin.patch(path, {"spec": {"schedulingGates": [GATE, other]}})
    assert refused.status == 422
    cause = refused.json["details"]["causes"][0]
    assert cause["field"] == "spec.schedulingGates[1].name"
    assert cause["message"] == (
        "Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/other'"
    )
    left = admin.patch(path, {"spec": {"schedulingGates": None}}).ok()
    assert "schedulingGates" not in left["spec"]


FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX = "unable to parse quantity's suffix"


def limited(name: str, memory: object, requests: object = None) -> dict[str, Any]:
    made = pod(name)
    resources = {"limits": {"memory": memory}, "requests": requests}
    made["spec"]["containers"][0]["resources"] = resources
    return made


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        ("nope", FORM), ("", FORM), ("1x", FORM), ("1.2.3", FORM), ("1E2E", FORM), (True, FORM),
        ({}, FORM), ("--1", SUFFIX), ("1e", SUFFIX), ("1Ki1", SUFFIX),
    ],
)  # fmt: skip
def test_malformed_quantity_is_rejected(
    admin: kube_servers.Http, namespace: str, memory: object, text: str
) -> None:
    refused = admin.post(f"/api/v1/namespaces/{namespace}/pods", limited("p", memory))
    expected = f'Pod in version "v1" cannot be handled as a Pod: {text}'
    assert (refused.status, refused.json["message"]) == (400, expected)


def test_every_quantity_format_is_accepted(admin: kube_servers.Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for i, memory in enumerate(
        (1.5, "0.5", ".5", "5.", " 1", "1000m", "100u", "5n", "10e3", "1E+2", "+1Gi", "e3", None)
    ):
        admin.post(path, limited(f"p{i}", memory)).ok()


@pytest.mark.parametrize(
    "spec",
    [
        {"overhead": {"cpu": "x"}},
        {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "x"}}]},
        {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "x"}}}]},
        {"initContainers": [{"name": "i", "env": [{"name": "A", "valueFrom": {
            "resourceFieldRef": {"resource": "limits.cpu", "divisor": "x"}}}]}]},
    ],
    ids=["overhead", "volume", "init container", "divisor"],
)  # fmt: skip
def test_quantities_are_checked_in_every_field(
    admin: kube_servers.Http, namespace: str, spec: dict[str, Any]
) -> None:
    refused = admin.post(f"/api/v1/namespaces/{namespace}/pods", pod("p", **spec))
    assert (refused.status, FORM in refused.json["message"]) == (400, True)


@pytest.mark.parametrize(
    ("requests", "field", "text"),
    [
        ({"cpu": "-1"}, "requests[cpu]", '"-1": must be greater than or equal to 0'),
        ({"memory": "2Mi"}, "requests", '"2Mi": must be less than or equal to memory limit of 1Mi'),
    ],
)
def test_impossible_amounts_are_rejected(
    admin: kube_servers.Http, namespace: str, requests: dict[str, str], field: str, text: str
) -> None:
    made = limited("p", "1Mi", requests)
    refused = admin.post(f"/api/v1/namespaces/{namespace}/pods", made)
    assert refused.status == 422
    [cause] = refused.json["details"]["causes"]
    found = (cause["field"], cause["message"])
    assert found == (f"spec.containers[0].resources.{field}", f"Invalid value: {text}")
