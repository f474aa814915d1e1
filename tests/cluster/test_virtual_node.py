"""`kiln node` on the real control plane: Pods, logs, rights, restarts, faults, removal."""

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kit import processes
from support import kube_cluster, kube_servers, pages, waiting

PROVIDER = "virtual-kubelet.io/provider"
WAITS = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"


class Pods:
    """Pods of one namespace on one virtual node."""

    def __init__(self, kube: kube_cluster.Kube, namespace: str, node: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.node = node

    def path(self, name: str = "p") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    def create(self, *containers: dict[str, Any], name: str = "p", **spec: Any) -> str:
        """Create a Pod that tolerates the node's taint; return its uid."""
        spec = {
            "restartPolicy": "Never",
            "tolerations": [{"key": PROVIDER, "operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "terminationGracePeriodSeconds": 2,
            "containers": [{"image": "label", **c} for c in containers],
            **spec,
        }
        pod = {"metadata": {"name": name}, "spec": spec}
        made = self.kube.http.post(f"/api/v1/namespaces/{self.namespace}/pods", pod).ok()
        return str(made["metadata"]["uid"])

    def get(self, name: str = "p") -> dict[str, Any]:
        found: dict[str, Any] = self.kube.http.get(self.path(name)).ok()
        return found

    def until(self, *phases: str, name: str = "p", timeout_s: float = 40.0) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = self.get(name)
            return found if found["status"].get("phase") in phases else {}

        return waiting.wait_until(look, what=f"{name} is {phases}", timeout_s=timeout_s)

    def gone(self, name: str = "p") -> bool:
        return self.kube.http.get(self.path(name)).status == 404

    def until_gone(self, name: str = "p", *, timeout_s: float = 40.0) -> None:
        waiting.wait_until(lambda: self.gone(name), what=f"{name} is gone", timeout_s=timeout_s)

    def logs(self, name: str = "p", *more: str) -> str:
        return self.kube.kubectl("logs", name, f"--namespace={self.namespace}", *more)


def shell(script: str, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": ["sh", "-c", script], **more}


def runs(uid: str, name: str = "main") -> list[int]:
    """Return the processes of all starts of a container."""
    return [
        pid
        for number in range(5)
        for pid in processes.find_marked(f"KILN_CONTAINER_ID={uid}/{name}/{number}")
    ]


@pytest.fixture
def pods(
    kube: kube_cluster.Kube, namespace: str, virtual_node: kube_cluster.VirtualNode
) -> Iterator[Pods]:
    made = Pods(kube, namespace, virtual_node.name)
    yield made
    kube.kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--wait=false")


def test_node_is_tainted_labelled_and_holds_its_lease(
    kube: kube_cluster.Kube, virtual_node: kube_cluster.VirtualNode
) -> None:
    node = kube.get("node", virtual_node.name)
    own = [t for t in node["spec"]["taints"] if t["key"] == PROVIDER]
    assert own == [{"key": PROVIDER, "value": "kilnwork", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"]["kilnwork.dev/local"] == "true"

    def owners() -> list[dict[str, Any]]:
        lease = kube.get("lease", virtual_node.name, "--namespace=kube-node-lease")
        return list(lease["metadata"].get("ownerReferences", ()))

    [owner] = waiting.wait_until(owners, what="the Lease has an owner")
    assert owner["uid"] == node["metadata"]["uid"]


def test_pod_runs_with_its_account_and_its_log_is_read_through_the_api_server(
    pods: Pods,
) -> None:
    script = """
        cd "$CONTAINER_SANDBOX_MOUNT_POINT/var/run/secrets/kubernetes.io/serviceaccount"
        cat namespace; echo; head -1 ca.crt; cut -c1-3 token
        echo $KUBERNETES_SERVICE_PORT
    """
    pods.create(shell(script))
    found = pods.until("Succeeded", "Failed")
    port = pods.kube.server.rpartition(":")[2]
    expected = [pods.namespace, "-----BEGIN CERTIFICATE-----", "eyJ", port]
    assert pods.logs().splitlines() == expected
    status = found["status"]
    assert status["phase"] == "Succeeded"
    assert status["qosClass"] == "BestEffort"
    assert status["hostIPs"] == [{"ip": status["hostIP"]}]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions["PodScheduled"] == "True"
    assert conditions["Ready"] == "False"


def test_pod_without_toleration_is_not_scheduled_there(pods: Pods) -> None:
    pods.create(shell("true"), tolerations=[])

    def refused() -> bool:
        conditions = pods.get()["status"].get("conditions") or ()
        return any("untolerated taint" in c.get("message", "") for c in conditions)

    waiting.wait_until(refused, what="the scheduler refuses it")


def test_ignored_fields_are_in_a_condition_and_unsupported_ones_refused(pods: Pods) -> None:
    """The real API server fills in defaults; only fields that the user has set are named."""
    pods.create(shell("true"), name="plain")
    pods.create(
        shell("true", resources={"limits": {"cpu": "1"}}),
        name="odd",
        hostname="x",
        dnsPolicy="None",
        dnsConfig={"nameservers": ["127.0.0.1"]},
    )
    pods.create(
        shell("true"), name="refused", volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]
    )
    conditions = {c["type"]: c for c in pods.until("Succeeded", name="odd")["status"]["conditions"]}
    named = conditions["kilnwork.dev/FieldsIgnored"]["message"].split("; ")
    assert sorted(text.partition(": ")[0] for text in named) == [
        "spec.containers[0].resources.limits",
        "spec.dnsConfig",
        "spec.dnsPolicy",
        "spec.hostname",
    ]
    plain = pods.until("Succeeded", name="plain")["status"]
    assert "FieldsIgnored" not in str(plain["conditions"])
    status = pods.until("Failed", name="refused")["status"]
    assert status["reason"] == "UnsupportedPod"
    assert status["message"].startswith("spec.volumes[0].nfs: refused by nodes of kilnwork: ")


def test_several_containers_in_order_with_a_sidecar(pods: Pods) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    at = 'cd "$CONTAINER_SANDBOX_MOUNT_POINT/v"'
    init = [
        {"image": "x", **shell(f"{at}; echo init >> f", "first", **mount)},
        {"image": "x", **shell(WAITS, "side", restartPolicy="Always")},
    ]
    main = [shell(f"{at}; cat f", "a", **mount), shell("exit 0", "b")]
    pods.create(*main, volumes=volumes, initContainers=init)
    found = pods.until("Succeeded", "Failed")
    assert found["status"]["phase"] == "Succeeded"
    assert pods.logs("p", "-c", "a") == "init\n"
    assert len(found["status"]["initContainerStatuses"]) == 2


def test_readiness_makes_an_endpoint_of_a_service(pods: Pods, tmp_path: Path) -> None:
    if pods.kube.address.startswith("127."):
        pytest.skip("endpoints on loopback are refused: run it in the sandbox of hack/kube")
    ok = tmp_path / "ok"
    probe = {"exec": {"command": ["test", "-e", str(ok)]}, "periodSeconds": 1}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "p"}, "ports": [{"port": 80}]},
    }
    pods.kube.apply(service, namespace=pods.namespace)
    pods.create(shell(WAITS, readinessProbe=probe))
    pods.kube.kubectl("label", "pod", "p", "app=p", f"--namespace={pods.namespace}")
    pods.until("Running")

    def endpoints() -> list[bool]:
        query = {"labelSelector": "kubernetes.io/service-name=s"}
        path = f"/apis/discovery.k8s.io/v1/namespaces/{pods.namespace}/endpointslices"
        found = pods.kube.http.get(path, **query).ok()["items"]
        return [e["conditions"]["ready"] for s in found for e in s.get("endpoints") or ()]

    waiting.wait_until(lambda: endpoints() == [False], what="it is no endpoint yet")
    ok.touch()
    waiting.wait_until(lambda: endpoints() == [True], what="it is an endpoint")


def test_deployment_runs_and_is_scaled_to_nothing(pods: Pods) -> None:
    template = {
        "metadata": {"labels": {"app": "d"}},
        "spec": {
            "tolerations": [{"key": PROVIDER, "operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/hostname": pods.node},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"image": "x", **shell(WAITS)}],
        },
    }
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    pods.kube.apply({**deployment, "spec": spec}, namespace=pods.namespace)
    where = f"--namespace={pods.namespace}"
    pods.kube.kubectl("rollout", "status", "deployment/d", where, "--timeout=50s")
    pods.kube.kubectl("scale", "deployment/d", where, "--replicas=0")

    def none() -> bool:
        return not pods.kube.get("pods", where)["items"]

    waiting.wait_until(none, what="all are gone", timeout_s=40)


# Who may ask


def ask(
    kube: kube_cluster.Kube, node: str, path: str, *, token: str = "", certificate: str = ""
) -> tuple[int, str]:
    """GET a path on the node's own port."""
    status = kube.get("node", node)["status"]
    port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate:
        pki = kube.directory / "pki"
        context.load_cert_chain(pki / f"{certificate}.crt", pki / f"{certificate}.key")
    request = urllib.request.Request(f"https://{kube.address}:{port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_node_paths_need_the_right_to_them(
    kube: kube_cluster.Kube, pods: Pods, namespace: str
) -> None:
    pods.create(shell("echo hello"))
    pods.until("Succeeded")
    log = f"/containerLogs/{namespace}/p/main"
    assert ask(kube, pods.node, log) == (401, "Unauthorized")
    assert ask(kube, pods.node, log, token="nonsense") == (401, "Unauthorized")
    token = kube.kubectl("create", "token", "default", f"--namespace={namespace}").strip()
    user = f"system:serviceaccount:{namespace}:default"
    what = f"user={user}, verb=get, resource=nodes, subresource(s)=[proxy]"
    assert ask(kube, pods.node, log, token=token) == (403, f"Forbidden ({what})\n")
    kube.kubeconfig_for("reader")
    assert ask(kube, pods.node, log, certificate="reader")[0] == 403
    assert ask(kube, pods.node, log, certificate="kubelet-client") == (200, "hello\n")
    kube.kubectl("create", "clusterrole", namespace, "--verb=get", "--resource=nodes/proxy")
    kube.kubectl(
        "create",
        "clusterrolebinding",
        namespace,
        f"--clusterrole={namespace}",
        f"--serviceaccount={namespace}:other",
    )
    kube.kubectl("create", "serviceaccount", "other", f"--namespace={namespace}")
    token = kube.kubectl("create", "token", "other", f"--namespace={namespace}").strip()
    try:
        waiting.wait_until(
            lambda: ask(kube, pods.node, log, token=token) == (200, "hello\n"),
            what="the right is seen",
            timeout_s=60,  # the node remembers a no for half of that
        )
    finally:
        kube.kubectl("delete", "clusterrole,clusterrolebinding", namespace)


# Identities


def test_client_certificate_of_the_node_is_enough(
    kube: kube_cluster.Kube, namespace: str, tmp_path: Path
) -> None:
    """With the Node authorizer and NodeRestriction, as a kubelet."""
    name = kube_servers.fresh_name("virtual")
    own = kube.kubeconfig_for(f"system:node:{name}", groups=["system:nodes"])
    node = kube_cluster.VirtualNode(kube, tmp_path, name=name, more=("--kubeconfig", str(own)))
    pods = Pods(kube, namespace, name)
    try:
        node.start()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "stringData": {"k": "hush"},
        }
        kube.apply(secret, namespace=namespace)
        env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
        pods.create(shell("echo $A; sleep 0.2", env=env))
        pods.until("Succeeded", "Failed")
        assert pods.logs() == "hush\n"
        pods.create(shell(WAITS), name="q")
        pods.until("Running", name="q")
        kube.http.delete(pods.path("q"))
        pods.until_gone("q")
        node.stop()
        node.start()  # the Node is there already, with its taint
        assert "not set" not in node.log.read_text()
        refused = kube.kiln(*remove(node), "--kubeconfig", str(own), check=False)
        assert "cannot delete resource" in refused.stderr
        kube.kiln(*remove(node))
        assert kube.http.get(f"/api/v1/nodes/{name}").status == 404
    finally:
        node.stop()
        kube.http.delete(f"/api/v1/nodes/{name}")


