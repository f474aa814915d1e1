"""Namespaces: what each one holds, what is refused while one goes, how it ends."""

from collections.abc import Iterator
from typing import Any

import pytest

from support import kube_servers, waiting

NAMESPACES = "/api/v1/namespaces"


def wait_until_gone(admin: kube_servers.Http, path: str) -> None:
    waiting.wait_until(lambda: admin.get(path).status == 404, what=f"{path} is gone", timeout_s=90)


def test_new_namespace_has_account_and_root_certificate(
    admin: kube_servers.Http, namespace: str
) -> None:
    """A label with its name, phase Active, an account `default` and the root certificate."""
    found = admin.get(f"{NAMESPACES}/{namespace}").ok()
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["status"] == {"phase": "Active"}
    root = f"{NAMESPACES}/{namespace}/configmaps/kube-root-ca.crt"
    waiting.wait_until(lambda: admin.get(root).status == 200, what="the certificate is there")
    assert "BEGIN CERTIFICATE" in admin.get(root).json["data"]["ca.crt"]


def test_default_objects_are_created_again(admin: kube_servers.Http, namespace: str) -> None:
    """The account and the certificate are made again."""
    for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        _wait_until_created_again(admin, f"{NAMESPACES}/{namespace}/{path}")


def _wait_until_created_again(admin: kube_servers.Http, url: str) -> None:
    def uid() -> str | None:
        found = admin.get(url)
        return str(found.json["metadata"]["uid"]) if found.status == 200 else None

    waiting.wait_until(lambda: uid() is not None, what=f"{url} is there")
    before = uid()
    admin.delete(url).ok()
    waiting.wait_until(lambda: uid() not in (None, before), what=f"{url} is there again")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "Bad",
            (
                'Namespace "Bad" is invalid: metadata.name: Invalid value: "Bad": a lowercase RFC '
                "1123 label must consist of lower case alphanumeric characters or '-', and must "
                "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
                "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ),
        ),
        (
            "a.b",
            (
                'Namespace "a.b" is invalid: metadata.name: Invalid value: "a.b": must not '
                "contain dots"
            ),
        ),
    ],
)
def test_namespace_name_must_be_a_label(admin: kube_servers.Http, name: str, text: str) -> None:
    done = admin.post(NAMESPACES, {"metadata": {"name": name}})
    assert (done.status, done.message) == (422, text)


@pytest.fixture
def terminating_namespace(admin: kube_servers.Http) -> Iterator[str]:
    """A namespace that is being deleted and held by a ConfigMap `held` with a finalizer."""
    name = kube_servers.fresh_name("ending")
    admin.post(NAMESPACES, {"metadata": {"name": name}}).ok()
    held = {"metadata": {"name": "held", "finalizers": ["a.b/c"]}}
    admin.post(f"{NAMESPACES}/{name}/configmaps", held).ok()
    admin.delete(f"{NAMESPACES}/{name}").ok()
    yield name
    admin.patch(f"{NAMESPACES}/{name}/configmaps/held", {"metadata": {"finalizers": None}})


def test_deleted_namespace_is_terminating(
    admin: kube_servers.Http, terminating_namespace: str
) -> None:
    """Terminating, without a grace period; a second delete is the same."""
    found = admin.get(f"{NAMESPACES}/{terminating_namespace}").ok()
    assert found["status"]["phase"] == "Terminating"
    assert found["metadata"]["deletionTimestamp"]
    assert "deletionGracePeriodSeconds" not in found["metadata"]
    assert admin.delete(f"{NAMESPACES}/{terminating_namespace}").status == 200


