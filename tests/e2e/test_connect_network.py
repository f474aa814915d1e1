"""`kiln.connect()` to a `kiln up` over the network: the same program as on the machine itself."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.kit import errors
from support import certificates
from support import remote_driver as far
from support import up_server as up_support


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=2) as made:
        yield made


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the server's sockets and directories, as on another machine."""
    for name in ("KUBECONFIG", "KILN_TOKEN", "KILN_TOKEN_FILE", "KILN_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    far.hide_server(monkeypatch, tmp_path)


@pytest.fixture(params=["tls", "plain"])
def place(request: pytest.FixtureRequest, server: up_support.UpServer) -> Path:
    """Return a place to connect to: a kubeconfig means TLS, the data directory plain http."""
    return server.data / "kubeconfig" if request.param == "tls" else server.data


def test_calls_and_values_of_any_size_work(place: Path) -> None:
    with kiln.connect(place) as session:
        assert [f.result(timeout=30) for f in [far.double.submit(n) for n in range(300)]] == [
            2 * n for n in range(300)
        ]
        assert far.length.submit(os.urandom(far.LARGE)).result(timeout=30) == far.LARGE
        assert far.make.submit(far.LARGE).result(timeout=30) == b"x" * far.LARGE
        directory = session.blobs.directory
        assert directory.exists()
    assert not directory.exists()


def test_connect_by_url_with_a_token(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints = json.loads((server.data / "endpoints.json").read_text())
    monkeypatch.setenv("KILN_TOKEN_FILE", str(server.data / "token"))
    monkeypatch.setenv("KILN_CA_FILE", str(server.data / "pki" / "ca.crt"))
    with kiln.connect(endpoints["kubernetes"]):
        assert far.double.submit(4).result(timeout=30) == 8


def test_url_with_an_untrusted_certificate_is_refused(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    endpoints = json.loads((server.data / "endpoints.json").read_text())
    ca = tmp_path / "other.crt"
    ca.write_text(certificates.Authority().pem)
    monkeypatch.setenv("KILN_TOKEN", "secret")
    monkeypatch.setenv("KILN_CA_FILE", str(ca))
    with pytest.raises(errors.ConfigurationError, match="is not the server of the kubeconfig"):
        kiln.connect(endpoints["kubernetes"])


def test_invalid_token_is_refused(
    server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints = json.loads((server.data / "endpoints.json").read_text())
    monkeypatch.setenv("KILN_TOKEN", "nonsense")
    with pytest.raises(errors.ConfigurationError, match="does not accept the token"):
        kiln.connect(endpoints["http"])


def test_token_is_not_sent_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILN_TOKEN", "secret")
    with pytest.raises(errors.ConfigurationError, match="not sent over plain http"):
        kiln.connect("http://manager.example:7444")


DRIVER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: kilnwork-driver}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: kilnwork-driver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: kilnwork-driver, namespace: default}]
"""


def test_client_certificate_takes_the_driver_account(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    pki = server.data / "pki"
    user = {
        "client-certificate": str(pki / "kubelet-client.crt"),
        "client-key": str(pki / "kubelet-client.key"),
    }
    endpoints = json.loads((server.data / "endpoints.json").read_text())
    cluster = {"server": endpoints["kubernetes"], "certificate-authority": str(pki / "ca.crt")}
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    with pytest.raises(
        errors.ConfigurationError, match="there is no ServiceAccount kilnwork-driver"
    ):
        kiln.connect(kubeconfig)
    server.kiln("apply", "-f", "-", stdin=DRIVER)
    with kiln.connect(kubeconfig):
        assert far.length.submit(os.urandom(far.LARGE)).result(timeout=30) == far.LARGE


def test_program_continues_after_a_server_restart(tmp_path: Path) -> None:
    made = up_support.UpServer(tmp_path / "data", workdir=tmp_path, slots=1)
    made.start()
    with kiln.connect(made.data / "kubeconfig"):
        assert far.double.submit(1).result(timeout=30) == 2
        made.kill()
        future = far.double.submit(2)
        made.start()
        assert future.result(timeout=30) == 4
        assert far.make.submit(far.LARGE).result(timeout=30) == b"x" * far.LARGE
    assert made.stop() == 0
