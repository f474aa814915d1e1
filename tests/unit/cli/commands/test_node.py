"""`kiln node`: options that are rejected before anything starts, and the default address."""

import signal
import socket
from pathlib import Path

import pytest

from kilnwork.cli import exits, main
from kilnwork.cli.commands import node
from kilnwork.controlplane.node import own_certificate
from kilnwork.kit import clock

CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
"""


@pytest.mark.parametrize("taint", ["key", "key=value", "key=value:Sometimes", "=v:NoSchedule"])
def test_invalid_taint_is_rejected(taint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["node", "--taint", taint]) == exits.Exit.USAGE
    assert "write KEY=VALUE:EFFECT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "taint"),
    [("k=v:NoSchedule", ("k", "v", "NoSchedule")), ("k:NoExecute", ("k", "", "NoExecute"))],
)
def test_taints_are_read_as_kubectl_reads_them(text: str, taint: tuple[str, str, str]) -> None:
    assert node.TAINT.convert(text, None, None) == taint


def test_invalid_label_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    code = main.main(["node", "--kubeconfig", str(path), "--label", "zone"])
    assert code == exits.Exit.USAGE
    assert "'zone' is not a label: write KEY=VALUE" in capsys.readouterr().err


def test_unreachable_api_server_is_named_and_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    data = tmp_path / "data"
    certificate = tmp_path / "ca.crt"
    own_certificate.ensure(
        certificate, tmp_path / "key", name="ca", address="::1", now=clock.SystemClock()
    )
    options = ["--data", str(data), "--client-ca-file", str(certificate), "--name", "n"]
    assert main.main(["node", "--kubeconfig", str(path), *options]) == exits.Exit.FAILED
    assert "cannot reach https://127.0.0.1:1" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_invalid_ca_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    options = ["--data", str(tmp_path / "data"), "--client-ca-file", str(path), "--name", "n"]
    assert main.main(["node", "--kubeconfig", str(path), *options]) == exits.Exit.FAILED
    assert f"{path}, which must be a file with certificates in PEM" in capsys.readouterr().err


def test_address_is_the_one_that_faces_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert node.facing(f"https://127.0.0.1:{port}") == "127.0.0.1"
    assert node.facing("https://no-such-host.invalid") == "127.0.0.1"
