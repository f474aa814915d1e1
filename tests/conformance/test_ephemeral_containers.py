"""Ephemeral containers of Pods: what the subresource takes, fills in and refuses."""

from typing import Any

import pytest

from support import kube_servers, waiting
from support.kube_servers import APPLY, JSON_PATCH, MERGE, STRATEGIC

LIST = "spec.ephemeralContainers"
NOT_ALLOWED = "Forbidden: cannot be set for an Ephemeral Container"


def debug_container(name: str, **fields: Any) -> dict[str, Any]:
    """An ephemeral container."""
    return {"name": name, "image": "label", "command": ["true"], **fields}


def patch_adding(*containers: dict[str, Any]) -> dict[str, Any]:
    """As kubectl debug sends it."""
    order = [{"name": container["name"]} for container in containers]
    return {
        "spec": {"$setElementOrder/ephemeralContainers": order, "ephemeralContainers": containers}
    }


@pytest.fixture
def path(admin: kube_servers.Http, namespace: str) -> str:
    """Of a Pod with a container, an init container and a volume, that no node runs."""
    collection = f"/api/v1/namespaces/{namespace}/pods"
    spec = {
        "containers": [{"name": "main", "image": "label", "command": ["true"]}],
        "initContainers": [{"name": "init", "image": "label", "command": ["true"]}],
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "schedulerName": "example.com-never",  # so that no other client writes it meanwhile
    }
    admin.post(collection, {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec}).ok()
    return f"{collection}/p"


@pytest.fixture
def subresource_path(path: str) -> str:
    """The subresource."""
    return f"{path}/ephemeralcontainers"


def names(pod: dict[str, Any]) -> list[str]:
    return [container["name"] for container in pod["spec"].get("ephemeralContainers") or ()]


def causes(refused: kube_servers.Response) -> list[tuple[str, str]]:
    """(field, message) of a 422, sorted."""
    assert refused.status == 422, refused.body
    return sorted((c["field"], c["message"]) for c in refused.json["details"]["causes"])


def test_subresource_is_discovered(admin: kube_servers.Http) -> None:
    listed = admin.get("/api/v1").ok()["resources"]
    entry = next(r for r in listed if r["name"] == "pods/ephemeralcontainers")
    assert entry == {
        "name": "pods/ephemeralcontainers",
        "singularName": "",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "patch", "update"],
    }


def test_get_returns_the_pod(admin: kube_servers.Http, path: str, subresource_path: str) -> None:
    assert admin.get(subresource_path).ok() == admin.get(path).ok()
    assert admin.get(f"{path}-not/ephemeralcontainers").status == 404
    assert admin.post(subresource_path, {}).status == 405
    assert admin.delete(subresource_path).status == 405


