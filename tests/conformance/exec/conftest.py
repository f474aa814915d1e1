"""Pods to exec into, on every kind of node that the API server under test can have.

On ours that is the local node; on the real server `kiln node` and, where there is one, a real
kubelet, which says what is right.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork import version
from support import kube_cluster, kube_execs, kube_servers

PLACES = {"ours": ["ours"], "real": ["virtual", "kubelet"]}
HELD = "import signal; signal.pause()"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on every kind of node there is."""
    if "place" in metafunc.fixturenames:
        places = PLACES[metafunc.config.getoption("--server")]
        metafunc.parametrize("place", places, indirect=True, scope="module")


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest,
    server: kube_servers.Server,
    admin: kube_servers.Http,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[kube_execs.Place]:
    """A node of each kind that this server can have."""
    kind = request.param
    if isinstance(server, kube_servers.Ours):
        server.node()
        yield kube_execs.Place("ours", "local", "any")
        return
    kube = kube_cluster.Kube(Path(os.environ["KILN_KUBE_DIRECTORY"]))
    if kind == "kubelet":
        nodes = kube.real_nodes()
        if not nodes:
            pytest.skip("no node with a kubelet: `python -m hack.kube run --node --image …`")
        yield kube_execs.Place("kubelet", nodes[0], f"localhost/kilnwork:{version.__version__}")
        return
    node = kube_cluster.VirtualNode(
        kube, tmp_path_factory.mktemp("node"), name=kube_servers.fresh_name("virtual")
    )
    try:
        node.start()
        yield kube_execs.Place("virtual", node.name, "any")
    finally:
        node.stop()
        admin.delete(f"/api/v1/nodes/{node.name}")


@pytest.fixture(params=kube_execs.TRANSPORTS)
def tool(
    request: pytest.FixtureRequest,
    server: kube_servers.Server,
    namespace: str,
    kubectl_program: Path,
    tmp_path: Path,
) -> kube_execs.Kubectl:
    return kube_execs.Kubectl(
        kubectl_program, server, namespace=namespace, home=tmp_path, transport=request.param
    )


@pytest.fixture
def pods(
    place: kube_execs.Place, admin: kube_servers.Http, namespace: str
) -> Iterator[kube_execs.Pods]:
    made = kube_execs.Pods(place, admin, namespace)
    yield made
    admin.delete(made.path)


@pytest.fixture
def pod(pods: kube_execs.Pods) -> str:
    """A Pod `p` that runs and does nothing."""
    pods.make("p", "python3", "-c", HELD, env=[{"name": "COLOUR", "value": "blue green"}])
    return "p"


@pytest.fixture
def caller(
    server: kube_servers.Server, admin: kube_servers.Http, namespace: str
) -> kube_execs.Caller:
    return kube_execs.Caller(server, admin, namespace)
