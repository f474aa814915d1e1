"""Replacing objects: whose version counts, what may not change, creation on update."""

import concurrent.futures
from typing import Any

import pytest

from support import kube_servers

MODIFIED = (
    'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply '
    "your changes to the latest version and try again"
)


@pytest.fixture
def path(admin: kube_servers.Http, namespace: str) -> str:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(collection, {"metadata": {"name": "a"}, "data": {"x": "y"}}).ok()
    return f"{collection}/a"


def test_replace_without_version_overwrites(admin: kube_servers.Http, path: str) -> None:
    """Built-in kinds take it: the last writer wins; what is not sent goes."""
    before = admin.get(path).json["metadata"]
    done = admin.put(path, {"metadata": {"name": "a"}, "data": {"z": "1"}}).ok()
    assert done["data"] == {"z": "1"}
    assert done["metadata"]["uid"] == before["uid"]
    assert int(done["metadata"]["resourceVersion"]) > int(before["resourceVersion"])


def test_replace_with_old_version_is_a_conflict(admin: kube_servers.Http, path: str) -> None:
    """409 Conflict, with the text that clients look for."""
    old = admin.get(path).json
    admin.put(path, old | {"data": {"x": "z"}}).ok()
    done = admin.put(path, old)
    assert done.status == 409
    assert done.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": MODIFIED,
        "reason": "Conflict",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


def test_unchanged_object_is_not_written(admin: kube_servers.Http, path: str) -> None:
    """The resourceVersion stays, for update and patch."""
    before = admin.get(path).json
    version = before["metadata"]["resourceVersion"]
    assert admin.put(path, before).ok()["metadata"]["resourceVersion"] == version
    patched = admin.patch(path, {"data": {"x": "y"}}).ok()
    assert patched["metadata"]["resourceVersion"] == version


def test_one_of_many_concurrent_updates_succeeds(
    admin: kube_servers.Http, path: str, server: Any
) -> None:
    """All others of the same version get 409, none is lost in silence."""
    before = admin.get(path).json

    def put(number: int) -> int:
        with server.admin() as http:
            response: kube_servers.Response = http.put(path, before | {"data": {"n": str(number)}})
            return response.status

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(put, range(8)))
    assert found == [200] + [409] * 7


@pytest.mark.parametrize(
    ("metadata", "status", "text"),
    [
        ({"name": "b"}, 400, "the name of the object (b) does not match the name on the URL (a)"),
        (
            {},
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            {"name": "a", "namespace": "q"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"name": "a", "resourceVersion": "abc"},
            500,
            'strconv.ParseUint: parsing "abc": invalid syntax',
        ),
    ],
    ids=["name", "no-name", "namespace", "version"],
)
def test_body_that_contradicts_the_path_is_a_bad_request(
    admin: kube_servers.Http, path: str, metadata: Any, status: int, text: str
) -> None:
    """400, except for a version that is no number: 500."""
    done = admin.put(path, {"metadata": metadata})
    assert (done.status, done.message) == (status, text)


def test_other_uid_is_a_conflict(admin: kube_servers.Http, path: str) -> None:
    """409: the client means an object that is no more."""
    done = admin.put(path, {"metadata": {"name": "a", "uid": "x"}})
    assert done.status == 409
    uid = admin.get(path).json["metadata"]["uid"]
    assert done.message.endswith(
        f"Precondition failed: UID in precondition: x, UID in object meta: {uid}"
    )


@pytest.mark.parametrize("metadata", [{}, {"resourceVersion": "5"}], ids=["plain", "version"])
def test_update_of_missing_object_is_not_found(
    admin: kube_servers.Http, path: str, metadata: Any
) -> None:
    new = path.removesuffix("/a") + "/new"
    done = admin.put(new, {"metadata": {"name": "new", **metadata}})
    assert done.status == 404
    assert done.message == 'configmaps "new" not found'


