"""Fixtures of the end-to-end tests on the real cluster; collected with `--server real` only.

`make test-cluster` runs them in two sandboxes of hack/kube at once: tests that use the fixture
`real_node` beside nodes with a kubelet, all others without. By hand: `python -m hack.kube run
--node -- pytest --server real tests/cluster/test_….py`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import kube_cluster, kube_manager, kube_servers, waiting

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore all tests here on our own server, and one file without Argo (`make test-peers`)."""
    is_test = collection_path.name.startswith("test_")
    if is_test and config.getoption("--server") != "real":
        return True
    if collection_path.name == "test_argo.py" and "KILN_ARGO" not in os.environ:
        return True
    return None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with `real_node` that use the fixture of that name, directly or indirectly."""
    for item in items:
        if HERE in item.path.parents and "real_node" in getattr(item, "fixturenames", ()):
            item.add_marker("real_node")


@pytest.fixture(scope="session")
def kube() -> Iterator[kube_cluster.Kube]:
    """Return the real cluster, with our kinds installed. A test that breaks a component repairs it
    before its end.
    """
    found = kube_cluster.Kube(Path(os.environ["KILN_KUBE_DIRECTORY"]))
    yield found
    found.http.close()


@pytest.fixture
def namespace(kube: kube_cluster.Kube) -> Iterator[str]:
    """Create a namespace with its `default` ServiceAccount; delete it afterwards without
    waiting.
    """
    name = kube_servers.fresh_name("test")
    kube.http.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    waiting.wait_until(
        lambda: kube.http.get(account).status == 200, what="the default account is made"
    )
    yield name
    kube.http.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def virtual_node(
    kube: kube_cluster.Kube, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kube_cluster.VirtualNode]:
    """Run a `kiln node` of this test until it is Ready; delete its Node object afterwards."""
    name = kube_servers.fresh_name("virtual")
    node = kube_cluster.VirtualNode(kube, tmp_path_factory.mktemp("node"), name=name)
    try:
        node.start()
        yield node
    finally:
        node.stop()
        kube.http.delete(f"/api/v1/nodes/{name}")


@pytest.fixture(scope="session")
def real_node(kube: kube_cluster.Kube) -> str:
    """Return the name of a Ready node with containerd and a kubelet."""
    names = kube.real_nodes()
    if not names:
        pytest.skip("no node with a kubelet: use `python -m hack.kube run --node -- pytest …`")
    waiting.wait_until(lambda: kube.node_is_ready(names[0]), what=f"{names[0]} is Ready")
    return names[0]


@pytest.fixture(scope="module")
def manager(
    kube: kube_cluster.Kube, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kube_manager.Manager]:
    """Run a manager as a Pod on a node of ours that runs the programs of the counter."""
    name, directory = kube_servers.fresh_name("virtual"), tmp_path_factory.mktemp("node")
    more = ("--workdir", str(kube_manager.COUNTER))
    node = kube_cluster.VirtualNode(kube, directory, name=name, more=more)
    try:
        node.start()
        with kube_manager.installed(kube, kube_manager.on_virtual_node(name)) as made:
            yield made
    finally:
        node.stop()
        kube.http.delete(f"/api/v1/nodes/{name}")


@pytest.fixture(scope="module")
def team(manager: kube_manager.Manager) -> Iterator[str]:
    """Create a namespace with a TaskCluster `default` of one worker, and drivers."""
    name = kube_servers.fresh_name("team")
    http = manager.kube.http
    http.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    manager.allow_drivers(name)
    manager.start_cluster("default", namespace=name)
    yield name
    http.delete(f"/api/v1/namespaces/{name}")
