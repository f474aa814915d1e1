"""The address of the API server and our credentials: kubeconfig files and service accounts of Pods.

Used by code that creates a `client.Client`. Every error contains a remedy. This module holds
tokens, and the names of files and login programs; `credentials` reads the files and runs the
programs.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast, get_args
from urllib import parse

import msgspec

from kilnwork.kit import data_directories, errors, mount_path_resolution
from kilnwork.kube import kubeconfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory where Kubernetes mounts a Pod's token, ca.crt and namespace."""

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
"""Protocols of exec plugins that this client supports, as client-go since 1.24 does."""

InteractiveMode = Literal["Never", "IfAvailable", "Always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A login program that prints a credential for the server (KEP-541).

    `cluster`: the server as JSON in the Cluster type of that API, which is passed to the program;
    empty: nothing is passed. `install_hint`: a text for users who do not have the program.
    """

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive: InteractiveMode = "IfAvailable"
    install_hint: str = ""
    cluster: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """The user to impersonate; RBAC must allow that (verb `impersonate`)."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The address of one server, and one identity with its credentials.

    `server`: URL without a trailing slash. The CA is the PEM in `ca_data`, else the file `ca_file`,
    else the CAs of the system. `token_file` is read again when it changes, and takes precedence
    over `token` if it can be read. The client certificate is the PEM in `client_cert` and
    `client_key`, else in the two files, which are also read again. `exec` is used only if none of
    these is set. `namespace`: default of namespaced requests. `proxy_url`: an HTTP or HTTPS proxy.
    `repr` omits secrets.
    """

    server: str
    namespace: str = "default"
    ca_data: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    verify: bool = True
    tls_server_name: str | None = None
    proxy_url: str | None = field(default=None, repr=False)
    compression: bool = True
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    client_cert: str | None = field(default=None, repr=False)
    client_key: str | None = field(default=None, repr=False)
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    exec: ExecPlugin | None = None
    impersonate: Impersonation | None = None


def load(
    path: Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Return the configuration of the API server to use.

    It is read from `path`, else from $KUBECONFIG, else from the Pod that this process runs in, else
    from the kubeconfig in the default data directory. Raises ConfigurationError.
    """
    if path is not None:
        return from_files([path], context=context)
    if named := _kubeconfigs(environ):
        return from_files(named, context=context)
    if named_by(environ):
        return in_cluster(environ)
    default = data_directories.data_dir() / "kubeconfig"
    if kubeconfig.there(default):
        return from_files([default], context=context)
    raise errors.ConfigurationError(
        f"no Kubernetes API server is configured: KUBECONFIG is not set and there is no {default}. "
        "Start one with `kiln up`, or set KUBECONFIG to the kubeconfig of a running one."
    )


def named_by(environ: Mapping[str, str]) -> bool:
    """Return whether $KUBECONFIG, or the Pod that this process runs in, names an API server."""
    return bool(_kubeconfigs(environ) or environ.get("KUBERNETES_SERVICE_HOST"))


def _kubeconfigs(environ: Mapping[str, str]) -> list[Path]:
    return [Path(path) for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]


def in_cluster(environ: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration for the API server and service account of the Pod we run in.

    The files are found as described in `kit.mount_path_resolution`. Raises ConfigurationError.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise errors.ConfigurationError("not in a Pod: KUBERNETES_SERVICE_HOST is not set")
    directory = mount_path_resolution.locate(SERVICE_ACCOUNT, environ)
    if not (directory / "token").is_file():
        raise errors.ConfigurationError(
            f"this Pod has no service account token ({directory / 'token'} is missing): give it a "
            "serviceAccountName and do not set automountServiceAccountToken to false"
        )
    ca_file, namespace = directory / "ca.crt", directory / "namespace"
    return Config(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        ca_file=ca_file if ca_file.is_file() else None,
        token_file=directory / "token",
    )


def from_files(files: Sequence[Path], *, context: str | None = None) -> Config:
    """Return the configuration in kubeconfig files (YAML or JSON), merged as kubectl merges them.

    Missing files are skipped if at least one exists. Raises ConfigurationError.
    """
    chosen = kubeconfig.read(files, context=context)
    cluster, where = chosen.cluster, chosen.where
    user, directory = chosen.user, chosen.user_directory
    _check_user(user, chosen.user_name)
    settings = Config(
        server=_server(cluster.server, where),
        namespace=chosen.namespace,
        ca_data=_pem(cluster.certificate_authority_data, "certificate-authority-data", where),
        ca_file=_existing(cluster.certificate_authority, chosen.cluster_directory, where),
        verify=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name or None,
        proxy_url=_proxy(cluster.proxy_url, where),
        compression=not cluster.disable_compression,
        token=user.token or None,
        token_file=_existing(user.token_file, directory, where),
        client_cert=_pem(user.client_certificate_data, "client-certificate-data", where),
        client_key=_pem(user.client_key_data, "client-key-data", where),
        client_cert_file=_existing(user.client_certificate, directory, where),
        client_key_file=_existing(user.client_key, directory, where),
        impersonate=_impersonation(user, chosen.user_name),
    )
    if user.exec is None:
        return settings
    return replace(settings, exec=_exec(user.exec, chosen, settings))


def _check_user(user: kubeconfig.AuthInfo, what: str) -> None:
    remedy = "use a token, a tokenFile, a client certificate or an exec plugin instead"
    if user.auth_provider is not None:
        raise errors.ConfigurationError(
            f"{what} has an auth-provider, which Kubernetes 1.26 dropped: {remedy}"
        )
    if user.username:
        raise errors.ConfigurationError(f"{what} has a user name and password: {remedy}")
    has_cert = bool(user.client_certificate or user.client_certificate_data)
    if has_cert != bool(user.client_key or user.client_key_data):
        raise errors.ConfigurationError(
            f"{what} has only one half of client certificate and client key: give both or neither"
        )


def _impersonation(user: kubeconfig.AuthInfo, what: str) -> Impersonation | None:
    if not user.as_:
        if user.as_uid or user.as_groups or user.as_user_extra:
            raise errors.ConfigurationError(
                f"{what} has as-uid, as-groups or as-user-extra without `as`: name the user too"
            )
        return None
    return Impersonation(
        user=user.as_,
        uid=user.as_uid,
        groups=tuple(user.as_groups or ()),
        extra=tuple((key, tuple(values)) for key, values in (user.as_user_extra or {}).items()),
    )


def _exec(given: kubeconfig.ExecConfig, chosen: kubeconfig.Chosen, settings: Config) -> ExecPlugin:
    what = f"the exec plugin of {chosen.user_name}"
    if not given.command:
        raise errors.ConfigurationError(f"{what} has no command: name the program that logs in")
    if given.api_version not in EXEC_VERSIONS:
        raise errors.ConfigurationError(
            f'{what} has apiVersion "{given.api_version}": it must be {EXEC_VERSIONS[0]}, or '
            f"{EXEC_VERSIONS[1]} for older plugins"
        )
    mode = given.interactive_mode
    # v1 requires the field; only v1beta1 has a default.
    if not mode and given.api_version == EXEC_VERSIONS[1]:
        mode = "IfAvailable"
    if mode not in get_args(InteractiveMode):
        raise errors.ConfigurationError(
            f'{what} has interactiveMode "{mode}": write Never, IfAvailable or Always'
        )
    command = given.command
    if "/" in command:  # otherwise the program is searched in PATH
        command = str(chosen.user_directory / command)
    return ExecPlugin(
        command=command,
        api_version=given.api_version,
        args=tuple(given.args or ()),
        env=tuple((v.name, v.value) for v in given.env or ()),
        interactive=cast(InteractiveMode, mode),
        install_hint=given.install_hint,
        cluster=_cluster_info(chosen, settings) if given.provide_cluster_info else b"",
    )


def _cluster_info(chosen: kubeconfig.Chosen, settings: Config) -> bytes:
    """Return the Cluster object of client.authentication.k8s.io as JSON, with the CA as data."""
    ca = settings.ca_data or _text(settings.ca_file) or ""
    facts = {
        "server": settings.server,
        "tls-server-name": settings.tls_server_name,
        "insecure-skip-tls-verify": not settings.verify,
        "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
        "proxy-url": settings.proxy_url,
        "disable-compression": not settings.compression,
    }
    known = {name: fact for name, fact in facts.items() if fact}
    return msgspec.json.encode({**known, "config": chosen.cluster.exec_config()})


def _server(url: str, where: str) -> str:
    try:
        parts = parse.urlsplit(url)
        # `port` raises ValueError above 65535.
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise errors.ConfigurationError(
            f'{where} has server "{url}": write it as https://HOST:PORT'
        )
    return url.rstrip("/")


def _proxy(url: str, where: str) -> str | None:
    if not url:
        return None
    if parse.urlsplit(url).scheme not in ("http", "https"):
        raise errors.ConfigurationError(
            f'{where} has proxy-url "{url}": only http:// and https:// proxies are supported'
        )
    return url


def _pem(data: str, name: str, where: str) -> str | None:
    if not data:
        return None
    try:
        return base64.b64decode(data, validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise errors.ConfigurationError(
            f"{where}: {name} is not base64 of PEM text: copy it again from its source"
        ) from error


def _existing(name: str, directory: Path, where: str) -> Path | None:
    """Return the path of a file named in a kubeconfig.

    As for kubectl, it is relative to the kubeconfig's directory.
    """
    if not name:
        return None
    path = directory / name
    if not path.is_file():
        raise errors.ConfigurationError(f"{where} names the file {path}, which does not exist")
    return path


def _text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigurationError(f"cannot read {path}: {error}") from error
