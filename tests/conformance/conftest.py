"""The API server under test: ours by default, the real one with `--server real`.

One for each pytest process on ours; on the real one a single control plane for all of them, the one
of $KILN_KUBE_DIRECTORY or one that is started for this run. Each test has a namespace of its own.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hack.kube import binary

from conformance import differences
from support import kube_servers, waiting

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What ours cannot do yet must fail, for the reason in the table."""
    if config.getoption("--server") != "ours":
        return
    for item in items:
        if HERE not in item.path.parents:
            continue
        case = f"{item.path.name}::{item.name}"
        found = differences.find(case)
        if found is not None:
            item.add_marker(pytest.mark.xfail(reason=found, strict=True))


@pytest.fixture(scope="session")
def server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kube_servers.Server]:
    """The API server under test."""
    if pytestconfig.getoption("--server") == "ours":
        with kube_servers.ours(tmp_path_factory.mktemp("ours")) as made:
            yield made
        return
    yield kube_servers.real(Path(os.environ["KILN_KUBE_DIRECTORY"]))


@pytest.fixture(scope="session")
def admin(server: kube_servers.Server) -> Iterator[kube_servers.Http]:
    with server.admin() as http:
        yield http


@pytest.fixture(scope="session")
def namespaces_made(server: kube_servers.Server, admin: kube_servers.Http) -> Iterator[list[str]]:
    """Deleted at the very end: hundreds that go at once would slow down what is being tested.

    Ours goes as a whole.
    """
    made: list[str] = []
    yield made
    for name in made if server.kind == "real" else ():
        admin.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def namespace(admin: kube_servers.Http, namespaces_made: list[str]) -> str:
    """A new namespace with what controllers put into each: its `default` ServiceAccount, and the
    cluster's root certificate."""
    name = kube_servers.fresh_name("test")
    admin.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    there = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    paths = [f"/api/v1/namespaces/{name}/{one}" for one in there]
    waiting.wait_until(
        lambda: all(admin.get(path).status == 200 for path in paths), what="it is filled"
    )
    namespaces_made.append(name)
    return name


@pytest.fixture
def history(server: kube_servers.Server) -> Iterator[None]:
    """For tests that read the past: no other makes the server forget it meanwhile."""
    with server.remembering():
        yield


@pytest.fixture(scope="session")
def kubectl_program() -> Path:
    """The kubectl of hack/kube if that is built, else the one on PATH, else a skip."""
    built = binary.built()
    if built is not None:
        return built / "kubectl"
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl: `python -m hack.kube build` builds one, or put one on PATH")
    return Path(found)


@pytest.fixture
def kubectl(
    server: kube_servers.Server, namespace: str, kubectl_program: Path, tmp_path: Path
) -> kube_servers.Kubectl:
    """kubectl for the server and namespace of this test, with an empty home."""
    return kube_servers.Kubectl(
        kubectl_program, server.kubeconfig, home=tmp_path, namespace=namespace
    )
