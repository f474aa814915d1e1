"""What the server fills in and refuses by itself: Pods, Secrets, accounts, rules in CEL."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from support import kube_servers, waiting
from support.kube_servers import CRDS

Http = kube_servers.Http


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "b"}]
    body = {"containers": containers, "nodeSelector": {"no": "where"}, **spec}
    return {"metadata": {"name": name}, "spec": body}


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def test_pod_gets_defaults(admin: Http, pods: str) -> None:
    """Policies, grace, account; Pending; of the class that their resources make."""
    made = admin.post(pods, pod()).ok()
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert container["imagePullPolicy"] == "Always"
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("image", "policy"),
    [("b", "Always"), ("b:latest", "Always"), ("b:1", "IfNotPresent"), ("h:5/b", "Always")],
)
def test_pull_policy_depends_on_the_image_tag(
    admin: Http, pods: str, image: str, policy: str
) -> None:
    """Without a tag it is `latest`."""
    body = pod(containers=[{"name": "a", "image": image}])
    made = admin.post(pods, body, dryRun="All").ok()
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "class_"),
    [
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({}, "BestEffort"),
    ],
)
def test_qos_class_depends_on_resources(
    admin: Http, pods: str, resources: Any, class_: str
) -> None:
    """Limits are requests too where those are not given."""
    body = pod(containers=[{"name": "a", "image": "b", "resources": resources}])
    made = admin.post(pods, body, dryRun="All").ok()
    assert made["status"]["qosClass"] == class_


def test_missing_service_account_is_forbidden(admin: Http, pods: str, namespace: str) -> None:
    done = admin.post(pods, pod(serviceAccountName="unknown"))
    assert done.status == 403
    assert done.message == (
        'pods "p" is forbidden: error looking up service account '
        f'{namespace}/unknown: serviceaccount "unknown" not found'
    )


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        (
            {"containers": [{"name": "a", "image": "b"}, {"name": "a", "image": "c"}]},
            'spec.containers[1].name: Duplicate value: "a"',
        ),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image: Required value"),
        (
            {"restartPolicy": "Sometimes"},
            (
                'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", '
                '"OnFailure", "Never"'
            ),
        ),
        (
            {
                "containers": [
                    {
                        "name": "a",
                        "image": "b",
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ]
            },
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {"activeDeadlineSeconds": 0},
            (
                "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, "
                "inclusive"
            ),
        ),
    ],
    ids=["none", "twice", "image", "restart", "mount", "deadline"],
)
def test_invalid_pods_are_rejected(admin: Http, pods: str, spec: Any, text: str) -> None:
    done = admin.post(pods, pod(**spec))
    assert done.status == 422
    assert done.message == f'Pod "p" is invalid: {text}'


def test_only_few_pod_fields_can_change(admin: Http, pods: str) -> None:
    """Images and the deadline; nothing else of its spec."""
    admin.post(pods, pod()).ok()
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "c:1"}]
    done = admin.patch(f"{pods}/p", image, form=kube_servers.JSON_PATCH).ok()
    assert done["spec"]["containers"][0]["image"] == "c:1"
    assert done["metadata"]["generation"] == 2
    admin.patch(f"{pods}/p", {"spec": {"activeDeadlineSeconds": 5}}).ok()
    refused = admin.patch(f"{pods}/p", {"spec": {"hostname": "x"}})
    assert refused.status == 422
    assert refused.message.startswith(
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than '
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    )


def test_secrets_are_defaulted_and_validated(admin: Http, namespace: str) -> None:
    """stringData becomes data; the type is fixed; types have keys that they need."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = admin.post(path, {"metadata": {"name": "s"}, "stringData": {"k": "v"}}).ok()
    assert made["type"] == "Opaque"
    assert "stringData" not in made
    assert base64.b64decode(made["data"]["k"]) == b"v"
    other = admin.patch(f"{path}/s", {"type": "kubernetes.io/tls"})
    assert other.status == 422
    assert 'type: Invalid value: "kubernetes.io/tls": field is immutable' in other.message
    tls = admin.post(path, {"metadata": {"name": "t"}, "type": "kubernetes.io/tls"})
    assert tls.status == 422
    assert [c["field"] for c in tls.json["details"]["causes"]] == [
        "data[tls.crt]",
        "data[tls.key]",
    ]


def test_our_kinds_are_defaulted_and_validated(admin: Http, namespace: str) -> None:
    """By the schema and the CEL rules of their definitions, on any server."""
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{namespace}/tasks"

    def task(name: str, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": spec,
        }

    made = admin.post(path, task("a", command=["true"], suspend=True)).ok()
    assert made["spec"]["clusterName"] == "default"
    assert made["spec"]["run"] == 1
    admin.patch(f"{path}/a", {"spec": {"run": 3}}).ok()
    lower = admin.patch(f"{path}/a", {"spec": {"run": 2}})
    assert lower.status == 422
    assert "run may only rise" in lower.message
    both = admin.post(path, task("b", command=["x"], call={"function": "m:f"}))
    assert both.status == 422
    assert "give either call, or command with args" in both.message
    neither = admin.post(path, task("c", command=["x"], inputs=[{"name": "i"}]))
    assert neither.status == 422
    assert "exactly one of object and task must be given" in neither.message


@pytest.fixture
def rules(admin: Http) -> Iterator[str]:
    """The group of a kind whose definition has a rule in CEL: spec.n < 100."""
    group = f"{kube_servers.fresh_name('cel')}.test"
    spec = {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.count < 100", "message": "too big"}],
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"kind": "Thing", "plural": "things"}
    body = {
        "metadata": {"name": f"things.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }
    admin.post(CRDS, body).ok()
    path = f"/apis/{group}/v1/things"
    waiting.wait_until(lambda: admin.get(path).status == 200, what=f"{path} is served")
    yield group
    admin.delete(f"{CRDS}/things.{group}")


def test_cel_rules_are_enforced(admin: Http, rules: str) -> None:
    """422 with the message of the rule, at the place that it is written at."""
    body = {
        "apiVersion": f"{rules}/v1",
        "kind": "Thing",
        "metadata": {"name": "a"},
        "spec": {"count": 200},
    }
    done = admin.post(f"/apis/{rules}/v1/things", body)
    assert done.status == 422
    assert done.message == (f'Thing.{rules} "a" is invalid: spec: Invalid value: "object": too big')
