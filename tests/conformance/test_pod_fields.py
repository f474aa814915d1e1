"""Fields of Pods that may be written in some ways only."""

from typing import Any

from support import kube_servers

GATE = {"name": "example.com/wait"}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "label", "command": ["true"]}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_ephemeral_containers_are_not_created_with_the_pod(
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


def test_scheduling_gates_hold_a_pod_and_can_only_be_taken_away(
    admin: kube_servers.Http, namespace: str
) -> None:
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