def test_update_creates_objects_of_some_kinds(admin: kube_servers.Http, namespace: str) -> None:
    """Leases allow it: 201; the next one needs the version."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"
    made = admin.put(path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    assert made.status == 201
    again = admin.put(path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "b"}})
    assert again.status == 422
    assert again.message == (
        'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0x0: '
        "must be specified for an update"
    )
    made.json["spec"]["holderIdentity"] = "b"
    assert admin.put(path, made.json).status == 200


def test_update_recreates_deleted_object(admin: kube_servers.Http, namespace: str) -> None:
    """The version that the sender knew is no matter then."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"
    known = admin.put(path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}).json
    admin.delete(path).ok()
    known["metadata"] = {"name": "l", "resourceVersion": known["metadata"]["resourceVersion"]}
    made = admin.put(path, known)
    assert made.status == 201
    assert made.json["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]


def test_server_set_metadata_is_restored(admin: kube_servers.Http, path: str) -> None:
    """creationTimestamp and generation are put back without a word."""
    before = admin.get(path).json["metadata"]
    given = {"name": "a", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 5}
    done = admin.put(path, {"metadata": given}).ok()["metadata"]
    assert done["creationTimestamp"] == before["creationTimestamp"]


def test_deletion_timestamp_in_update_is_rejected(admin: kube_servers.Http, path: str) -> None:
    """A deletionTimestamp is refused, by two rules with the same text."""
    given = {"name": "a", "deletionTimestamp": "2020-01-01T00:00:00Z"}
    done = admin.put(path, {"metadata": given})
    assert done.status == 422
    assert done.message == (
        'ConfigMap "a" is invalid: metadata.deletionTimestamp: Invalid value: 2020-01-01 00:00:00 '
        "+0000 UTC: field is immutable"
    )


def test_immutable_config_map_cannot_change(admin: kube_servers.Http, namespace: str) -> None:
    """Neither the data nor the mark may change; labels may."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(collection, {"metadata": {"name": "im"}, "immutable": True, "data": {"a": "b"}}).ok()
    data = admin.patch(f"{collection}/im", {"data": {"a": "c"}})
    assert data.message == (
        'ConfigMap "im" is invalid: data: Forbidden: field is immutable when `immutable` is set'
    )
    mark = admin.patch(f"{collection}/im", {"immutable": False})
    assert mark.message == (
        'ConfigMap "im" is invalid: immutable: Forbidden: field is immutable when `immutable` is '
        "set"
    )
    admin.patch(f"{collection}/im", {"metadata": {"labels": {"a": "b"}}}).ok()


def test_dry_run_update_stores_nothing(admin: kube_servers.Http, path: str) -> None:
    """200 with the new content and the old version."""
    before = admin.get(path).json
    done = admin.put(path, before | {"data": {"dry": "1"}}, dryRun="All").ok()
    assert done["data"] == {"dry": "1"}
    assert done["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert admin.get(path).json == before


def test_update_options_are_validated(admin: kube_servers.Http, path: str) -> None:
    """422 of kind UpdateOptions; PatchOptions for a patch."""
    put = admin.put(path, {"metadata": {"name": "a"}}, dryRun="x")
    assert put.message == (
        'UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: []string{"x"}: '
        'supported values: "All"'
    )
    patch = admin.patch(path, {}, dryRun="x")
    assert patch.message == (
        'PatchOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: []string{"x"}: '
        'supported values: "All"'
    )


def test_role_of_a_binding_cannot_change(admin: kube_servers.Http, namespace: str) -> None:
    """roleRef may not change."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    admin.post(path, {"metadata": {"name": "b"}, "roleRef": role}).ok()
    done = admin.patch(f"{path}/b", {"roleRef": {"name": "edit"}})
    assert done.status == 422
    assert done.json["details"]["causes"][0]["field"] == "roleRef"
    assert done.message.endswith("cannot change roleRef")
