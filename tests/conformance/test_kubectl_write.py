"""kubectl as people use it to write: create, apply, edit by patch, scale, delete, run."""

import json

import pytest

from support import kube_servers, waiting

Http = kube_servers.Http
Kubectl = kube_servers.Kubectl


def test_kubectl_create_label_annotate_delete(kubectl: Kubectl, namespace: str) -> None:
    assert kubectl("create", "configmap", "a", "--from-literal=x=y") == "configmap/a created\n"
    refused = kubectl.refused("create", "configmap", "a")
    assert refused == ('error: failed to create configmap: configmaps "a" already exists\n')
    assert kubectl("label", "configmap", "a", "l=1") == "configmap/a labeled\n"
    assert "already has a value (1)" in kubectl.refused("label", "configmap", "a", "l=2")
    assert kubectl("label", "configmap", "a", "l=2", "--overwrite") == "configmap/a labeled\n"
    assert kubectl("annotate", "configmap", "a", "n=1") == "configmap/a annotated\n"
    found = json.loads(kubectl("get", "configmap", "a", "-o", "json"))
    assert found["metadata"]["labels"] == {"l": "2"}
    assert found["metadata"]["annotations"] == {"n": "1"}
    done = kubectl("delete", "configmap", "a")
    assert done == f'configmap "a" deleted from namespace "{namespace}"\n' or done == (
        'configmap "a" deleted\n'
    )
    assert kubectl.refused("delete", "configmap", "a") == (
        'Error from server (NotFound): configmaps "a" not found\n'
    )


def test_kubectl_patch_types(kubectl: Kubectl) -> None:
    """--type merge, json and strategic."""
    kubectl("create", "configmap", "a", "--from-literal=x=y")

    def data() -> object:
        return json.loads(kubectl("get", "configmap", "a", "-o", "json")).get("data")

    kubectl("patch", "configmap", "a", "--type=merge", "-p", '{"data":{"x":"1"}}')
    assert data() == {"x": "1"}
    operation = '[{"op":"add","path":"/data/z","value":"2"}]'
    kubectl("patch", "configmap", "a", "--type=json", "-p", operation)
    assert data() == {"x": "1", "z": "2"}
    assert kubectl("patch", "configmap", "a", "-p", '{"data":{"x":null}}') == (
        "configmap/a patched\n"
    )
    assert data() == {"z": "2"}
    same = kubectl("patch", "configmap", "a", "-p", '{"data":{"z":"2"}}')
    assert same == "configmap/a patched (no change)\n"


def test_kubectl_apply_keeps_fields_of_other_clients(
    kubectl: Kubectl, admin: Http, namespace: str
) -> None:
    """A three-way merge against the last applied."""
    manifest = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: '1'}}\nspec:\n"
        "  schedulerName: unknown\n  containers:\n  - {name: c, image: 'x:1'}\n"
    )
    assert kubectl("apply", "-f", "-", stdin=manifest) == "pod/p created\n"
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    admin.patch(path, {"metadata": {"labels": {"b": "2"}}}).ok()
    changed = manifest.replace("x:1", "x:2").replace("a: '1'", "c: '3'")
    assert kubectl("apply", "-f", "-", stdin=changed) == "pod/p configured\n"
    found = admin.get(path).json
    assert found["metadata"]["labels"] == {"b": "2", "c": "3"}
    assert found["spec"]["containers"][0]["image"] == "x:2"
    assert kubectl("diff", "-f", "-", stdin=changed) == ""


def test_kubectl_apply_of_several_objects(kubectl: Kubectl) -> None:
    """In the order given; delete by the same file."""
    manifest = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: v}\n"
    )
    assert kubectl("apply", "-f", "-", stdin=manifest) == (
        "configmap/a created\nsecret/s created\n"
    )
    gone = kubectl("delete", "-f", "-", stdin=manifest)
    assert gone.count("deleted") == 2


def test_kubectl_rejects_unknown_fields(kubectl: Kubectl) -> None:
    """kubectl asks the server for strict reading."""
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndat: {a: b}\n"
    refused = kubectl.refused("apply", "-f", "-", stdin=manifest)
    assert 'strict decoding error: unknown field "dat"' in refused
    warned = kubectl.run("apply", "--validate=warn", "-f", "-", stdin=manifest)
    assert warned.returncode == 0
    assert 'Warning: unknown field "dat"' in warned.stderr


def test_kubectl_dry_run(kubectl: Kubectl) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    done = kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)
    assert done == "configmap/a created (server dry run)\n"
    assert kubectl("get", "configmap", "a", "--ignore-not-found") == ""


def test_kubectl_replace(kubectl: Kubectl) -> None:
    """With the version that was read; --force deletes first."""
    kubectl("create", "configmap", "a", "--from-literal=x=y")
    found = kubectl("get", "configmap", "a", "-o", "json")
    changed = found.replace('"x": "y"', '"x": "z"')
    assert kubectl("replace", "-f", "-", stdin=changed) == "configmap/a replaced\n"
    assert "the object has been modified" in kubectl.refused("replace", "-f", "-", stdin=changed)


