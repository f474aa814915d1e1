"""kubectl, reading: what it prints, which is what the server sent."""

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from support import kube_servers

pytestmark = pytest.mark.kubectl

THINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: b, labels: {app: x}}
data: {k: two}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {app: z}, annotations: {note: hello}}
data: {k: one}
---
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {name: t}
spec: {command: ["true"]}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  schedulerName: unknown
  containers: [{name: main, image: "localhost/none:1"}]
"""


@pytest.fixture
def kubectl_with_objects(kubectl: kube_servers.Kubectl) -> kube_servers.Kubectl:
    """kubectl in a namespace with two ConfigMaps, a Task and a Pod that is never bound."""
    kubectl("create", "-f", "-", stdin=THINGS)
    return kubectl


def table(text: str) -> list[list[str]]:
    """Cells of every line, split where columns are at least two blanks apart."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_kubectl_get_by_kind_and_name(kubectl_with_objects: kube_servers.Kubectl) -> None:
    """Under every name that discovery gives; several kinds at once."""
    for name in ("configmaps", "configmap", "cm", "configmaps.v1."):
        assert table(kubectl_with_objects("get", name, "a"))[1][:2] == ["a", "1"]
    for name in ("tasks", "task", "ktask", "tasks.kilnwork.dev", "tasks.v1alpha1.kilnwork.dev"):
        assert table(kubectl_with_objects("get", name))[1][0] == "t"
    assert table(kubectl_with_objects("get", "cm/a", "task/t", "--no-headers", "-o", "name")) == [
        ["configmap/a"],
        ["task.kilnwork.dev/t"],
    ]
    assert "task.kilnwork.dev/t" in kubectl_with_objects("get", "kiln", "-o", "name")
    assert kubectl_with_objects("get", "all", "-o", "name").splitlines() == ["pod/p"]


