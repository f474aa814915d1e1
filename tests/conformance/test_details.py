"""Details that random stories (test_same_story.py) have found to differ once."""

from typing import Any

import pytest

from support import kube_servers
from support.kube_servers import APPLY, JSON_PATCH, STRATEGIC


@pytest.fixture
def core_path(namespace: str) -> str:
    """The path of this test's objects of core/v1."""
    return f"/api/v1/namespaces/{namespace}"


def object_named(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **more}


def pod(**spec: Any) -> dict[str, Any]:
    return object_named(
        spec={"schedulerName": "x", "containers": [{"name": "c", "image": "i"}], **spec}
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("rbac.authorization.k8s.io/v1/namespaces/*/roles", {"rules": []}),
        (
            "rbac.authorization.k8s.io/v1/namespaces/*/rolebindings",
            {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}},
        ),
    ],
    ids=["role", "binding"],
)
def test_created_on_update_kinds_need_no_version(
    admin: kube_servers.Http, namespace: str, path: str, body: dict[str, Any]
) -> None:
    """PUT makes it, and PUT without a resourceVersion changes it."""
    one = f"/apis/{path.replace('*', namespace)}/a"
    assert admin.put(one, object_named(**body)).status == 201
    changed = {"metadata": {"name": "a", "labels": {"x": "y"}}, **body}
    assert admin.put(one, changed).ok()["metadata"]["labels"] == {"x": "y"}
    unread = admin.put(f"{one}2", {**body, "metadata": {"name": "a2", "resourceVersion": "x"}})
    assert (unread.status, unread.reason) == (500, None)


def test_lease_spec_is_defaulted_and_validated(admin: kube_servers.Http, namespace: str) -> None:
    """An empty spec is there; 422 names both wrong numbers."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    assert admin.post(leases, object_named()).ok()["spec"] == {}
    wrong = object_named("b", spec={"leaseDurationSeconds": 0, "leaseTransitions": -1})
    assert [c["field"] for c in admin.post(leases, wrong).json["details"]["causes"]] == [
        "spec.leaseDurationSeconds",
        "spec.leaseTransitions",
    ]


def test_basic_auth_secret_needs_username_or_password(
    admin: kube_servers.Http, core_path: str
) -> None:
    """422 for neither; one of them is enough."""
    secret = object_named(type="kubernetes.io/basic-auth")
    refused = admin.post(f"{core_path}/secrets", secret)
    assert [c["field"] for c in refused.json["details"]["causes"]] == [
        "data[username]",
        "data[password]",
    ]
    admin.post(f"{core_path}/secrets", {**secret, "data": {"password": ""}}).ok()


def test_rejected_writes_have_warnings(admin: kube_servers.Http, core_path: str) -> None:
    """For unknown fields, of an object that is there already for example."""
    maps = f"{core_path}/configmaps"
    admin.post(maps, object_named()).ok()
    again = admin.post(maps, object_named(odd=1))
    assert again.status == 409
    assert again.warnings == [r'299 - "unknown field \"odd\""']
    late = {"metadata": {"name": "a", "resourceVersion": "1"}, "odd": 1}
    assert admin.put(f"{maps}/a", late).warnings == [r'299 - "unknown field \"odd\""']


def test_validation_precedes_existing_name_conflict(
    admin: kube_servers.Http, core_path: str
) -> None:
    admin.post(f"{core_path}/configmaps", object_named("a")).ok()
    assert admin.post(f"{core_path}/configmaps", object_named(data={"/": ""})).status == 422


def test_pod_gets_priority_and_default_tolerations(
    admin: kube_servers.Http, core_path: str
) -> None:
    """Priority and two tolerations, which no manager owns, are in every new Pod."""
    made = admin.post(f"{core_path}/pods", pod()).ok()
    spec = made["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [(t["key"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    (entry,) = made["metadata"]["managedFields"]
    fields = entry["fieldsV1"]
    assert fields.keys() == {"f:spec"}
    assert not fields["f:spec"].keys() & {"f:priority", "f:tolerations", "f:serviceAccountName"}
    assert fields["f:spec"]["f:containers"].keys() == {'k:{"name":"c"}'}


def test_toleration_of_everything_suffices(admin: kube_servers.Http, core_path: str) -> None:
    given = [{"operator": "Exists"}]
    assert (
        admin.post(f"{core_path}/pods", pod(tolerations=given)).ok()["spec"]["tolerations"] == given
    )


def test_pod_status_update_can_change_labels(admin: kube_servers.Http, core_path: str) -> None:
    """Metadata may change through it; the class of service is kept, and not changed."""
    admin.post(f"{core_path}/pods", pod()).ok()
    path = f"{core_path}/pods/a/status"
    done = admin.patch(path, {"metadata": {"labels": {"x": "y"}}, "status": None}).ok()
    assert done["metadata"]["labels"] == {"x": "y"}
    assert done["status"]["qosClass"] == "BestEffort"
    assert admin.patch(path, {"status": {"qosClass": "Guaranteed"}}).status == 422


def test_no_op_apply_has_no_time(admin: kube_servers.Http, core_path: str) -> None:
    """The applier owns what it named; when it began to is not said."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", **object_named(data={"a": "1"})}
    admin.post(f"{core_path}/configmaps", config).ok()
    done = admin.patch(f"{core_path}/configmaps/a", config, form=APPLY, fieldManager="one").ok()
    (own,) = (e for e in done["metadata"]["managedFields"] if e["operation"] == "Apply")
    assert "time" not in own


