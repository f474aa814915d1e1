"""A node with containerd and a kubelet: Pods of the worker image, their logs, names and ends."""

import urllib.request
from typing import Any

import pytest
from hack.image import worker
from hack.kube import access

from support import kube_cluster, waiting

_PATIENCE = "--timeout=55s"
_SERVE = "echo serving; exec python3 -m http.server 8080"


@pytest.fixture
def web(kube: kube_cluster.Kube, namespace: str, real_node: str) -> str:
    """Run a Pod `web` that serves HTTP behind a Service `web`; return the Pod's namespace."""
    container = {
        "name": "web",
        "image": worker.name(),
        "command": ["sh", "-c", _SERVE],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1},
    }
    pod = _object("Pod", spec={"containers": [container], "nodeName": real_node})
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    service = _object(
        "Service", spec={"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    )
    kube.apply(pod, service, namespace=namespace)
    kube.kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "pod/web", _PATIENCE)
    return namespace


def _object(kind: str, *, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "web", "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def test_pod_has_logs_exec_and_exit_codes(kube: kube_cluster.Kube, web: str) -> None:
    here = f"--namespace={web}"
    assert "serving" in kube.kubectl("logs", here, "web")
    assert kube.kubectl("exec", here, "web", "--", "sh", "-c", "kiln --version").startswith("kiln")
    with pytest.raises(Exception, match="exit status 7"):
        kube.kubectl("exec", here, "web", "--", "sh", "-c", "exit 7")


def test_service_responds_by_name_inside_and_outside(kube: kube_cluster.Kube, web: str) -> None:
    url = f"http://web.{web}.svc/verify.py"

    def outside() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return b"import" in response.read()
        except OSError:  # refused until the endpoints are known
            return False

    assert waiting.wait_until(outside, what="the Service responds")

    def inside() -> bool:
        fetch = ("wget", "-q", "-O-", url)
        try:
            return "import" in kube.kubectl("exec", f"--namespace={web}", "web", "--", *fetch)
        except access.Failed:  # its rules and names may come a moment later
            return False

    waiting.wait_until(inside, what="the Service responds inside", every_s=0.5)


def test_deleted_pod_is_gone(kube: kube_cluster.Kube, web: str) -> None:
    kube.kubectl("delete", f"--namespace={web}", "pod", "web")
    assert kube.http.get(f"/api/v1/namespaces/{web}/pods/web").status == 404


def test_missing_image_is_reported(kube: kube_cluster.Kube, namespace: str, real_node: str) -> None:
    container = {"name": "web", "image": "localhost/nothing:1"}
    pod = _object("Pod", spec={"containers": [container], "nodeName": real_node})
    kube.apply(pod, namespace=namespace)

    def reason() -> str | None:
        status = kube.http.get(f"/api/v1/namespaces/{namespace}/pods/web").ok()["status"]
        states = status.get("containerStatuses") or [{}]
        found: str | None = states[0].get("state", {}).get("waiting", {}).get("reason")
        return found if found != "ContainerCreating" else None

    assert waiting.wait_until(reason, what="a reason") in ("ErrImagePull", "ImagePullBackOff")


def test_pods_of_a_lost_node_are_unreachable(
    kube: kube_cluster.Kube, web: str, real_node: str
) -> None:
    address = kube.get("pod", "web", f"--namespace={web}")["status"]["podIP"]

    def responses() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}:8080/", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    waiting.wait_until(responses, what="it responds")
    with kube.lost(real_node):
        assert not responses()
    waiting.wait_until(responses, what="it responds again")


def test_claim_finds_a_volume_that_outlives_its_pod(
    kube: kube_cluster.Kube, namespace: str, real_node: str
) -> None:
    claim = _object(
        "PersistentVolumeClaim",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    kube.apply(claim, namespace=namespace)
    for command, expected in (("echo kept > /data/file", ""), ("cat /data/file", "kept\n")):
        container = {
            "name": "web",
            "image": worker.name(),
            "command": ["sh", "-c", command],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "web"}}
        spec = {"containers": [container], "volumes": [volume], "restartPolicy": "Never"}
        here = f"--namespace={namespace}"
        on = {
            "nodeSelector": {"kubernetes.io/hostname": real_node}
        }  # scheduled: that binds the claim
        kube.apply(_object("Pod", spec={**spec, **on}), namespace=namespace)
        kube.kubectl("wait", here, "--for=jsonpath={.status.phase}=Succeeded", "pod/web", _PATIENCE)
        assert kube.kubectl("logs", here, "web") == expected
        kube.kubectl("delete", here, "pod", "web")