def test_kubectl_run_and_wait(kubectl: Kubectl, admin: Http, namespace: str) -> None:
    """A Pod by name; waiting for its condition and for its end."""
    overrides = '{"spec":{"nodeSelector":{"no":"where"}}}'
    done = kubectl("run", "p", "--image=x:1", f"--overrides={overrides}")
    assert done == "pod/p created\n"
    condition = {"type": "Ready", "status": "True"}
    path = f"/api/v1/namespaces/{namespace}/pods/p/status"
    admin.patch(path, {"status": {"conditions": [condition]}}).ok()
    met = kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")
    assert met == "pod/p condition met\n"
    kubectl("delete", "pod", "p", "--wait=true", "--timeout=20s")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_kubectl_rbac_commands(kubectl: Kubectl, namespace: str) -> None:
    """create role, rolebinding, auth can-i, auth reconcile."""
    kubectl("create", "role", "r", "--verb=get,list", "--resource=configmaps")
    kubectl("create", "rolebinding", "b", "--role=r", "--user=joe")
    as_joe = ("--as=joe", "--as-group=system:authenticated")
    waiting.wait_until(
        lambda: kubectl.run("auth", "can-i", "list", "configmaps", *as_joe).stdout == "yes\n",
        what="joe may list",
    )
    assert kubectl.run("auth", "can-i", "delete", "configmaps", *as_joe).stdout == "no\n"
    refused = kubectl.refused("get", "secrets", *as_joe)
    assert refused == (
        'Error from server (Forbidden): secrets is forbidden: User "joe" cannot list resource '
        f'"secrets" in API group "" in the namespace "{namespace}"\n'
    )


def test_kubectl_uses_a_custom_kind(kubectl: Kubectl) -> None:
    """apply a definition, wait for it, use it by its short name, explain it, delete it."""
    group = f"{kube_servers.fresh_name('k')}.test"
    definition = f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: boxes.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: Box, plural: boxes, shortNames: [bx{group[2:6]}]}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{scale: {{specReplicasPath: .spec.count, statusReplicasPath: .status.count}}}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, properties: {{count: {{type: integer, description: How many.}}}}}}
          status: {{type: object, properties: {{count: {{type: integer}}}}}}
"""
    kubectl("apply", "-f", "-", stdin=definition)
    kubectl("wait", "--for=condition=Established", f"crd/boxes.{group}", "--timeout=20s")
    box = f"apiVersion: {group}/v1\nkind: Box\nmetadata: {{name: a}}\nspec: {{count: 1}}\n"
    listing = ("api-resources", f"--api-group={group}", "-o", "name")
    waiting.wait_until(lambda: "boxes" in kubectl.run(*listing).stdout, what="it is discovered")
    assert kubectl("apply", "-f", "-", stdin=box) == f"box.{group}/a created\n"
    assert kubectl("apply", "-f", "-", stdin=box) == f"box.{group}/a unchanged\n"
    assert f"box.{group}/a" in kubectl("get", f"bx{group[2:6]}", "-o", "name")
    assert kubectl("scale", f"boxes.{group}/a", "--replicas=3") == f"box.{group}/a scaled\n"
    assert kubectl("get", f"boxes.{group}", "a", "-o", "jsonpath={.spec.count}") == "3"
    kubectl("delete", f"crd/boxes.{group}", "--timeout=30s")
    unknown = "the server doesn't have a resource type"
    waiting.wait_until(
        lambda: unknown in kubectl.run("get", f"boxes.{group}").stderr, what="it is forgotten"
    )


UNKNOWN = """
apiVersion: example.com/v1
kind: Nope
metadata: {name: x}
"""
NO_MATCHES = 'no matches for kind "Nope" in version "example.com/v1"'


@pytest.mark.parametrize(
    "command",
    [
        ("apply", "-f", "-"),
        ("create", "-f", "-"),
        ("create", "--validate=strict", "-f", "-"),
        ("apply", "--validate=false", "-f", "-"),
        ("replace", "-f", "-"),
        ("delete", "-f", "-"),
    ],
)
def test_kubectl_reports_unserved_kind(
    kubectl: kube_servers.Kubectl, command: tuple[str, ...]
) -> None:
    """kubectl says so, and not that the server's documents cannot be read."""
    said = kubectl.refused(*command, stdin=UNKNOWN)
    assert NO_MATCHES in said
    assert "openapi" not in said


def test_kubectl_applies_served_kinds_beside_unserved_ones(kubectl: kube_servers.Kubectl) -> None:
    known = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: known}\ndata: {a: '1'}\n"
    done = kubectl.run("apply", "-f", "-", stdin=UNKNOWN + known)
    assert done.returncode == 1
    assert NO_MATCHES in done.stderr
    assert "configmap/known created" in done.stdout