def test_serving_certificate_is_requested_and_used_once_approved(
    kube: kube_cluster.Kube, tmp_path: Path
) -> None:
    name = kube_servers.fresh_name("virtual")
    own = kube.kubeconfig_for(f"system:node:{name}", groups=["system:nodes"])
    options = ("--kubeconfig", str(own), "--request-certificate")
    node = kube_cluster.VirtualNode(kube, tmp_path, name=name, more=options)

    def requested() -> list[str]:
        found = kube.get("certificatesigningrequests")["items"]
        mine = [r for r in found if r["spec"]["username"] == f"system:node:{name}"]
        return [r["metadata"]["name"] for r in mine]

    def trusted() -> bool:
        port = kube.get("node", name)["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        context = ssl.create_default_context(cafile=str(kube.directory / "pki" / "ca.crt"))
        try:
            with (
                socket.create_connection((kube.address, port), timeout=5) as plain,
                context.wrap_socket(plain, server_hostname=kube.address),
            ):
                return True
        except (ssl.SSLCertVerificationError, TimeoutError):
            return False

    try:
        node.start()
        waiting.wait_until(requested, what="it asks")
        assert not trusted()
        kube.kubectl("certificate", "approve", *requested())
        waiting.wait_until(trusted, what="the certificate is shown", timeout_s=60)
    finally:
        node.stop()
        kube.http.delete(f"/api/v1/nodes/{name}")


def test_service_account_of_the_documentation_is_enough(
    kube: kube_cluster.Kube, namespace: str, tmp_path: Path
) -> None:
    """For all of Pods with Secrets and tokens, logs, a foreign token, removal."""
    page = (pages.DOCS / "how-to" / "attach-a-node.md").read_text()
    manifest = next(b for b in pages.blocks(page, "yaml") if "ClusterRole" in b)
    kube.kubectl("apply", "-f", "-", stdin=manifest)
    token = kube.kubectl("create", "token", "kiln-node", "--namespace=kube-system").strip()
    own = kube.token_kubeconfig("kiln-node", token)
    with kube.http.impersonating("system:serviceaccount:kube-system:kiln-node") as account:
        waiting.wait_until(
            lambda: account.get("/api/v1/pods", limit=1).status == 200, what="its rights are seen"
        )
    name = kube_servers.fresh_name("virtual")
    node = kube_cluster.VirtualNode(kube, tmp_path, name=name, more=("--kubeconfig", str(own)))
    pods = Pods(kube, namespace, name)
    try:
        node.start()
        volumes = [{"name": "v", "configMap": {"name": "kube-root-ca.crt"}}]
        pods.create(shell("echo hello"), volumes=volumes)
        pods.until("Succeeded")
        assert pods.logs() == "hello\n"
        stranger = kube.kubectl("create", "token", "default", f"--namespace={namespace}")
        assert ask(kube, name, "/healthz", token=stranger.strip())[0] == 403
        kube.kiln(*remove(node), "--kubeconfig", str(own))
        assert kube.http.get(f"/api/v1/nodes/{name}").status == 404
        assert "forbidden" not in node.log.read_text()
    finally:
        node.stop()
        kube.http.delete(f"/api/v1/nodes/{name}")


# Restarts


def test_restarted_node_adopts_running_and_ended_pods(
    pods: Pods, virtual_node: kube_cluster.VirtualNode, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    stays = pods.create(shell(WAITS), name="stays")
    ends = pods.create(shell(f"until [ -e {gate} ]; do sleep 0.05; done; exit 4"), name="ends")
    pods.until("Running", name="stays")
    pods.until("Running", name="ends")
    pid = min(runs(stays))
    virtual_node.kill()
    gate.touch()
    waiting.wait_until(lambda: not runs(ends), what="the other has ended")
    virtual_node.start()
    ended = pods.until("Failed", name="ends")["status"]["containerStatuses"][0]
    assert ended["state"]["terminated"]["exitCode"] == 4
    found = pods.get("stays")["status"]
    assert found["phase"] == "Running"
    assert found["containerStatuses"][0]["restartCount"] == 0
    assert pid in runs(stays)
    assert pods.logs("stays").startswith("up\n")


def test_pods_outlive_a_restart_that_keeps_them(
    kube: kube_cluster.Kube, namespace: str, tmp_path: Path
) -> None:
    name = kube_servers.fresh_name("virtual")
    node = kube_cluster.VirtualNode(kube, tmp_path, name=name, more=("--keep-pods",))
    pods = Pods(kube, namespace, name)
    try:
        node.start()
        uid = pods.create(shell(WAITS))
        pods.until("Running")
        before = set(runs(uid))
        assert node.stop() == 0
        assert before & set(runs(uid))
        node.start()
        assert pods.get()["status"]["containerStatuses"][0]["restartCount"] == 0
        kube.http.delete(pods.path())
        pods.until_gone()
        assert runs(uid) == []
    finally:
        node.stop()
        kube.http.delete(f"/api/v1/nodes/{name}")


def test_stopped_node_ends_its_pods_and_reports_not_ready(
    kube: kube_cluster.Kube, pods: Pods, virtual_node: kube_cluster.VirtualNode
) -> None:
    uid = pods.create(shell(WAITS), terminationGracePeriodSeconds=30)
    pods.until("Running")
    waiting.wait_until(lambda: pods.logs() == "up\n", what="its trap is set")
    assert virtual_node.stop() == 0
    assert runs(uid) == []
    assert pods.get()["status"]["phase"] == "Succeeded"  # it ended well on SIGTERM
    conditions = kube.get("node", virtual_node.name)["status"]["conditions"]
    ready = next(c for c in conditions if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NodeStopped")


# Faults


@pytest.mark.timeout(240)
def test_node_survives_an_absent_api_server(
    kube: kube_cluster.Kube,
    pods: Pods,
    virtual_node: kube_cluster.VirtualNode,
    tmp_path: Path,
) -> None:
    """Running Pods go on, ends are reported afterwards, and nothing is started twice."""
    gate = tmp_path / "gate"
    stays = pods.create(shell(WAITS), name="stays")
    ends = pods.create(shell(f"until [ -e {gate} ]; do sleep 0.05; done; exit 4"), name="ends")
    pods.until("Running", name="stays")
    pods.until("Running", name="ends")
    before = set(runs(stays))
    kube.stop_part("kube-apiserver")
    try:
        gate.touch()
        waiting.wait_until(lambda: not runs(ends), what="the other has ended")
        time.sleep(15)
    finally:
        kube.start_part("kube-apiserver")
    ended = pods.until("Failed", name="ends", timeout_s=60)["status"]["containerStatuses"][0]
    assert ended["state"]["terminated"]["exitCode"] == 4
    assert before & set(runs(stays))
    assert pods.get("stays")["status"]["containerStatuses"][0]["restartCount"] == 0
    direct = {"nodeName": virtual_node.name, "nodeSelector": {}}  # the scheduler is slower
    pods.create(shell("echo again"), name="again", **direct)
    pods.until("Succeeded", name="again")
    name = virtual_node.name
    waiting.wait_until(lambda: kube.node_is_ready(name), what="the node is Ready", timeout_s=60)


def test_pod_that_is_deleted_by_force_leaves_no_process(pods: Pods) -> None:
    uid = pods.create(shell("trap '' TERM; while :; do sleep 0.1; done"))
    pods.until("Running")
    where = f"--namespace={pods.namespace}"
    pods.kube.kubectl("delete", "pod", "p", where, "--force", "--grace-period=0")
    waiting.wait_until(lambda: runs(uid) == [], what="its processes are gone")


def test_evicted_pod_ends_within_its_grace(pods: Pods) -> None:
    uid = pods.create(shell(WAITS))
    pods.until("Running")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    pods.kube.http.post(f"{pods.path()}/eviction", eviction).ok()
    pods.until_gone()
    assert runs(uid) == []


def test_deleted_namespace_removes_its_pods(
    kube: kube_cluster.Kube, virtual_node: kube_cluster.VirtualNode
) -> None:
    name = kube_servers.fresh_name("gone")
    kube.kubectl("create", "namespace", name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    waiting.wait_until(lambda: kube.http.get(account).status == 200, what="its account")
    pods = Pods(kube, name, virtual_node.name)
    uid = pods.create(shell(WAITS))
    pods.until("Running")
    kube.kubectl("delete", "namespace", name, "--timeout=80s", timeout_s=90)
    assert runs(uid) == []


def test_node_that_is_deleted_comes_back(
    kube: kube_cluster.Kube, virtual_node: kube_cluster.VirtualNode
) -> None:
    kube.http.delete(f"/api/v1/nodes/{virtual_node.name}").ok()
    name = virtual_node.name
    waiting.wait_until(lambda: kube.node_is_ready(name), what="it is back")


# Removal


def remove(node: kube_cluster.VirtualNode) -> tuple[str, ...]:
    return ("node", "--name", node.name, "--data", str(node.directory / "data"), "--remove")


def test_removal_ends_pods_and_the_process(
    kube: kube_cluster.Kube, pods: Pods, virtual_node: kube_cluster.VirtualNode
) -> None:
    uid = pods.create(shell(WAITS))
    pods.until("Running")
    done = kube.kiln(*remove(virtual_node))
    assert f"node {virtual_node.name} is removed" in done.stdout
    assert kube.http.get(f"/api/v1/nodes/{virtual_node.name}").status == 404
    assert pods.gone()
    assert runs(uid) == []
    assert virtual_node.process is not None
    assert virtual_node.process.wait(40) == 0


def test_removal_of_a_node_whose_process_died(
    kube: kube_cluster.Kube, pods: Pods, virtual_node: kube_cluster.VirtualNode
) -> None:
    uid = pods.create(shell(WAITS))
    pods.until("Running")
    virtual_node.kill()
    kube.kiln(*remove(virtual_node))
    assert kube.http.get(f"/api/v1/nodes/{virtual_node.name}").status == 404
    assert pods.gone()
    assert runs(uid) == []


def test_removal_of_an_unknown_node_is_refused(kube: kube_cluster.Kube, tmp_path: Path) -> None:
    done = kube.kiln("node", "--name", "missing", "--data", str(tmp_path), "--remove", check=False)
    assert done.returncode == 1
    assert "there is no node missing" in done.stderr


def test_second_process_on_the_same_directory_is_refused(
    kube: kube_cluster.Kube, virtual_node: kube_cluster.VirtualNode
) -> None:
    directory = str(virtual_node.directory / "data")
    done = kube.kiln("node", "--name", virtual_node.name, "--data", directory, check=False)
    assert done.returncode == 1
    assert "is in use by process" in done.stderr