def test_new_container_gets_defaults(admin: kube_servers.Http, subresource_path: str) -> None:
    variable = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    tagged = debug_container("tagged", image="label:v1", env=[variable])
    pod = admin.patch(
        subresource_path, patch_adding(debug_container("plain"), tagged), form=STRATEGIC
    ).ok()
    plain, tagged = pod["spec"]["ephemeralContainers"]
    assert plain == {
        "name": "plain",
        "image": "label",
        "command": ["true"],
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    assert tagged["imagePullPolicy"] == "IfNotPresent"
    assert tagged["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


@pytest.mark.parametrize("form", [STRATEGIC, MERGE, JSON_PATCH])
def test_patch_adds_a_container(admin: kube_servers.Http, subresource_path: str, form: str) -> None:
    admin.patch(subresource_path, patch_adding(debug_container("first")), form=STRATEGIC).ok()
    first = admin.get(subresource_path).ok()["spec"]["ephemeralContainers"][0]
    bodies: dict[str, Any] = {
        STRATEGIC: {"spec": {"ephemeralContainers": [debug_container("second")]}},
        MERGE: {"spec": {"ephemeralContainers": [first, debug_container("second")]}},
        JSON_PATCH: [
            {"op": "add", "path": "/spec/ephemeralContainers/-", "value": debug_container("second")}
        ],
    }
    assert sorted(names(admin.patch(subresource_path, bodies[form], form=form).ok())) == [
        "first",
        "second",
    ]


def test_put_adds_container_without_defaults(
    admin: kube_servers.Http, subresource_path: str
) -> None:
    pod = admin.get(subresource_path).ok()
    pod["spec"]["ephemeralContainers"] = [debug_container("first")]
    first = admin.put(subresource_path, pod).ok()
    assert first["metadata"]["generation"] == pod["metadata"]["generation"] + 1
    pod = {**first, "spec": {**first["spec"]}}
    pod["spec"]["ephemeralContainers"] = [debug_container("first"), debug_container("second")]
    assert names(admin.put(subresource_path, pod).ok()) == ["first", "second"]


def test_apply_adds_a_container(admin: kube_servers.Http, subresource_path: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"ephemeralContainers": [debug_container("first")]},
    }
    done = admin.patch(subresource_path, body, form=APPLY, fieldManager="me").ok()
    assert names(done) == ["first"]
    entry = next(e for e in done["metadata"]["managedFields"] if e["manager"] == "me")
    assert (entry["operation"], entry["subresource"]) == ("Apply", "ephemeralcontainers")


def test_other_pod_fields_are_unchanged(admin: kube_servers.Http, subresource_path: str) -> None:
    before = admin.get(subresource_path).ok()
    done = admin.patch(
        subresource_path,
        {
            "metadata": {"labels": {"a": "c"}, "annotations": {"x": "y"}},
            "spec": {
                "ephemeralContainers": [debug_container("e")],
                "activeDeadlineSeconds": 5,
                "containers": [{"name": "main", "image": "other"}],
            },
            "status": {"phase": "Running"},
        },
    ).ok()
    assert names(done) == ["e"]
    assert done["metadata"]["labels"] == {"a": "b"}
    assert "annotations" not in done["metadata"]
    assert done["spec"]["containers"] == before["spec"]["containers"]
    assert "activeDeadlineSeconds" not in done["spec"]
    assert done["status"] == before["status"]


def test_writer_owns_the_container(admin: kube_servers.Http, subresource_path: str) -> None:
    done = admin.patch(
        subresource_path,
        patch_adding(debug_container("e")),
        form=STRATEGIC,
        fieldManager="debugger",
        dryRun="All",
    ).ok()
    entry = next(e for e in done["metadata"]["managedFields"] if e["manager"] == "debugger")
    assert (entry["operation"], entry["subresource"]) == ("Update", "ephemeralcontainers")
    owned = entry["fieldsV1"]["f:spec"]["f:ephemeralContainers"]
    assert set(owned['k:{"name":"e"}']) == {
        ".",
        "f:name",
        "f:image",
        "f:command",
        "f:imagePullPolicy",
        "f:resources",
        "f:terminationMessagePath",
        "f:terminationMessagePolicy",
    }
    assert names(admin.get(subresource_path).ok()) == []  # it was a dry run


def test_containers_cannot_be_removed_or_changed(
    admin: kube_servers.Http, subresource_path: str
) -> None:
    admin.patch(
        subresource_path, patch_adding(debug_container("a"), debug_container("b")), form=STRATEGIC
    ).ok()
    body = {
        "spec": {
            "ephemeralContainers": [debug_container("b", command=["false"]), debug_container("c")]
        }
    }
    found = causes(admin.patch(subresource_path, body))
    assert [field for field, _ in found] == [LIST, LIST]
    assert found[0][1].startswith(
        'Forbidden: existing ephemeral containers "a" may not be removed\n'
    )
    assert found[1][1].startswith(
        'Forbidden: existing ephemeral containers "b" may not be changed\n'
    )
    gone = admin.patch(subresource_path, {"spec": {"ephemeralContainers": None}})
    assert len(causes(gone)) == 2
    assert names(admin.get(subresource_path).ok()) == ["a", "b"]


def test_containers_can_be_reordered(admin: kube_servers.Http, subresource_path: str) -> None:
    pod = admin.patch(
        subresource_path, patch_adding(debug_container("a"), debug_container("b")), form=STRATEGIC
    ).ok()
    pod["spec"]["ephemeralContainers"].reverse()
    assert names(admin.put(subresource_path, pod).ok()) == ["b", "a"]


def test_main_path_cannot_add_containers(admin: kube_servers.Http, path: str) -> None:
    refused = admin.patch(path, {"spec": {"ephemeralContainers": [debug_container("e")]}})
    [(field, message)] = causes(refused)
    assert field == "spec"
    assert message.startswith("Forbidden: pod updates may not change fields other than ")


def test_pod_with_ephemeral_containers_can_be_updated(
    admin: kube_servers.Http, path: str, subresource_path: str
) -> None:
    admin.patch(subresource_path, patch_adding(debug_container("e")), form=STRATEGIC).ok()
    done = admin.patch(path, {"metadata": {"labels": {"a": "c"}}}).ok()
    assert (names(done), done["metadata"]["labels"]) == (["e"], {"a": "c"})
    again = admin.put(
        path, done | {"spec": done["spec"] | {"ephemeralContainers": [debug_container("e")]}}
    )
    assert names(again.ok()) == ["e"]


PROBE = {"exec": {"command": ["true"]}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ports", [{"containerPort": 80, "protocol": "TCP"}]),
        ("resources", {"limits": {"cpu": "1"}}),
        ("resources", {"requests": {"memory": "1Gi"}}),
        ("resizePolicy", [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
        ("restartPolicy", "Always"),
        ("livenessProbe", PROBE),
        ("readinessProbe", PROBE),
        ("startupProbe", PROBE),
        ("lifecycle", {"preStop": PROBE}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_service_fields_are_rejected(
    admin: kube_servers.Http, subresource_path: str, field: str, value: Any
) -> None:
    refused = admin.patch(
        subresource_path, patch_adding(debug_container("e", **{field: value})), form=STRATEGIC
    )
    assert (f"{LIST}[0].{field}", NOT_ALLOWED) in causes(refused)


@pytest.mark.parametrize("field", ["subPath", "subPathExpr"])
def test_sub_path_mounts_are_rejected(
    admin: kube_servers.Http, subresource_path: str, field: str
) -> None:
    mount = {"name": "shared", "mountPath": "/shared", field: "part"}
    refused = admin.patch(
        subresource_path, patch_adding(debug_container("e", volumeMounts=[mount])), form=STRATEGIC
    )
    assert causes(refused) == [(f"{LIST}[0].volumeMounts[0].{field}", NOT_ALLOWED)]


@pytest.mark.parametrize(
    ("container", "field", "message"),
    [
        (debug_container("main"), "name", 'Duplicate value: "main"'),
        (debug_container("init"), "name", 'Duplicate value: "init"'),
        (debug_container("e", image=""), "image", "Required value"),
        (
            debug_container("e", image=" x"),
            "image",
            'Invalid value: " x": must not have leading or trailing whitespace',
        ),
        (
            debug_container("e", targetContainerName="other"),
            "targetContainerName",
            'Not found: "other"',
        ),
        (
            debug_container("e", volumeMounts=[{"name": "other", "mountPath": "/x"}]),
            "volumeMounts[0].name",
            'Not found: "other"',
        ),
        (
            debug_container("e", env=[{"name": "", "value": "x"}]),
            "env[0].name",
            "Required value",
        ),
    ],
    ids=["main", "init", "no-image", "blank", "target", "mount", "env"],
)
def test_invalid_container_is_rejected(
    admin: kube_servers.Http,
    subresource_path: str,
    container: dict[str, Any],
    field: str,
    message: str,
) -> None:
    refused = admin.patch(subresource_path, patch_adding(container), form=STRATEGIC)
    assert causes(refused) == [(f"{LIST}[0].{field}", message)]


def test_name_must_be_a_label(admin: kube_servers.Http, subresource_path: str) -> None:
    refused = admin.patch(subresource_path, patch_adding(debug_container("No")), form=STRATEGIC)
    [(field, message)] = causes(refused)
    assert field == f"{LIST}[0].name"
    assert message.startswith('Invalid value: "No": a lowercase RFC 1123 label must consist of ')


def test_duplicate_names_are_rejected(admin: kube_servers.Http, subresource_path: str) -> None:
    refused = admin.patch(
        subresource_path,
        {"spec": {"ephemeralContainers": [debug_container("e"), debug_container("e")]}},
    )
    assert (f"{LIST}[1].name", 'Duplicate value: "e"') in causes(refused)


def test_target_must_be_a_container_of_the_pod(
    admin: kube_servers.Http, subresource_path: str
) -> None:
    both = (
        debug_container("a", targetContainerName="main"),
        debug_container("b", targetContainerName="init"),
    )
    mount = {"name": "shared", "mountPath": "/shared"}
    done = admin.patch(
        subresource_path,
        patch_adding(*both, debug_container("c", volumeMounts=[mount])),
        form=STRATEGIC,
    ).ok()
    assert names(done) == ["a", "b", "c"]
    refused = admin.patch(
        subresource_path,
        patch_adding(debug_container("d", targetContainerName="a")),
        form=STRATEGIC,
    )
    found = [message for field, message in causes(refused) if "targetContainerName" in field]
    assert found == ['Not found: "a"']


def test_old_resource_version_is_a_conflict(
    admin: kube_servers.Http, path: str, subresource_path: str
) -> None:
    old = admin.get(path).ok()
    admin.patch(path, {"metadata": {"labels": {"a": "c"}}}).ok()
    old["spec"]["ephemeralContainers"] = [debug_container("e")]
    refused = admin.put(subresource_path, old)
    assert (refused.status, refused.reason) == (409, "Conflict")
    version = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
    assert (
        admin.patch(
            subresource_path, {**patch_adding(debug_container("e")), **version}, form=STRATEGIC
        ).status
        == 409
    )
    other = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert (
        admin.patch(
            subresource_path, {**patch_adding(debug_container("e")), **other}, form=STRATEGIC
        ).status
        == 422
    )
    assert names(admin.get(subresource_path).ok()) == []


def test_unknown_field_gives_warning_or_error(
    admin: kube_servers.Http, subresource_path: str
) -> None:
    body = patch_adding(debug_container("e", nonsense=1))
    refused = admin.patch(subresource_path, body, form=STRATEGIC, fieldValidation="Strict")
    assert refused.status in (400, 422)
    assert f'unknown field "{LIST}[0].nonsense"' in refused.message
    done = admin.patch(subresource_path, body, form=STRATEGIC)
    [warning] = [text for text in done.warnings if "nonsense" in text]
    assert f'unknown field \\"{LIST}[0].nonsense\\"' in warning
    assert "nonsense" not in done.ok()["spec"]["ephemeralContainers"][0]


def test_wrong_type_is_rejected(admin: kube_servers.Http, subresource_path: str) -> None:
    refused = admin.patch(
        subresource_path, {"spec": {"ephemeralContainers": [debug_container("e", command="true")]}}
    )
    assert refused.status == 422


def test_subresource_needs_its_own_permission(
    admin: kube_servers.Http, namespace: str, path: str, subresource_path: str
) -> None:
    role: dict[str, Any] = {
        "metadata": {"name": "pods"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}],
    }
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    admin.post(f"{rbac}/roles", role).ok()
    binding = {
        "metadata": {"name": "pods"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    admin.post(f"{rbac}/rolebindings", binding).ok()
    jane = admin.impersonating("jane")
    waiting.wait_until(lambda: jane.get(path).status == 200, what="the role holds")
    refused = jane.patch(subresource_path, patch_adding(debug_container("e")), form=STRATEGIC)
    assert refused.status == 403
    assert 'cannot patch resource "pods/ephemeralcontainers"' in refused.message
    role["rules"][0]["resources"] = ["pods/ephemeralcontainers"]
    admin.put(f"{rbac}/roles/pods", role).ok()
    waiting.wait_until(
        lambda: (
            jane.patch(subresource_path, patch_adding(debug_container("e")), form=STRATEGIC).status
            == 200
        ),
        what="the right holds",
    )
    assert names(admin.get(path).ok()) == ["e"]


def test_kubectl_debug_adds_a_container(
    admin: kube_servers.Http, kubectl: kube_servers.Kubectl, subresource_path: str
) -> None:
    kubectl("debug", "p", "--image=label:v1", "--container=first", "--target=main", "--", "true")
    kubectl("debug", "p", "--image=label:v1", "--container=second", "--env=A=b", "--", "false")
    first, second = admin.get(subresource_path).ok()["spec"]["ephemeralContainers"]
    assert (first["name"], first["targetContainerName"], first["command"]) == (
        "first",
        "main",
        ["true"],
    )
    assert (second["name"], second["env"]) == ("second", [{"name": "A", "value": "b"}])