def test_kubectl_get_columns(kubectl_with_objects: kube_servers.Kubectl) -> None:
    """Narrow, wide, with labels, with namespaces, sorted."""
    narrow = table(kubectl_with_objects("get", "pods"))
    assert narrow[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert narrow[1][:4] == ["p", "0/1", "Pending", "0"]
    wide = table(kubectl_with_objects("get", "pods", "-o", "wide"))[0]
    assert wide[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    labelled = table(kubectl_with_objects("get", "cm", "-L", "app", "a", "b"))
    assert labelled[0] == ["NAME", "DATA", "AGE", "APP"]
    assert [row[3] for row in labelled[1:]] == ["z", "x"]
    assert "NAMESPACE" in kubectl_with_objects("get", "cm", "-A").splitlines()[0]
    by_value = kubectl_with_objects("get", "cm", "-l", "app", "--sort-by=.data.k", "-o", "name")
    assert by_value.split() == ["configmap/a", "configmap/b"]


def test_kubectl_get_with_selectors_and_pages(kubectl_with_objects: kube_servers.Kubectl) -> None:
    """By label and field, in pages that kubectl puts together."""
    assert kubectl_with_objects("get", "cm", "-l", "app=x", "-o", "name") == "configmap/b\n"
    assert (
        kubectl_with_objects("get", "cm", "-l", "app in (x,z),app!=x", "-o", "name")
        == "configmap/a\n"
    )
    assert (
        kubectl_with_objects("get", "cm", "--field-selector=metadata.name=b", "-o", "name")
        == "configmap/b\n"
    )
    assert (
        kubectl_with_objects("get", "pods", "--field-selector=spec.nodeName!=", "-o", "name") == ""
    )
    every = kubectl_with_objects("get", "cm", "--chunk-size=1", "-o", "name").split()
    assert every == ["configmap/a", "configmap/b", "configmap/kube-root-ca.crt"]
    said = kubectl_with_objects.refused("get", "cm", "--field-selector=data.k=one")
    assert '"data.k" is not a known field selector: only "metadata.name"' in said
    assert "unable to parse requirement" in kubectl_with_objects.refused(
        "get", "cm", "-l", "a in (b"
    )


def test_kubectl_get_output_formats(kubectl_with_objects: kube_servers.Kubectl) -> None:
    """JSON, YAML, JSONPath, templates, columns of one's own."""
    one = json.loads(kubectl_with_objects("get", "cm", "a", "-o", "json"))
    assert (one["kind"], one["data"]) == ("ConfigMap", {"k": "one"})
    many = json.loads(kubectl_with_objects("get", "cm", "-o", "json"))
    assert (many["kind"], {item["kind"] for item in many["items"]}) == ("List", {"ConfigMap"})
    assert "kind: ConfigMap" in kubectl_with_objects("get", "cm", "a", "-o", "yaml")
    assert kubectl_with_objects("get", "cm", "a", "-o", "jsonpath={.data.k}") == "one"
    assert kubectl_with_objects("get", "cm", "a", "-o", "go-template={{.metadata.name}}") == "a"
    shown = kubectl_with_objects(
        "get", "cm", "a", "-o", "custom-columns=N:.metadata.name,V:.data.k"
    )
    assert table(shown) == [["N", "V"], ["a", "one"]]


def test_kubectl_get_of_missing_objects(kubectl_with_objects: kube_servers.Kubectl) -> None:
    assert kubectl_with_objects.refused("get", "cm", "z") == (
        'Error from server (NotFound): configmaps "z" not found\n'
    )
    assert kubectl_with_objects.refused("get", "nothings") == (
        'error: the server doesn\'t have a resource type "nothings"\n'
    )
    assert kubectl_with_objects("get", "cm", "z", "--ignore-not-found") == ""
    done = kubectl_with_objects.run("get", "secrets")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("No resources found in ")


def test_kubectl_describe(kubectl_with_objects: kube_servers.Kubectl) -> None:
    """Of built-in kinds in kubectl's own form, of others as it comes."""
    said = kubectl_with_objects("describe", "configmap", "a")
    assert re.search(r"^Annotations:\s+note: hello$", said, re.MULTILINE)
    said = kubectl_with_objects("describe", "pod", "p")
    assert re.search(r"^Status:\s+Pending$", said, re.MULTILINE)
    assert re.search(r"^QoS Class:\s+BestEffort$", said, re.MULTILINE)
    said = kubectl_with_objects("describe", "task", "t")
    assert re.search(r"^API Version:\s+kilnwork.dev/v1alpha1$", said, re.MULTILINE)
    assert "Cluster Name:" in said


def test_kubectl_explain(kubectl: kube_servers.Kubectl) -> None:
    """From OpenAPI, down to a field, of built-in and of custom kinds."""
    said = kubectl("explain", "pod.spec.containers.image")
    assert "FIELD: image <string>" in said
    assert "Container image name." in said
    assert "containers\t<[]Container> -required-" in kubectl("explain", "pod.spec")
    assert "lastTransitionTime" in kubectl("explain", "pods.status", "--recursive")
    assert re.search(r"GROUP: +kilnwork.dev", kubectl("explain", "task"))
    assert "FIELD: clusterName <string>" in kubectl("explain", "task.spec.clusterName")
    assert "FIELD: ownerReferences" in kubectl("explain", "task.metadata.ownerReferences")
    assert 'field "nope" does not exist' in kubectl.refused("explain", "pod.spec.nope")
    assert "FIELD: rules <[]PolicyRule>" in kubectl("explain", "clusterrole.rules")


def test_kubectl_api_resources(kubectl: kube_servers.Kubectl) -> None:
    """Everything, with short names, groups and verbs."""
    listed = {row[0]: row for row in table(kubectl("api-resources", "--no-headers", "-o", "wide"))}
    assert listed["pods"][1:5] == ["po", "v1", "true", "Pod"]
    assert listed["pods"][5] == "create,delete,deletecollection,get,list,patch,update,watch"
    assert listed["tasks"][1:5] == ["ktask", "kilnwork.dev/v1alpha1", "true", "Task"]
    assert listed["jobconfigs"][1:5] == ["kjc", "kilnwork.dev/v1alpha1", "true", "JobConfig"]
    assert listed["selfsubjectaccessreviews"][-1] == "create"
    assert kubectl("api-resources", "--api-group=kilnwork.dev", "-o", "name").split() == [
        "dataponds.kilnwork.dev",
        "jobconfigs.kilnwork.dev",
        "jobs.kilnwork.dev",
        "syncsets.kilnwork.dev",
        "taskclaims.kilnwork.dev",
        "taskclusters.kilnwork.dev",
        "taskobjects.kilnwork.dev",
        "tasks.kilnwork.dev",
    ]
    versions = kubectl("api-versions").split()
    assert {"v1", "kilnwork.dev/v1alpha1", "rbac.authorization.k8s.io/v1"} <= set(versions)


def test_kubectl_get_raw(kubectl: kube_servers.Kubectl) -> None:
    assert kubectl("get", "--raw", "/healthz") == "ok"
    assert json.loads(kubectl("get", "--raw", "/api/v1"))["groupVersion"] == "v1"
    said = kubectl.refused("get", "--raw", "/nowhere")
    assert (
        said == "Error from server (NotFound): the server could not find the requested resource\n"
    )


def test_kubectl_version(kubectl: kube_servers.Kubectl) -> None:
    """Of client and server, close enough for kubectl not to warn."""
    done = kubectl.run("version")
    assert done.returncode == 0
    assert "Server Version: v1.3" in done.stdout
    assert "WARNING" not in done.stderr


def test_kubectl_auth(kubectl: kube_servers.Kubectl) -> None:
    """One's own and those of others; who one is."""
    assert kubectl("auth", "can-i", "delete", "pods") == "yes\n"
    done = kubectl.run("auth", "can-i", "delete", "pods", "--as=joe")
    assert (done.returncode, done.stdout) == (1, "no\n")
    assert "*.*" in kubectl("auth", "can-i", "--list")
    own = kubectl("auth", "can-i", "--list", "--as=joe", "--as-group=system:authenticated")
    assert "selfsubjectrulesreviews.authorization.k8s.io" in own
    assert "joe" in kubectl("auth", "whoami", "--as=joe", "-o", "jsonpath={.status.userInfo}")


def test_kubectl_wait(kubectl_with_objects: kube_servers.Kubectl) -> None:
    """Until a field has a value, a condition holds, or all is gone."""
    waited = kubectl_with_objects(
        "wait", "pod/p", "--for=jsonpath={.status.phase}=Pending", "--timeout=10s"
    )
    assert waited == "pod/p condition met\n"
    condition = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    waiting = threading.Thread(
        target=kubectl_with_objects,
        args=("wait", "pod/p", "--for=condition=Ready", "--timeout=20s"),
    )
    waiting.start()
    kubectl_with_objects(
        "patch", "pod", "p", "--subresource=status", "--type=merge", "-p", condition
    )
    waiting.join(20)
    assert not waiting.is_alive()
    kubectl_with_objects("delete", "pod", "p", "--wait=false", "--grace-period=0", "--force")
    kubectl_with_objects("wait", "pod/p", "--for=delete", "--timeout=10s")
    said = kubectl_with_objects.refused(
        "wait", "cm/a", "--for=jsonpath={.data.k}=other", "--timeout=1s"
    )
    assert "timed out waiting for the condition on configmaps/a" in said


def test_kubectl_get_watch(
    kubectl_with_objects: kube_servers.Kubectl,
    kubectl_program: Path,
    server: kube_servers.Server,
    namespace: str,
) -> None:
    argv = [str(kubectl_program), f"--kubeconfig={server.kubeconfig}", f"--namespace={namespace}"]
    with subprocess.Popen(
        [*argv, "get", "cm", "-l", "app", "-w", "--output-watch-events"],
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        rows = [re.split(r" {2,}", watching.stdout.readline().strip()) for _ in range(3)]
        assert rows[0][:3] == ["EVENT", "NAME", "DATA"]
        assert [row[:2] for row in rows[1:]] == [["ADDED", "a"], ["ADDED", "b"]]
        kubectl_with_objects("patch", "cm", "a", "-p", '{"data":{"more":"x"}}')
        changed = re.split(r" {2,}", watching.stdout.readline().strip())
        assert changed[:3] == ["MODIFIED", "a", "2"]
        watching.terminate()


def test_kubectl_events(
    kubectl_with_objects: kube_servers.Kubectl, admin: kube_servers.Http, namespace: str
) -> None:
    """Of one object, and in `describe`."""
    uid = admin.get(f"/api/v1/namespaces/{namespace}/configmaps/a").ok()["metadata"]["uid"]
    about = {"kind": "ConfigMap", "name": "a", "namespace": namespace, "uid": uid}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"apiVersion": "v1", **about},
        "reason": "Looked",
        "type": "Normal",
        "message": "looked at it",
        "source": {"component": "tester"},
        "count": 1,
        "firstTimestamp": "2020-01-01T00:00:00Z",
        "lastTimestamp": "2020-01-01T00:00:00Z",
    }
    admin.post(f"/api/v1/namespaces/{namespace}/events", event).ok()
    rows = table(kubectl_with_objects("events", "--for", "configmap/a"))
    assert rows[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert rows[1][1:] == ["Normal", "Looked", "ConfigMap/a", "looked at it"]
    assert "looked at it" in kubectl_with_objects("describe", "cm", "a")
    rows = table(kubectl_with_objects("get", "events", "--field-selector=reason=Looked"))
    assert rows[1][1:] == ["Normal", "Looked", "configmap/a", "looked at it"]
