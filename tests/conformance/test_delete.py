"""Deleting: the response, preconditions, options, finalizers, grace of Pods, whole collections."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from support import kube_servers

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def config_maps_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def make(admin: kube_servers.Http, config_maps_path: str) -> Make:
    def made(name: str, **metadata: Any) -> dict[str, Any]:
        body = {"metadata": {"name": name, **metadata}}
        found: dict[str, Any] = admin.post(config_maps_path, body).ok()
        return found

    return made


def test_delete_returns_status_with_uid(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """Of an object that is gone; then 404."""
    uid = make("a")["metadata"]["uid"]
    assert admin.delete(f"{config_maps_path}/a").ok() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    }
    again = admin.delete(f"{config_maps_path}/a")
    assert again.status == 404
    assert again.message == 'configmaps "a" not found'


def test_dry_run_deletes_nothing(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    make("a")
    assert admin.delete(f"{config_maps_path}/a", dryRun="All").ok()["status"] == "Success"
    assert admin.delete(f"{config_maps_path}/a", {"dryRun": ["All"]}).ok()["status"] == "Success"
    assert admin.get(f"{config_maps_path}/a").status == 200


def test_preconditions_are_checked(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """409; the text names the kind, not the resource."""
    found = make("a")["metadata"]
    other = admin.delete(f"{config_maps_path}/a", {"preconditions": {"uid": "x"}})
    assert other.status == 409
    assert other.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (x) does not '
        f"match the UID in record ({found['uid']}). The object might have been deleted and then "
        "recreated"
    )
    assert other.json["details"] == {"name": "a", "kind": "ConfigMap"}
    old = admin.delete(f"{config_maps_path}/a", {"preconditions": {"resourceVersion": "1"}})
    assert old.status == 409
    assert old.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition '
        f"(1) does not match the ResourceVersion in record ({found['resourceVersion']}). The "
        "object might have been modified"
    )
    right = {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}
    admin.delete(f"{config_maps_path}/a", {"preconditions": right}).ok()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"propagationPolicy": "Bad"},
            (
                'propagationPolicy: Unsupported value: "Bad": supported values: "Foreground", '
                '"Background", "Orphan", "nil"'
            ),
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            (
                'propagationPolicy: Invalid value: "Orphan": orphanDependents and '
                "deletionPropagation cannot be both set"
            ),
        ),
        (
            {"dryRun": ["x"]},
            'dryRun: Unsupported value: []string{"x"}: supported values: "All"',
        ),
    ],
    ids=["policy", "both", "dryRun"],
)
def test_delete_options_are_validated(
    admin: kube_servers.Http, config_maps_path: str, make: Make, body: Any, text: str
) -> None:
    make("a")
    done = admin.delete(f"{config_maps_path}/a", body)
    assert done.status == 422
    assert done.message == f'DeleteOptions.meta.k8s.io "" is invalid: {text}'


def test_query_options_are_validated(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    make("a")
    done = admin.delete(f"{config_maps_path}/a", propagationPolicy="Bad")
    assert done.status == 422
    assert admin.delete(f"{config_maps_path}/a", dryRun="x").status == 422


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"kind": "Status"}, "converting (v1.Status) to (v1.DeleteOptions): unknown conversion"),
        ("[", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        (
            {"gracePeriodSeconds": "x"},
            (
                "json: cannot unmarshal string into Go struct field "
                "DeleteOptions.gracePeriodSeconds of type int64"
            ),
        ),
    ],
    ids=["kind", "cut", "type"],
)
def test_unreadable_options_are_an_error(
    admin: kube_servers.Http, config_maps_path: str, make: Make, body: Any, text: str
) -> None:
    make("a")
    done = admin.delete(f"{config_maps_path}/a", body)
    assert (done.status, done.message) == (500, text)
    assert admin.get(f"{config_maps_path}/a").status == 200


# --- finalizers ---------------------------------------------------------------------------------


def test_object_with_finalizers_is_only_marked(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """The response is the object as marked; a second delete changes nothing."""
    make("a", finalizers=["a.b/c"])
    marked = admin.delete(f"{config_maps_path}/a").ok()
    assert marked["kind"] == "ConfigMap"
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert admin.delete(f"{config_maps_path}/a").ok() == marked
    taken = admin.post(config_maps_path, {"metadata": {"name": "a"}})
    assert taken.status == 409
    assert taken.message == 'object is being deleted: configmaps "a" already exists'


def test_deleted_object_with_finalizer_can_change(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """But gets no new finalizers and stays marked."""
    make("a", finalizers=["a.b/c"])
    marked = admin.delete(f"{config_maps_path}/a").ok()["metadata"]["deletionTimestamp"]
    more = admin.patch(f"{config_maps_path}/a", {"metadata": {"finalizers": ["a.b/c", "x.y/z"]}})
    assert more.status == 422
    assert more.message == (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added '
        'if the object is being deleted, found new finalizers []string{"x.y/z"}'
    )
    revived = admin.patch(f"{config_maps_path}/a", {"metadata": {"deletionTimestamp": None}}).ok()
    assert revived["metadata"]["deletionTimestamp"] == marked
    assert admin.patch(f"{config_maps_path}/a", {"data": {"a": "b"}}).ok()["data"] == {"a": "b"}


def test_removal_of_last_finalizer_removes_object(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """With the write that takes the last one: 200 with the last state, then 404."""
    version = make("a", finalizers=["a.b/c", "a.b/d"])["metadata"]["resourceVersion"]
    admin.delete(f"{config_maps_path}/a").ok()
    admin.patch(f"{config_maps_path}/a", {"metadata": {"finalizers": ["a.b/d"]}}).ok()
    last = admin.patch(f"{config_maps_path}/a", {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert "finalizers" not in last.json["metadata"]
    assert admin.get(f"{config_maps_path}/a").status == 404
    with admin.watch(config_maps_path, resourceVersion=version) as watch:
        assert watch.take(3) == [("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


# --- collections --------------------------------------------------------------------------------


def test_collection_is_deleted_by_labels(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """The response lists what was deleted."""
    for name in ("a", "b"):
        make(name, labels={"c": "1"})
    make("z")
    dry = admin.delete(config_maps_path, labelSelector="c=1", dryRun="All").ok()
    assert [i["metadata"]["name"] for i in dry["items"]] == ["a", "b"]
    done = admin.delete(config_maps_path, labelSelector="c=1").ok()
    assert done["kind"] == "ConfigMapList"
    assert [i["metadata"]["name"] for i in done["items"]] == ["a", "b"]
    assert admin.get(f"{config_maps_path}/a").status == 404
    assert admin.get(f"{config_maps_path}/z").status == 200
    assert admin.delete(config_maps_path, labelSelector="c=1").ok()["items"] == []


def test_collection_is_deleted_in_one_namespace(admin: kube_servers.Http) -> None:
    assert admin.delete("/api/v1/configmaps", labelSelector="c=1").status == 405
    assert admin.delete("/api/v1/namespaces", labelSelector="c=none").status == 405


# --- Pods ---------------------------------------------------------------------------------------


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "b"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def test_unbound_pod_is_removed_at_once(admin: kube_servers.Http, pods: str) -> None:
    """The response is the Pod, with no grace left."""
    admin.post(pods, pod("p", nodeSelector={"no": "where"})).ok()
    gone = admin.delete(f"{pods}/p").ok()
    assert gone["kind"] == "Pod"
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
    assert gone["metadata"]["deletionTimestamp"]
    assert admin.get(f"{pods}/p").status == 404


def test_bound_pod_has_grace_period(admin: kube_servers.Http, pods: str) -> None:
    """Its own or that of the options; it may be shortened and not prolonged."""
    admin.post(pods, pod("p", nodeName="no-such-node")).ok()
    first = admin.delete(f"{pods}/p").ok()["metadata"]
    assert first["deletionGracePeriodSeconds"] == 30
    assert first["generation"] == 2
    shorter = admin.delete(f"{pods}/p", gracePeriodSeconds=5).ok()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    longer = admin.delete(f"{pods}/p", gracePeriodSeconds=20).ok()["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 5
    assert longer["resourceVersion"] == shorter["resourceVersion"]
    gone = admin.delete(f"{pods}/p", gracePeriodSeconds=0).ok()["metadata"]
    assert gone["deletionGracePeriodSeconds"] == 0
    assert admin.get(f"{pods}/p").status == 404


def test_grace_period_comes_from_the_pod(admin: kube_servers.Http, pods: str) -> None:
    """terminationGracePeriodSeconds."""
    admin.post(pods, pod("p", nodeName="no-such-node", terminationGracePeriodSeconds=7)).ok()
    marked = admin.delete(f"{pods}/p").ok()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 7
    admin.delete(f"{pods}/p", gracePeriodSeconds=0).ok()


def seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def test_shorter_grace_period_counts_from_the_first_delete(
    admin: kube_servers.Http, pods: str
) -> None:
    admin.post(pods, pod("p", nodeName="no-such-node")).ok()
    first = admin.delete(f"{pods}/p", gracePeriodSeconds=3600).ok()["metadata"]
    time.sleep(1.1)  # timestamps have whole seconds
    second = admin.delete(f"{pods}/p", gracePeriodSeconds=600).ok()["metadata"]
    earlier = seconds(first["deletionTimestamp"]) - seconds(second["deletionTimestamp"])
    assert earlier == 3000
    admin.delete(f"{pods}/p", gracePeriodSeconds=0).ok()


def test_second_delete_without_options_changes_nothing(admin: kube_servers.Http, pods: str) -> None:
    """Neither the grace period, which is longer than the Pod's own, nor the finalizers; the Pod
    stays even when it has ended."""
    admin.post(pods, pod("p", nodeName="no-such-node")).ok()
    first = admin.delete(f"{pods}/p", gracePeriodSeconds=3600).ok()["metadata"]
    assert admin.delete(f"{pods}/p").ok()["metadata"] == first
    kept = admin.delete(f"{pods}/p", propagationPolicy="Foreground").ok()["metadata"]
    assert kept == first
    admin.patch(f"{pods}/p/status", {"status": {"phase": "Succeeded"}}).ok()
    ended = admin.delete(f"{pods}/p").ok()["metadata"]
    assert ended["deletionTimestamp"] == first["deletionTimestamp"]
    assert admin.get(f"{pods}/p").status == 200
    admin.delete(f"{pods}/p", gracePeriodSeconds=0).ok()
    assert admin.get(f"{pods}/p").status == 404


def test_negative_grace_period_is_one_second(admin: kube_servers.Http, pods: str) -> None:
    admin.post(pods, pod("p", nodeName="no-such-node")).ok()
    marked = admin.delete(f"{pods}/p", {"gracePeriodSeconds": -5}).ok()["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 1
    admin.delete(f"{pods}/p", gracePeriodSeconds=0).ok()


def test_eviction_deletes_the_pod(admin: kube_servers.Http, pods: str) -> None:
    """201 Success; another name in the body is refused, a Pod that is not there is 404."""
    admin.post(pods, pod("p", nodeSelector={"no": "where"})).ok()

    def evict(name: str, said: str) -> kube_servers.Response:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": said}}
        return admin.post(f"{pods}/{name}/eviction", body)

    assert evict("p", "other").message == "name in URL does not match name in Eviction object"
    done = evict("p", "p")
    assert (done.status, done.json["status"]) == (201, "Success")
    assert admin.get(f"{pods}/p").status == 404
    assert evict("none", "none").message == 'pods "none" not found'


def test_binding_assigns_pod_to_node(admin: kube_servers.Http, pods: str) -> None:
    admin.post(pods, pod("p", schedulerName="unknown")).ok()

    def bind(name: str) -> kube_servers.Response:
        body = {"metadata": {"name": name}, "target": {"name": "n1"}}
        return admin.post(f"{pods}/p/binding", body)

    assert bind("other").message == "name in URL does not match name in Binding object"
    assert bind("p").status == 201
    again = bind("p")
    assert again.status == 409
    assert again.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )
    found = admin.get(f"{pods}/p").json
    assert found["spec"]["nodeName"] == "n1"
    scheduled = [c for c in found["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert scheduled[0]["status"] == "True"
    admin.delete(f"{pods}/p", gracePeriodSeconds=0).ok()