def test_apply_conflicts_list_outer_fields_first(admin: kube_servers.Http, core_path: str) -> None:
    """Fields of the object itself before those further inside."""
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        **object_named(data={"a": "1"}),
        "immutable": False,
    }
    admin.post(f"{core_path}/configmaps", config).ok()
    other = {**config, "data": {"a": "2"}, "immutable": True}
    refused = admin.patch(f"{core_path}/configmaps/a", other, form=APPLY, fieldManager="one")
    assert [c["field"] for c in refused.json["details"]["causes"]] == [".immutable", ".data.a"]


def test_delete_collection_returns_previous_state(admin: kube_servers.Http, core_path: str) -> None:
    """Without the mark of deletion, also where a finalizer holds the object."""
    held = {"metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": ["a.b/c"]}}
    made = admin.post(f"{core_path}/configmaps", held).ok()
    (shown,) = admin.delete(f"{core_path}/configmaps", labelSelector="x").ok()["items"]
    assert shown["metadata"] == made["metadata"]
    admin.patch(f"{core_path}/configmaps/a", {"metadata": {"finalizers": None}}).ok()


def test_get_with_invalid_version_is_a_server_error(
    admin: kube_servers.Http, core_path: str
) -> None:
    """500 without a reason, where a list has 400."""
    admin.post(f"{core_path}/configmaps", object_named()).ok()
    done = admin.get(f"{core_path}/configmaps/a", resourceVersion="x")
    assert done.status == 500
    assert "reason" not in done.json
    assert done.message.startswith('resourceVersion: Invalid value: "x": strconv.ParseUint')


def test_inapplicable_patch_has_empty_details(admin: kube_servers.Http, core_path: str) -> None:
    """Empty details; what is copied from a missing field is null; an item needs its key."""
    admin.post(f"{core_path}/pods", pod()).ok()
    remove = [{"op": "remove", "path": "/odd"}]
    refused = admin.patch(f"{core_path}/pods/a", remove, form=JSON_PATCH)
    assert (refused.status, refused.json["details"]) == (422, {})
    copied = [{"op": "copy", "from": "/odd", "path": "/metadata/labels"}]
    assert (
        "labels" not in admin.patch(f"{core_path}/pods/a", copied, form=JSON_PATCH).ok()["metadata"]
    )
    keyless = {"spec": {"containers": [{"image": "x"}]}}
    failed = admin.patch(f"{core_path}/pods/a", keyless, form=STRATEGIC)
    assert failed.status == 500
    assert failed.message == "map: map[image:x] does not contain declared merge key: name"


def test_patch_that_removes_metadata_is_rejected(admin: kube_servers.Http, core_path: str) -> None:
    """400: what is left has no name."""
    admin.post(f"{core_path}/configmaps", object_named()).ok()
    done = admin.patch(f"{core_path}/configmaps/a", {"metadata": None})
    assert (done.status, done.message) == (
        400,
        "the name of the object (a based on URL) was undeterminable: name must be provided",
    )
