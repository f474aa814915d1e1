"""A manager in the real cluster, installed as users do, for tests/cluster.

`Manager` is `kiln install | kubectl apply -f -` with helpers to query it; `Home` is the node that
it and its workers run on: ours, attached by `kiln node`, or one with a kubelet.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from kilnwork.api import manager_access as names
from support import kube_cluster, pages, waiting

COUNTER = pages.ROOT / "examples" / "01-counter"
POD = "kilnwork-manager-0"
SHORT_LEASE = ("--lease", "30s")
"""For tests that wait until a lease has ended, of which nothing but time can tell."""
NAMESPACE = names.NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The node of manager and workers. `spec` adds to the template of worker Pods."""

    options: Sequence[str] = ()
    spec: dict[str, Any] = field(default_factory=dict)


def on_virtual_node(name: str) -> Home:
    """Return a home on a node of `kiln node`."""
    taint = "virtual-kubelet.io/provider"
    return Home(
        options=(
            *("--storage", "emptyDir", "--run-as", "node", "--toleration", taint),
            *_selected(name),
        ),
        spec={
            "nodeSelector": {"kubernetes.io/hostname": name},
            "tolerations": [{"key": taint, "operator": "Exists"}],
        },
    )


def on_real_node(name: str, *options: str) -> Home:
    """Return a home on a node with containerd and a kubelet, which has the image."""
    return Home(
        options=("--pull-policy", "IfNotPresent", *_selected(name), *options),
        spec={"nodeSelector": {"kubernetes.io/hostname": name}, "terminationGracePeriodSeconds": 2},
    )


def _selected(node: str) -> tuple[str, str]:
    return "--node-selector", f"kubernetes.io/hostname={node}"


class Manager:
    """One manager for the whole cluster."""

    def __init__(self, kube: kube_cluster.Kube, home: Home) -> None:
        self.kube = kube
        self.home = home

    def manifests(self, *more: str) -> str:
        """Return the output of `kiln install` for this home."""
        return self.kube.kiln("install", *self.home.options, *more).stdout

    def install(self) -> None:
        """Apply the manifests and wait until the manager is ready."""
        self.kube.kubectl("apply", "-f", "-", stdin=self.manifests())
        self.wait_ready()

    def wait_ready(self, *, timeout_s: float = 60.0) -> None:
        path = f"{names.proxy_path()}/readyz"
        try:
            waiting.wait_until(
                lambda: self.kube.http.get(path).status == 200,
                what="the manager is ready",
                timeout_s=timeout_s,
                every_s=0.2,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.described()}") from error

    def described(self) -> str:
        here = f"--namespace={NAMESPACE}"
        details = [self.kube.kubectl("describe", "pods", here)[-3000:]]
        try:
            details.append(self.log()[-4000:])
        except Exception as error:  # noqa: BLE001 - there may be no container yet
            details.append(str(error))
        return "\n".join(details)

    def log(self) -> str:
        """Return its log since its last start."""
        return self.kube.kubectl("logs", f"--namespace={NAMESPACE}", POD)

    def refusals(self) -> list[str]:
        """Return the lines of its log about requests that it had no right to.

        The API server also refuses creations in a namespace that is being deleted in this way.
        """
        lines = [line for line in self.log().splitlines() if "forbidden" in line.lower()]
        return [line for line in lines if "is being terminated" not in line]

    def refused_requests(self) -> int:
        """Return how many requests of the manager the API server has refused with 403 so far."""
        used = "tasks|taskobjects|taskclusters|secrets|tokenreviews|subjectaccessreviews|leases"
        return self.requests(used, code="403")

    def requests(
        self, resource: str, *, code: str = ".*", subresource: str = ".*", verb: str = ".*"
    ) -> int:
        """Return how many requests the API server has served so far, by its own metrics; the
        arguments are patterns.
        """
        text = self.kube.kubectl("get", "--raw", "/metrics")
        wanted = {"code": code, "resource": resource, "subresource": subresource, "verb": verb}
        total = 0
        for labels, count in re.findall(r"apiserver_request_total{(.*)} (\d+)", text):
            found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if all(re.fullmatch(pattern, found[name]) for name, pattern in wanted.items()):
                total += int(count)
        return total

    def cluster(self, name: str, *, namespace: str, **spec: Any) -> dict[str, Any]:
        """Return a TaskCluster for this home."""
        return {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "TaskCluster",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": 1, "template": {"spec": self.home.spec}, **spec},
        }

    def start_cluster(self, name: str, *, namespace: str, **spec: Any) -> None:
        """Create a TaskCluster and wait until a worker is connected."""
        self.kube.apply(self.cluster(name, namespace=namespace, **spec))
        self.wait_available(name, namespace=namespace)

    def wait_available(self, name: str, *, namespace: str, timeout_s: float = 55.0) -> None:
        self.kube.kiln(
            *("wait", f"taskcluster/{name}", "-n", namespace),
            *("--for", "condition=Available", "--timeout", f"{timeout_s:g}s"),
        )

    def counter_objects(self, namespace: str) -> list[dict[str, Any]]:
        """Return the objects of the counter's cluster.yaml, for that namespace and this home."""
        found = list(yaml.safe_load_all((COUNTER / "cluster.yaml").read_text()))
        found[-1]["spec"]["template"] = {"spec": self.home.spec}
        for subject in found[2]["subjects"]:
            subject["namespace"] = namespace
        return found

    def allow_drivers(self, namespace: str) -> None:
        """Create the driver account of a namespace: the administrator's kubeconfig has no token."""
        made = self.manifests("--only", "drivers", "--drivers-in", namespace)
        self.kube.kubectl("apply", "-f", "-", stdin=made)

    def task(self, name: str, namespace: str) -> dict[str, Any]:
        path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{namespace}/tasks/{name}"
        found: dict[str, Any] = json.loads(self.kube.http.get(path).body)
        return found

    def remove(self) -> None:
        """Delete everything but the definitions; wait until the namespace is gone."""
        gone = self.manifests("--only", "manager", "--only", "rights")
        self.kube.kubectl(
            "delete", "--ignore-not-found", "--wait=true", "-f", "-", stdin=gone, timeout_s=120
        )


@contextlib.contextmanager
def installed(kube: kube_cluster.Kube, home: Home) -> Iterator[Manager]:
    """Install a manager, wait until it is ready, and remove it afterwards."""
    made = Manager(kube, home)
    made.install()
    try:
        yield made
    finally:
        made.remove()
