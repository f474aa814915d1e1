"""Python programs outside the cluster: `kiln.connect()` through the API server's proxy."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.api import manager_access as names
from kilnwork.kit import errors
from support import kube_manager, waiting
from support import remote_driver as far

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def ready(manager: kube_manager.Manager) -> Iterator[str]:
    """Create a namespace with a cluster of one worker with two slots."""
    name = "drivers"
    manager.kube.http.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    waiting.wait_until(
        lambda: manager.kube.http.get(account).status == 200, what="the default account is made"
    )
    manager.allow_drivers(name)
    manager.start_cluster("default", namespace=name, slotsPerWorker=2)
    yield name
    manager.kube.http.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(autouse=True)
def environment(
    manager: kube_manager.Manager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Return an environment with only a kubeconfig, on a machine that sees no socket of the
    manager.
    """
    monkeypatch.setenv("KUBECONFIG", str(manager.kube.kubeconfig))
    monkeypatch.delenv(names.NAMESPACE_VARIABLE, raising=False)
    far.hide_server(monkeypatch, tmp_path)


@kiln.task
def family(number: int) -> int:
    return sum(future.result() for future in [far.double.submit(n) for n in range(number)])


def test_calls_pass_the_proxy(ready: str) -> None:
    with kiln.connect(namespace=ready):
        assert [f.result(timeout=60) for f in [far.double.submit(n) for n in range(200)]] == [
            2 * n for n in range(200)
        ]
        assert family.submit(20).result(timeout=60) == 380


def test_large_values_pass_the_proxy(ready: str) -> None:
    with kiln.connect(namespace=ready):
        assert far.length.submit(os.urandom(far.LARGE)).result(timeout=60) == far.LARGE
        made = far.make.submit(far.LARGE)
        assert far.length.submit(made).result(timeout=60) == far.LARGE
        assert made.result(timeout=60) == b"x" * far.LARGE


def test_user_with_its_own_token_runs_calls(
    ready: str, manager: kube_manager.Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = manager.kube.kubectl
    kubectl("create", "serviceaccount", "alice", "-n", ready)
    token = kubectl("create", "token", "alice", "-n", ready).strip()
    kubeconfig = manager.kube.token_kubeconfig("alice", token)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with pytest.raises(errors.ConfigurationError, match='cannot create resource "tasks"'):
        kiln.connect(namespace=ready)
    kubectl(
        *("create", "role", "tasks", "-n", ready, "--verb=create"),
        "--resource=tasks.kilnwork.dev",
    )
    bound = f"--serviceaccount={ready}:alice"
    kubectl("create", "rolebinding", "tasks", "-n", ready, "--role=tasks", bound)
    waiting.wait_until(lambda: _may(ready), what="the right is seen", every_s=0.2)
    with kiln.connect(namespace=ready):
        assert far.length.submit(os.urandom(far.LARGE)).result(timeout=60) == far.LARGE


def _may(namespace: str) -> bool:
    try:
        kiln.connect(namespace=namespace).close()
    except errors.ConfigurationError:
        return False
    return True


def test_missing_right_is_named(
    ready: str, manager: kube_manager.Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = manager.kube.kubectl
    token = kubectl("create", "token", "default", "-n", ready).strip()
    kubeconfig = manager.kube.token_kubeconfig("powerless", token)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    kubectl("delete", "rolebinding", "kilnwork-proxy", "-n", names.NAMESPACE)
    try:
        with pytest.raises(errors.ConfigurationError, match=r"may not reach .*services/proxy"):
            waiting.wait_until(lambda: _reaches(ready), what="the right is gone", every_s=0.2)
    finally:
        kubectl("apply", "-f", "-", stdin=manager.manifests("--only", "rights"))


def _reaches(namespace: str) -> bool:
    """Return False while the API server does not know the object yet; raise when access is
    denied.
    """
    try:
        kiln.connect(namespace=namespace).close()
    except errors.ConfigurationError as error:
        if "may not reach" in str(error):
            raise
    return False


def test_missing_part_is_named(ready: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ConfigurationError, match='no TaskCluster "big"; those that exist'):
        kiln.connect(namespace=ready, cluster="big")
    with pytest.raises(errors.ConfigurationError, match=r"no ServiceAccount kilnwork-driver"):
        kiln.connect(namespace="kube-public")
    monkeypatch.setenv(names.NAMESPACE_VARIABLE, "default")
    with pytest.raises(errors.ConfigurationError, match="no manager is installed in namespace def"):
        kiln.connect(namespace=ready)


def test_manager_may_be_deleted_and_come_back(ready: str, manager: kube_manager.Manager) -> None:
    with kiln.connect(namespace=ready):
        assert far.double.submit(1).result(timeout=60) == 2
        manager.kube.kubectl("delete", "pod", "-n", names.NAMESPACE, kube_manager.POD)
        future = far.double.submit(2)
        assert future.result(timeout=90) == 4
