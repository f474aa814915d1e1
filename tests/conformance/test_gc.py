"""Owners and dependents: what goes with its owner, what waits for it, what stays."""

from collections.abc import Callable
from typing import Any

import pytest

from support import kube_servers, waiting

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def config_maps_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def make(admin: kube_servers.Http, config_maps_path: str) -> Make:
    """Makes a ConfigMap; `owner` is the one that it depends on."""

    def made(name: str, owner: Any = None, **metadata: Any) -> dict[str, Any]:
        if owner is not None:
            metadata["ownerReferences"] = [reference(owner, **metadata.pop("reference", {}))]
        body = {"metadata": {"name": name, **metadata}}
        found: dict[str, Any] = admin.post(config_maps_path, body).ok()
        return found

    return made


def reference(owner: Any, **more: Any) -> dict[str, Any]:
    found = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": found["name"],
        "uid": found["uid"],
        **more,
    }


def wait_until_gone(admin: kube_servers.Http, path: str) -> None:
    """The collector may stand still for half a minute while other tests delete kinds."""
    waiting.wait_until(lambda: admin.get(path).status == 404, what=f"{path} is gone", timeout_s=90)


def test_background_deletion_deletes_dependents(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """Background is the default: the owner is gone at once."""
    make("d", make("o"))
    assert admin.delete(f"{config_maps_path}/o").ok()["status"] == "Success"
    assert admin.get(f"{config_maps_path}/o").status == 404
    wait_until_gone(admin, f"{config_maps_path}/d")


def test_dependents_of_dependents_are_deleted(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    make("c", make("b", make("a")))
    admin.delete(f"{config_maps_path}/a", propagationPolicy="Background").ok()
    wait_until_gone(admin, f"{config_maps_path}/b")
    wait_until_gone(admin, f"{config_maps_path}/c")


def test_orphaned_dependents_are_kept(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """The owner waits with the finalizer `orphan` until no object refers to it."""
    make("d", make("o"))
    marked = admin.delete(f"{config_maps_path}/o", {"propagationPolicy": "Orphan"}).ok()
    assert marked["metadata"]["finalizers"] == ["orphan"]
    wait_until_gone(admin, f"{config_maps_path}/o")
    assert "ownerReferences" not in admin.get(f"{config_maps_path}/d").json["metadata"]


def test_orphan_dependents_option_is_supported(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    make("d", make("o"))
    admin.delete(f"{config_maps_path}/o", {"orphanDependents": True}).ok()
    wait_until_gone(admin, f"{config_maps_path}/o")
    assert admin.get(f"{config_maps_path}/d").status == 200


def test_foreground_owner_waits_for_blocking_dependents(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """For dependents that block it, until these are gone themselves."""
    owner = make("o")
    make("d", owner, reference={"blockOwnerDeletion": True}, finalizers=["a.b/c"])
    marked = admin.delete(f"{config_maps_path}/o", propagationPolicy="Foreground").ok()
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    waiting.wait_until(
        lambda: "deletionTimestamp" in admin.get(f"{config_maps_path}/d").json["metadata"],
        what="the dependent is being deleted",
        timeout_s=90,
    )
    assert admin.get(f"{config_maps_path}/o").status == 200
    admin.patch(f"{config_maps_path}/d", {"metadata": {"finalizers": None}}).ok()
    wait_until_gone(admin, f"{config_maps_path}/d")
    wait_until_gone(admin, f"{config_maps_path}/o")


def test_non_blocking_dependents_are_not_waited_for(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    make("d", make("o"), finalizers=["a.b/c"])
    admin.delete(f"{config_maps_path}/o", propagationPolicy="Foreground").ok()
    wait_until_gone(admin, f"{config_maps_path}/o")
    waiting.wait_until(
        lambda: "deletionTimestamp" in admin.get(f"{config_maps_path}/d").json["metadata"],
        what="the dependent is being deleted",
        timeout_s=90,
    )
    admin.patch(f"{config_maps_path}/d", {"metadata": {"finalizers": None}}).ok()


def test_dependent_with_one_existing_owner_is_kept(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """The reference to the one that is gone is taken out."""
    one, two = make("one"), make("two")
    references = [reference(one), reference(two)]
    make("d", ownerReferences=references)
    admin.delete(f"{config_maps_path}/one").ok()
    waiting.wait_until(
        lambda: len(admin.get(f"{config_maps_path}/d").json["metadata"]["ownerReferences"]) == 1,
        what="the dead owner is forgotten",
        timeout_s=90,
    )
    admin.delete(f"{config_maps_path}/two").ok()
    wait_until_gone(admin, f"{config_maps_path}/d")


def test_dependent_of_nonexistent_owner_is_deleted(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """The dependent goes, whether name or uid do not fit."""
    absent = {"metadata": {"name": "none", "uid": "11111111-1111-1111-1111-111111111111"}}
    make("d", absent)
    wait_until_gone(admin, f"{config_maps_path}/d")
    other = make("o")
    other["metadata"]["uid"] = "11111111-1111-1111-1111-111111111112"
    make("e", other)
    wait_until_gone(admin, f"{config_maps_path}/e")
    assert admin.get(f"{config_maps_path}/o").status == 200


def wait_until_deleting(admin: kube_servers.Http, path: str) -> None:
    waiting.wait_until(
        lambda: "deletionTimestamp" in admin.get(path).ok()["metadata"],
        what=f"{path} is being deleted",
        timeout_s=90,
    )


def test_blocking_orphan_is_kept(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """Whether it blocks matters to foreground deletion alone."""
    make("d", make("o"), reference={"blockOwnerDeletion": True})
    admin.delete(f"{config_maps_path}/o", propagationPolicy="Orphan").ok()
    wait_until_gone(admin, f"{config_maps_path}/o")
    found = admin.get(f"{config_maps_path}/d").ok()["metadata"]
    assert "ownerReferences" not in found
    assert "deletionTimestamp" not in found


def test_dependents_are_deleted_while_owner_has_finalizer(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """Those too that do not block: they do not wait for the finalizer of another."""
    owner = make("o", finalizers=["a.b/c"])
    make("d", owner)
    make("e", owner, reference={"blockOwnerDeletion": True})
    admin.delete(f"{config_maps_path}/o", propagationPolicy="Foreground").ok()
    wait_until_gone(admin, f"{config_maps_path}/d")
    wait_until_gone(admin, f"{config_maps_path}/e")
    assert admin.get(f"{config_maps_path}/o").ok()["metadata"]["deletionTimestamp"]
    admin.patch(f"{config_maps_path}/o", {"metadata": {"finalizers": None}}).ok()


@pytest.mark.parametrize(
    "freed", [None, "blockOwnerDeletion"], ids=["without the owner", "no longer blocking"]
)
def test_owner_is_removed_when_dependent_unblocks(
    admin: kube_servers.Http, config_maps_path: str, make: Make, freed: str | None
) -> None:
    """When its reference is taken out, or blocks no more."""
    owner = make("o")
    make("d", owner, reference={"blockOwnerDeletion": True}, finalizers=["a.b/c"])
    admin.delete(f"{config_maps_path}/o", propagationPolicy="Foreground").ok()
    wait_until_deleting(admin, f"{config_maps_path}/d")
    references = [reference(owner, **{freed: False})] if freed else None
    admin.patch(f"{config_maps_path}/d", {"metadata": {"ownerReferences": references}}).ok()
    wait_until_gone(admin, f"{config_maps_path}/o")
    admin.patch(f"{config_maps_path}/d", {"metadata": {"finalizers": None}}).ok()


def test_object_owning_itself_waits_in_foreground_deletion(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """In foreground deletion, for ever; another policy lets it go."""
    itself = make("o")
    references = [reference(itself, blockOwnerDeletion=True)]
    admin.patch(f"{config_maps_path}/o", {"metadata": {"ownerReferences": references}}).ok()
    make("d", make("p"))
    admin.delete(f"{config_maps_path}/o", propagationPolicy="Foreground").ok()
    admin.delete(f"{config_maps_path}/p").ok()
    wait_until_gone(admin, f"{config_maps_path}/d")  # the collector has come by
    assert admin.get(f"{config_maps_path}/o").ok()["metadata"]["finalizers"] == [
        "foregroundDeletion"
    ]
    admin.delete(f"{config_maps_path}/o", propagationPolicy="Background").ok()
    wait_until_gone(admin, f"{config_maps_path}/o")


def test_cycle_of_owners_is_deleted(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    made = [make(f"c{i}") for i in range(4)]
    for i, owner in enumerate(made):
        references = [reference(owner, blockOwnerDeletion=True)]
        path = f"{config_maps_path}/c{(i + 1) % len(made)}"
        admin.patch(path, {"metadata": {"ownerReferences": references}}).ok()
    admin.delete(f"{config_maps_path}/c0", propagationPolicy="Foreground").ok()
    for i in range(len(made)):
        wait_until_gone(admin, f"{config_maps_path}/c{i}")


@pytest.mark.parametrize("kind", ["namespaces", "clusterroles"])
def test_cluster_scoped_dependent_ignores_namespaced_owner(
    admin: kube_servers.Http, config_maps_path: str, make: Make, kind: str
) -> None:
    """It stays, though the owner lives, goes, or never was."""
    owner = make("o")
    collections = {
        "namespaces": "/api/v1/namespaces",
        "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    }
    name = kube_servers.fresh_name("owned")
    path = f"{collections[kind]}/{name}"
    absent = {"metadata": {"name": "none", "uid": "11111111-1111-1111-1111-111111111113"}}
    references = [reference(owner), reference(absent)]
    admin.post(collections[kind], {"metadata": {"name": name, "ownerReferences": references}}).ok()
    try:
        make("d", owner)
        admin.delete(f"{config_maps_path}/o").ok()
        wait_until_gone(admin, f"{config_maps_path}/d")
        found = admin.get(path).ok()["metadata"]
        assert "deletionTimestamp" not in found
        assert len(found["ownerReferences"]) == 2
    finally:
        admin.delete(path)


def test_owner_of_unknown_kind_prevents_collection(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """Neither the dependent goes, nor its reference to an owner that is gone."""
    unknown = {"apiVersion": "absent.kiln.test/v1", "kind": "N", "name": "n", "uid": "1"}
    make("d", ownerReferences=[reference(make("o")), reference(make("p")), unknown])
    make("e", make("q"))
    for owner in ("o", "p", "q"):
        admin.delete(f"{config_maps_path}/{owner}").ok()
    wait_until_gone(admin, f"{config_maps_path}/e")
    assert len(admin.get(f"{config_maps_path}/d").ok()["metadata"]["ownerReferences"]) == 3


def test_owners_of_kube_events_are_ignored(
    admin: kube_servers.Http, namespace: str, config_maps_path: str, make: Make
) -> None:
    owner = make("o")
    make("d", owner)
    events = f"/api/v1/namespaces/{namespace}/events"
    event = {
        "metadata": {"name": "e", "ownerReferences": [reference(owner)]},
        "involvedObject": {"kind": "ConfigMap", "name": "o", "namespace": namespace},
    }
    admin.post(events, event).ok()
    admin.delete(f"{config_maps_path}/o").ok()
    wait_until_gone(admin, f"{config_maps_path}/d")
    assert admin.get(f"{events}/e").status == 200


def test_two_controllers_are_rejected(
    admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    one, two = make("one"), make("two")
    references = [reference(one, controller=True), reference(two, controller=True)]
    done = admin.post(config_maps_path, {"metadata": {"name": "d", "ownerReferences": references}})
    assert done.status == 422
    assert (
        "Only one reference can have Controller set to true. Found "
        '"true" in references for ConfigMap/one and ConfigMap/two'
    ) in done.message


def test_kubectl_delete_cascades(
    kubectl: kube_servers.Kubectl, admin: kube_servers.Http, config_maps_path: str, make: Make
) -> None:
    """--cascade=orphan and foreground, which waits."""
    make("d", make("o"))
    kubectl("delete", "configmap", "o", "--cascade=orphan")
    assert admin.get(f"{config_maps_path}/d").status == 200
    make("e", make("p"), reference={"blockOwnerDeletion": True})
    kubectl("delete", "configmap", "p", "--cascade=foreground")
    assert admin.get(f"{config_maps_path}/e").status == 404
