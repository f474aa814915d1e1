"""Resolution of the manager that a user names, from files and texts, without a server.

`tests/e2e/test_connect.py` has the tests with a server.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from kilnwork.endpoints import endpoint_files, resolve
from kilnwork.kit import errors
from support import short_paths


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the environment name no server."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


def served(directory: Path, **members: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    found = {"version": "1", "pid": 1, "channel": {"unix": "/run/x.sock"}, **members}
    (directory / "endpoints.json").write_text(json.dumps(found))
    (directory / "token").write_text("secret\n")
    return directory


UP = {"kubernetes": "https://127.0.0.1:7443", "http": "http://127.0.0.1:7444"}


def test_directory_of_kiln_start_is_resolved(tmp_path: Path) -> None:
    directory = served(tmp_path / "home")
    endpoint = resolve.resolve(directory)
    assert (endpoint.directory, endpoint.namespace) == (directory, "default")
    assert (endpoint_files.socket(directory), endpoint_files.token(directory)) == (
        "/run/x.sock",
        "secret",
    )
    with pytest.raises(errors.ConfigurationError, match="has no server"):
        endpoint.load()


def test_data_directory_is_resolved(tmp_path: Path) -> None:
    endpoint = resolve.resolve(str(served(tmp_path / "data", **UP)))
    assert endpoint.directory is None
    assert (endpoint.load().server, endpoint.load().token) == ("http://127.0.0.1:7444", "secret")


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:7443",
        "https://localhost:7443/",
        "http://127.0.0.1:7444",
        "http://[::1]:7444",
    ],
)
def test_url_of_the_default_server_uses_its_token(tmp_path: Path, url: str) -> None:
    served(tmp_path / "share" / "kilnwork", **UP)
    assert resolve.resolve(url).load().token == "secret"


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:7444", "http://127.0.0.1:7443", "https://other:7443", "https://x:y"]
)
def test_url_of_another_server_gets_no_token(tmp_path: Path, url: str) -> None:
    served(tmp_path / "share" / "kilnwork", **UP)
    with pytest.raises(errors.ConfigurationError, match="is not the server of KUBECONFIG"):
        resolve.resolve(url)


def test_kubeconfig_without_a_token_is_resolved(tmp_path: Path) -> None:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:7443"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "current-context": "x",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(document))
    endpoint = resolve.resolve(path)
    assert (endpoint.namespace, endpoint.load().token) == ("ns", None)
    document["users"] = [{"name": "u", "user": {"token": "new"}}]
    path.write_text(json.dumps(document))
    assert endpoint.load().token == "new", "tokens are renewed"


@pytest.mark.parametrize("where", [None, "https://127.0.0.1:7443"])
def test_missing_server_error_has_a_remedy(where: str | None) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"`kiln up`.* kiln\.start\(\)"):
        resolve.resolve(where)


def test_empty_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="no process has served"):
        resolve.resolve(tmp_path)


def test_socket_of_another_user_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster on loopback names its own path, where another user may have put a socket here."""
    server = "https://127.0.0.1:6443"
    directory = short_paths.directory()
    path = directory / "channel.sock"
    said = {"channel": {"unix": str(path)}}
    assert resolve.local_socket(server, said) is None
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        assert resolve.local_socket(server, said) == str(path)
        assert resolve.local_socket("https://there:6443", said) is None
        me = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: me + 1)
        assert resolve.local_socket(server, said) is None
    path.unlink()
    directory.rmdir()