def test_terminating_namespace_accepts_no_new_objects(
    admin: kube_servers.Http, terminating_namespace: str
) -> None:
    done = admin.post(
        f"{NAMESPACES}/{terminating_namespace}/configmaps", {"metadata": {"name": "new"}}
    )
    assert done.status == 403
    assert done.reason == "Forbidden"
    assert done.message == (
        'configmaps "new" is forbidden: unable to create new content in namespace '
        f"{terminating_namespace} because it is being terminated"
    )
    assert done.json["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {terminating_namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]


def test_objects_in_terminating_namespace_can_change(
    admin: kube_servers.Http, terminating_namespace: str
) -> None:
    """So that finalizers can do their work."""
    path = f"{NAMESPACES}/{terminating_namespace}/configmaps/held"
    assert admin.patch(path, {"data": {"a": "b"}}).ok()["data"] == {"a": "b"}


def test_empty_namespace_is_removed(admin: kube_servers.Http, terminating_namespace: str) -> None:
    path = f"{NAMESPACES}/{terminating_namespace}/configmaps/held"
    waiting.wait_until(
        lambda: "deletionTimestamp" in admin.get(path).json["metadata"],
        what="its content is being deleted",
        timeout_s=90,
    )
    admin.patch(path, {"metadata": {"finalizers": None}}).ok()
    wait_until_gone(admin, f"{NAMESPACES}/{terminating_namespace}")


def test_name_of_removed_namespace_can_be_reused(admin: kube_servers.Http) -> None:
    name = kube_servers.fresh_name("again")
    admin.post(NAMESPACES, {"metadata": {"name": name}}).ok()
    admin.post(f"{NAMESPACES}/{name}/configmaps", {"metadata": {"name": "a"}}).ok()
    admin.delete(f"{NAMESPACES}/{name}").ok()
    wait_until_gone(admin, f"{NAMESPACES}/{name}")
    admin.post(NAMESPACES, {"metadata": {"name": name}}).ok()
    assert admin.get(f"{NAMESPACES}/{name}/configmaps/a").status == 404
    admin.delete(f"{NAMESPACES}/{name}").ok()


def test_finalize_removes_spec_finalizers(admin: kube_servers.Http) -> None:
    """Its own finalizers are written through /finalize alone."""
    name = kube_servers.fresh_name("final")
    admin.post(
        NAMESPACES,
        {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes", "a.b/c"]}},
    ).ok()
    ignored = admin.patch(f"{NAMESPACES}/{name}", {"spec": {"finalizers": []}}).ok()
    assert ignored["spec"]["finalizers"] == ["kubernetes", "a.b/c"]
    admin.delete(f"{NAMESPACES}/{name}").ok()
    waiting.wait_until(
        lambda: admin.get(f"{NAMESPACES}/{name}").ok()["spec"]["finalizers"] == ["a.b/c"],
        what="Kubernetes has done its part",
        timeout_s=90,
    )
    done = admin.put(
        f"{NAMESPACES}/{name}/finalize", {"metadata": {"name": name}, "spec": {"finalizers": []}}
    )
    assert done.status == 200
    wait_until_gone(admin, f"{NAMESPACES}/{name}")


def conditions(admin: kube_servers.Http, name: str) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message by type."""
    found = admin.get(f"{NAMESPACES}/{name}").ok()["status"].get("conditions", ())
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in found}


def test_terminating_namespace_has_conditions(admin: kube_servers.Http) -> None:
    """How many objects of which kinds, and which finalizers; what is well says that too."""
    name = kube_servers.fresh_name("ending")
    admin.post(NAMESPACES, {"metadata": {"name": name}}).ok()
    root = f"{NAMESPACES}/{name}"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases"
    held = {
        f"{root}/configmaps/a": ["x.test/one"],
        f"{root}/configmaps/b": ["x.test/one", "x.test/two"],
        f"{root}/secrets/c": ["x.test/two"],
        f"{leases}/d": ["foregroundDeletion", "x.test/one"],
    }
    for path, finalizers in held.items():
        collection, _, one = path.rpartition("/")
        body = {"metadata": {"name": one, "finalizers": finalizers}}
        admin.post(collection, body).ok()
    admin.delete(root).ok()
    try:
        waiting.wait_until(
            lambda: "NamespaceContentRemaining" in conditions(admin, name),
            what="the conditions are there",
            timeout_s=60,
        )
        assert conditions(admin, name) == {
            "NamespaceDeletionDiscoveryFailure": (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            "NamespaceDeletionGroupVersionParsingFailure": (
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            "NamespaceDeletionContentFailure": (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            "NamespaceContentRemaining": (
                "True",
                "SomeResourcesRemain",
                (
                    "Some resources are remaining: configmaps. has 2 resource instances, "
                    "leases.coordination.k8s.io has 1 resource instances, "
                    "secrets. has 1 resource instances"
                ),
            ),
            "NamespaceFinalizersRemaining": (
                "True",
                "SomeFinalizersRemain",
                (
                    "Some content in the namespace has finalizers remaining: "
                    "x.test/one in 3 resource instances, x.test/two in 2 resource instances"
                ),
            ),
        }
        for path in list(held)[1:]:
            admin.patch(path, {"metadata": {"finalizers": None}}).ok()
        left = "Some content in the namespace has finalizers remaining: x.test/one in 1 "
        waiting.wait_until(
            lambda: left in conditions(admin, name)["NamespaceFinalizersRemaining"][2],
            what="the conditions are those of now",
            timeout_s=60,
        )
    finally:
        for path in held:
            admin.patch(path, {"metadata": {"finalizers": None}})
    wait_until_gone(admin, root)


@pytest.mark.parametrize(
    "spec", [{"finalizers": []}, {}, None], ids=["no finalizers", "empty", "no spec"]
)
def test_finalize_removes_namespace_with_content(
    admin: kube_servers.Http, terminating_namespace: str, spec: dict[str, Any] | None
) -> None:
    """The namespace goes at once; what is left in it is found again in the next of its name."""
    root = f"{NAMESPACES}/{terminating_namespace}"
    body = {"metadata": {"name": terminating_namespace}, **({} if spec is None else {"spec": spec})}
    response = admin.put(f"{root}/finalize", body).ok()
    assert response["metadata"]["name"] == terminating_namespace
    assert not response["spec"].get("finalizers")
    assert admin.get(root).status == 404
    assert admin.get(f"{root}/configmaps/held").status == 200


def test_finalize_before_deletion_keeps_content(admin: kube_servers.Http) -> None:
    """Nothing is deleted with a namespace that says so; its second deletion removes it."""
    name = kube_servers.fresh_name("final")
    root = f"{NAMESPACES}/{name}"
    admin.post(NAMESPACES, {"metadata": {"name": name}}).ok()
    admin.post(f"{root}/configmaps", {"metadata": {"name": "a"}}).ok()
    body = {"metadata": {"name": name}, "spec": {"finalizers": []}}
    assert admin.put(f"{root}/finalize", body).ok()["spec"] == {}
    assert admin.get(root).ok()["status"]["phase"] == "Active"
    assert admin.delete(root).ok()["status"]["phase"] == "Terminating"
    assert admin.get(root).ok()["metadata"]["deletionTimestamp"]
    admin.delete(root).ok()
    assert admin.get(root).status == 404
    assert admin.get(f"{root}/configmaps/a").status == 200
    admin.delete(f"{root}/configmaps/a").ok()


def test_finalize_keeps_metadata_finalizers(admin: kube_servers.Http) -> None:
    """Those of its metadata hold a namespace as any object."""
    name = kube_servers.fresh_name("final")
    root = f"{NAMESPACES}/{name}"
    admin.post(NAMESPACES, {"metadata": {"name": name, "finalizers": ["x.test/hold"]}}).ok()
    admin.delete(root).ok()
    waiting.wait_until(
        lambda: admin.get(root).ok()["spec"] == {}, what="it is finalized", timeout_s=60
    )
    assert admin.get(root).ok()["metadata"]["finalizers"] == ["x.test/hold"]
    admin.patch(root, {"metadata": {"finalizers": None}}).ok()
    assert admin.get(root).status == 404


def test_second_delete_changes_nothing(
    admin: kube_servers.Http, terminating_namespace: str
) -> None:
    """Neither finalizers nor times."""
    root = f"{NAMESPACES}/{terminating_namespace}"
    before = admin.get(root).ok()["metadata"]
    after = admin.delete(root, propagationPolicy="Foreground").ok()["metadata"]
    assert after.get("finalizers") == before.get("finalizers")
    assert after["deletionTimestamp"] == before["deletionTimestamp"]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_initial_namespaces_cannot_be_deleted(admin: kube_servers.Http, name: str) -> None:
    done = admin.delete(f"{NAMESPACES}/{name}")
    assert done.status == 403
    assert done.message == (f'namespaces "{name}" is forbidden: this namespace may not be deleted')


def test_dry_run_delete_keeps_the_namespace(admin: kube_servers.Http, namespace: str) -> None:
    shown: Any = admin.delete(f"{NAMESPACES}/{namespace}", dryRun="All").ok()
    assert shown["status"]["phase"] == "Terminating"
    assert admin.get(f"{NAMESPACES}/{namespace}").json["status"]["phase"] == "Active"


def test_name_label_is_restored(admin: kube_servers.Http, namespace: str) -> None:
    """Its own name among them comes back."""
    path = f"{NAMESPACES}/{namespace}"
    done = admin.patch(path, {"metadata": {"labels": {"kubernetes.io/metadata.name": None}}})
    assert done.ok()["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
