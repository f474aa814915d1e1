"""Kubeconfigs good and bad, and the files of a Pod's service account."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kilnwork.kit import errors
from kilnwork.kube import config


def _kubeconfig(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:7443/"}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        **changes,
    }


def _write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def _exec(**changes: Any) -> dict[str, Any]:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "log-in",
        "interactiveMode": "Never",
        **changes,
    }
    return {"users": [{"name": "u", "user": {"exec": plugin}}]}


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps])
def test_token_and_ca_data_in_yaml_and_json(tmp_path: Path, dump: Any) -> None:
    pem = "-----BEGIN CERTIFICATE-----\n"
    cluster = {
        "server": "https://h:1",
        "certificate-authority-data": base64.b64encode(pem.encode()).decode(),
    }
    context = {"cluster": "c", "user": "u", "namespace": "n"}
    content = _kubeconfig(
        clusters=[{"name": "c", "cluster": cluster}], contexts=[{"name": "x", "context": context}]
    )
    file = _write(tmp_path / "k", dump(content))
    found = config.load(file)
    assert found == config.Config(server="https://h:1", namespace="n", ca_data=pem, token="t0ken")
    assert "t0ken" not in repr(found)


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca.crt", "token", "cert", "key"):
        (tmp_path / name).write_text(name)
    user = {"tokenFile": "token", "client-certificate": "cert", "client-key": "key"}
    cluster = {"server": "https://h:1", "certificate-authority": "ca.crt"}
    file = _write(
        tmp_path / "k",
        _kubeconfig(
            clusters=[{"name": "c", "cluster": cluster}], users=[{"name": "u", "user": user}]
        ),
    )
    found = config.load(file)
    assert (found.ca_file, found.token_file) == (tmp_path / "ca.crt", tmp_path / "token")
    assert (found.client_cert_file, found.client_key_file) == (tmp_path / "cert", tmp_path / "key")


def test_a_program_that_logs_in(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("PEM")
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]
    cluster = {
        "server": "https://h:1",
        "certificate-authority": "ca.crt",
        "proxy-url": "http://p:3128",
        "disable-compression": True,
        "extensions": extensions,
    }
    users = _exec(
        command="./bin/log-in",
        args=["-v"],
        env=[{"name": "A", "value": "b"}],
        provideClusterInfo=True,
        installHint="brew it",
    )
    file = _write(
        tmp_path / "k", _kubeconfig(clusters=[{"name": "c", "cluster": cluster}], **users)
    )
    found = config.load(file)
    assert (found.proxy_url, found.compression) == ("http://p:3128", False)
    assert found.exec == config.ExecPlugin(
        command=str(tmp_path / "bin/log-in"),
        api_version="client.authentication.k8s.io/v1",
        args=("-v",),
        env=(("A", "b"),),
        interactive="Never",
        install_hint="brew it",
        cluster=found.exec.cluster if found.exec else b"",
    )
    assert json.loads(found.exec.cluster) == {
        "server": "https://h:1",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "proxy-url": "http://p:3128",
        "disable-compression": True,
        "config": {"audience": "a"},
    }


def test_older_plugins_may_ask_by_default(tmp_path: Path) -> None:
    users = _exec(apiVersion="client.authentication.k8s.io/v1beta1", interactiveMode="")
    found = config.load(_write(tmp_path / "k", _kubeconfig(**users))).exec
    assert found is not None
    assert (found.interactive, found.command, found.cluster) == ("IfAvailable", "log-in", b"")


def test_whom_to_act_as(tmp_path: Path) -> None:
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.org/scopes": ["x", "y"]},
    }
    file = _write(tmp_path / "k", _kubeconfig(users=[{"name": "u", "user": user}]))
    assert config.load(file).impersonate == config.Impersonation(
        user="jane", uid="7", groups=("a", "b"), extra=(("example.org/scopes", ("x", "y")),)
    )


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    context = {"name": "y", "context": {"cluster": "c", "user": "u"}}
    first = _write(tmp_path / "1", {"contexts": [context], "current-context": "y"})
    second = _write(tmp_path / "2", _kubeconfig())
    environ = {"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}"}
    assert config.load(environ=environ).token == "t0ken"


def test_a_context_may_be_chosen(tmp_path: Path) -> None:
    contexts = [
        {"name": n, "context": {"cluster": "c", "user": "u", "namespace": n}} for n in ("x", "y")
    ]
    file = _write(tmp_path / "k", _kubeconfig(contexts=contexts))
    assert config.load(file, context="y").namespace == "y"


def test_default_directory_is_the_last_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(errors.ConfigurationError, match="kiln up"):
        config.load(environ={})
    (tmp_path / "kilnwork").mkdir()
    _write(tmp_path / "kilnwork" / "kubeconfig", _kubeconfig())
    assert config.load(environ={}).server == "https://127.0.0.1:7443"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"current-context": ""}, r"no current-context \(contexts: x\): choose one"),
        ({"current-context": "z"}, r'no context "z" \(contexts: x\)'),
        ({"clusters": None}, r'context "x" of .* names cluster "c", which is not there'),
        ({"users": []}, r'names user "u", which is not there \(users: none\)'),
        ({"clusters": [{"name": "c", "cluster": {"server": "host:1"}}]}, "write it as https"),
        ({"clusters": [{"name": "c", "cluster": {"server": "http://h:x"}}]}, "write it as https"),
        ({"clusters": "c"}, r"is not a kubeconfig: .*\$\.clusters"),
        (
            {
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {"server": "https://h", "certificate-authority-data": "%"},
                    }
                ]
            },
            "certificate-authority-data is not base64",
        ),
        ({"users": [{"name": "u", "user": {"auth-provider": {}}}]}, "has an auth-provider, which"),
        (_exec(apiVersion=""), r'exec plugin of user "u" of .* has apiVersion "": it must be'),
        (_exec(apiVersion="client.authentication.k8s.io/v1alpha1"), "v1beta1 for older plugins"),
        (_exec(command=""), "has no command"),
        (_exec(interactiveMode=""), 'has interactiveMode "": write Never'),
        (_exec(interactiveMode="Sometimes"), 'has interactiveMode "Sometimes": write Never'),
        ({"users": [{"name": "u", "user": {"as-groups": ["g"]}}]}, "without `as`"),
        (
            {
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://h", "proxy-url": "socks5://p"}}
                ]
            },
            "only http:// and https:// proxies",
        ),
        ({"users": [{"name": "u", "user": {"username": "me"}}]}, "user name and password"),
        ({"users": [{"name": "u", "user": {"client-key-data": "aa=="}}]}, "only one half"),
        ({"users": [{"name": "u", "user": {"tokenFile": "gone"}}]}, "gone, which does not exist"),
    ],
)
def test_invalid_kubeconfig_error_names_the_problem(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    file = _write(tmp_path / "k", _kubeconfig(**changes))
    with pytest.raises(errors.ConfigurationError, match=text):
        config.load(file)


@pytest.mark.parametrize("content", ["{", "a: [", "- 1", "just text"])
def test_nonsense_is_not_a_kubeconfig(tmp_path: Path, content: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="is not a kubeconfig"):
        config.load(_write(tmp_path / "k", content))


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"k does not exist: .*kiln up"):
        config.load(tmp_path / "k")
    with pytest.raises(errors.ConfigurationError, match="no current-context"):
        config.load(_write(tmp_path / "k", ""))


def test_service_account_of_a_pod(tmp_path: Path) -> None:
    environ = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "7443",
        "CONTAINER_SANDBOX_MOUNT_POINT": str(tmp_path),
    }
    with pytest.raises(errors.ConfigurationError, match="serviceAccountName"):
        config.load(environ=environ)
    directory = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    directory.mkdir(parents=True)
    for name, text in (("token", "t"), ("ca.crt", "ca"), ("namespace", "n\n")):
        (directory / name).write_text(text)
    assert config.load(environ=environ) == config.Config(
        server="https://10.0.0.1:7443",
        namespace="n",
        ca_file=directory / "ca.crt",
        token_file=directory / "token",
    )
    assert config.in_cluster({**environ, "KUBERNETES_SERVICE_HOST": "::1"}).server == (
        "https://[::1]:7443"
    )
    with pytest.raises(errors.ConfigurationError, match="not in a Pod"):
        config.in_cluster({})


def test_kubeconfig_in_an_unreadable_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(errors.ConfigurationError, match=r"cannot read .* Permission denied"):
        config.load(None, environ={"KUBECONFIG": str(tmp_path / "k")})
    with pytest.raises(errors.ConfigurationError, match=r"cannot read .* Permission denied"):
        config.load(None, environ={})
