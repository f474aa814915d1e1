"""`kilnwork.testing.kubernetes`: servers for users' tests, and their clean-up."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib import parse

import pytest

from kilnwork.kit import clock, http_types
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client, config, errors, transport
from kilnwork.testing import kubernetes
from support import waiting

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
BOATS = """
apiVersion: example.com/v1
kind: Boat
metadata: {name: ark}
spec: {length: 135}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Boat, plural: boats}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {length: {type: integer}}}}
---
"""


@pytest.fixture(scope="module")
def kube() -> Iterator[kubernetes.KubernetesServer]:
    with kubernetes.server() as running:
        yield running


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    named = {"name": name, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"a": "b"}}


def is_gone(kube: kubernetes.KubernetesServer, path: str) -> bool:
    try:
        kube.request("GET", path)
    except errors.NotFound:
        return True
    return False


def refuses(url: str) -> bool:
    found = parse.urlsplit(url)
    assert found.hostname is not None
    with socket.socket() as probe:
        return probe.connect_ex((found.hostname, found.port or 0)) != 0


async def test_kubeconfig_works_with_any_client(
    kube: kubernetes.KubernetesServer,
) -> None:
    settings = config.load(kube.kubeconfig)
    assert settings.server == kube.url
    assert parse.urlsplit(kube.url).hostname == "127.0.0.1"
    async with client.Client(settings) as mine:
        response = await mine.raw("GET", "/api/v1/namespaces/default")
    assert response.status == 200


def test_kind_is_served_when_install_returns(kube: kubernetes.KubernetesServer) -> None:
    definition, boat = kube.install(BOATS)
    assert definition["kind"] == "CustomResourceDefinition"
    assert boat["metadata"]["uid"]
    again = kube.install([boat | {"metadata": {"name": "ark"}}])
    assert again[0]["metadata"]["uid"] == boat["metadata"]["uid"]
    assert kube.request("GET", "/apis/example.com/v1/boats/ark")["spec"] == {"length": 135}


def test_manifests_come_from_files_and_directories(
    kube: kubernetes.KubernetesServer, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    made = kube.install([tmp_path, tmp_path / "one.yaml", {"items": [config_map("three")]}])
    names = [each["metadata"]["name"] for each in made]
    assert names == ["one", "two", "one", "three"]


def test_uninstallable_manifest_is_named(kube: kubernetes.KubernetesServer) -> None:
    with pytest.raises(LookupError, match=r"kind Car of example.org/v1 is not served"):
        kube.install({"apiVersion": "example.org/v1", "kind": "Car", "metadata": {"name": "a"}})
    with pytest.raises(ValueError, match="has no apiVersion, metadata"):
        kube.install({"kind": "ConfigMap"})
    with pytest.raises(ValueError, match="no manifest: 7"):
        kube.install("7")
    with pytest.raises(ValueError, match="'deploy/crds'; for a file give a Path"):
        kube.install("deploy/crds")


def test_refusals_are_raised(kube: kubernetes.KubernetesServer) -> None:
    kube.request("POST", CONFIG_MAPS, config_map("mine"))
    with pytest.raises(errors.AlreadyExists):
        kube.request("POST", CONFIG_MAPS, config_map("mine"))
    assert len(kube.request("GET", CONFIG_MAPS, fieldSelector="metadata.name=mine")["items"]) == 1


def test_two_servers_are_independent(kube: kubernetes.KubernetesServer) -> None:
    with kubernetes.server() as other:
        other.request("POST", CONFIG_MAPS, config_map("theirs"))
        assert other.url != kube.url
        assert is_gone(kube, f"{CONFIG_MAPS}/theirs")
    assert not is_gone(kube, "/api/v1/namespaces/default")


def test_controllers_run_unless_disabled(kube: kubernetes.KubernetesServer) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nothing", "uid": "none"}
    orphan = config_map("orphan", ownerReferences=[owner])
    kube.install(orphan)
    waiting.wait_until(lambda: is_gone(kube, f"{CONFIG_MAPS}/orphan"), what="it is collected")
    with kubernetes.server(controllers=False) as bare:
        bare.install([orphan, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}])
        bare.request("DELETE", "/api/v1/namespaces/x")
        waiting.wait_until(lambda: is_gone(bare, "/api/v1/namespaces/x"), what="x is emptied")
        assert not is_gone(bare, f"{CONFIG_MAPS}/orphan")


def test_node_runs_pods() -> None:
    container = {"name": "main", "image": "any", "command": ["sh", "-c", "exit 3"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "three"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    with kubernetes.server(node=True) as kube:
        kube.install(pod)
        waiting.wait_until(
            lambda: kube.request("GET", f"{PODS}/three")["status"]["phase"] == "Failed",
            what="the Pod fails",
        )
        failed = kube.request("GET", f"{PODS}/three")
    assert failed["spec"]["nodeName"] == "local"
    [status] = failed["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_after_the_block(error: type[BaseException]) -> None:
    threads = threading.active_count()
    with pytest.raises(error), kubernetes.server() as kube:
        raise error
    assert not kube.data_dir.parent.exists()
    assert threading.active_count() == threads
    assert refuses(kube.url)
    with pytest.raises(kit_errors.ConfigurationError, match="has stopped"):
        kube.request("GET", "/version")


async def test_only_a_server_with_a_node_warns_of_ignored_fields() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "hostAliases": [{"ip": "10.0.0.1"}]},
    }
    for node in (False, True):
        warnings: list[str] = []
        with kubernetes.server(node=node) as kube:
            async with transport.Transport(
                config.load(kube.kubeconfig),
                user_agent="test",
                time=clock.SystemClock(),
                on_warning=warnings.append,
            ) as http:
                body = json.dumps(pod).encode()
                request = http_types.ClientRequest(
                    method="POST", path=PODS, query={"dryRun": "All"}, body=body, timeout_s=60
                )
                await http.send(request)
        assert ["hostAliases" in text for text in warnings] == [True] * node


def test_sdk_is_not_loaded() -> None:
    program = (
        "import sys\n"
        "from kilnwork.testing import kubernetes\n"
        "print([name for name in sys.modules if name.startswith('kilnwork.sdk')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_failed_start_names_its_cause_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threading.active_count()
    monkeypatch.setattr("kilnwork.controlplane.cluster._DATABASE", "no/such/directory")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(kit_errors.ConfigurationError), kubernetes.server():
        pass
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_interrupted_test_run_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import time\n"
        "from kilnwork.testing import kubernetes\n"
        "with kubernetes.server(node=True) as kube:\n"
        "    print(kube.url, flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            url = running.stdout.readline().strip()
            running.send_signal(signal.SIGINT)
            _, output = running.communicate(timeout=60)
        finally:
            running.kill()
    assert "KeyboardInterrupt" in output
    assert list(tmp_path.iterdir()) == []
    assert refuses(url)
