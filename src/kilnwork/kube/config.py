"""Where the API server is and what to show it: kubeconfig files and in-cluster service accounts.

Used by whoever makes a `client.Client`. Every way to fail says what to do about it. Exec plugins
and auth providers are not supported; client certificates, tokens and token files are.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib import parse

import msgspec

from kilnwork.kit import errors, paths

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a Pod's token, ca.crt and namespace."""

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One server and one identity.

    `server`: URL without a slash at its end. CA: PEM in `ca_data`, else `ca_file`, else the system.
    `token` wins over `token_file`, which is read again as it changes. `namespace`: what a
    namespaced request without one means. Secrets are kept out of `repr`.
    """

    server: str
    namespace: str = "default"
    ca_data: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    verify: bool = True
    tls_server_name: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    client_cert: str | None = field(default=None, repr=False)
    client_key: str | None = field(default=None, repr=False)


def load(
    path: Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration of `path`, else of $KUBECONFIG, our Pod, or the default folder.

    Raises ConfigurationError.
    """
    if path is not None:
        return from_files([path], context=context)
    named = [Path(p) for p in environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        return from_files(named, context=context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    default = paths.data_dir() / "kubeconfig"
    if _there(default):
        return from_files([default], context=context)
    raise errors.ConfigurationError(
        f"no Kubernetes API server is configured: KUBECONFIG is not set and there is no {default}. "
        "Start one with `kiln up`, or set KUBECONFIG to the kubeconfig of a running one."
    )


def in_cluster(environ: Mapping[str, str] = os.environ) -> Config:
    """The API server and service account of the Pod we run in. Raises ConfigurationError.

    The files are found under $CONTAINER_SANDBOX_MOUNT_POINT where that is set, as on nodes whose
    containers see the host's file system.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise errors.ConfigurationError("not in a Pod: KUBERNETES_SERVICE_HOST is not set")
    root = environ.get("CONTAINER_SANDBOX_MOUNT_POINT")
    folder = Path(root) / SERVICE_ACCOUNT.relative_to("/") if root else SERVICE_ACCOUNT
    if not (folder / "token").is_file():
        raise errors.ConfigurationError(
            f"this Pod has no service account token ({folder / 'token'} is missing): give it a "
            "serviceAccountName and do not set automountServiceAccountToken to false"
        )
    ca_file, namespace = folder / "ca.crt", folder / "namespace"
    return Config(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        ca_file=ca_file if ca_file.is_file() else None,
        token_file=folder / "token",
    )


class _Kebab(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """Kubeconfig spells its fields in kebab case; unknown ones are for others."""


class _Cluster(_Kebab, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""


class _User(_Kebab, frozen=True):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None
    username: str = ""


class _Context(_Kebab, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Kebab, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(_Kebab, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(_Kebab, frozen=True):
    name: str
    context: _Context = _Context()


class _File(_Kebab, frozen=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


@dataclass(slots=True)
class _Merged:
    """Several files as one: the first to name a thing wins; its folder is kept."""

    names: str
    clusters: dict[str, tuple[_Cluster, Path]] = field(default_factory=dict)
    users: dict[str, tuple[_User, Path]] = field(default_factory=dict)
    contexts: dict[str, _Context] = field(default_factory=dict)
    current: str = ""

    def add(self, file: _File, folder: Path) -> None:
        for c in file.clusters or ():
            self.clusters.setdefault(c.name, (c.cluster, folder))
        for u in file.users or ():
            self.users.setdefault(u.name, (u.user, folder))
        for x in file.contexts or ():
            self.contexts.setdefault(x.name, x.context)
        self.current = self.current or file.current_context


def from_files(files: Sequence[Path], *, context: str | None = None) -> Config:
    """The configuration of kubeconfig files in YAML or JSON, merged as kubectl merges them.

    Files that do not exist are passed over as long as one does. Raises ConfigurationError.
    """
    present = [f for f in files if _there(f)]
    if not present:
        names = ", ".join(str(f) for f in files)
        raise errors.ConfigurationError(
            f"kubeconfig {names} does not exist: start a server with `kiln up`, "
            "or correct KUBECONFIG"
        )
    merged = _Merged(names=", ".join(str(f) for f in present))
    for path in present:
        merged.add(_read(path), path.absolute().parent)
    return _resolve(merged, context)


def _there(path: Path) -> bool:
    """Whether it is a file; True when we may not look, so that reading it says why."""
    try:
        return path.is_file()
    except PermissionError:
        return True


def _read(path: Path) -> _File:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise errors.ConfigurationError(
            f"cannot read kubeconfig {path}: {error.strerror}. Point KUBECONFIG at one that you "
            "may read"
        ) from error
    if not raw.strip():
        return _File()
    try:
        if raw.lstrip().startswith(b"{"):
            return msgspec.json.decode(raw, type=_File)
        return msgspec.yaml.decode(raw, type=_File)
    except msgspec.MsgspecError as error:
        raise errors.ConfigurationError(f"{path} is not a kubeconfig: {error}") from error


def _resolve(merged: _Merged, wanted: str | None) -> Config:
    name = wanted or merged.current
    known = ", ".join(sorted(merged.contexts)) or "none"
    if not name:
        raise errors.ConfigurationError(
            f"kubeconfig {merged.names} has no current-context (contexts: {known}): choose one "
            "with `kubectl config use-context NAME`"
        )
    context = merged.contexts.get(name)
    if context is None:
        raise errors.ConfigurationError(
            f'kubeconfig {merged.names} has no context "{name}" (contexts: {known})'
        )
    where = f"kubeconfig {merged.names}"
    of = f'context "{name}" of {where}'
    cluster, cluster_folder = _named(merged.clusters, context.cluster, kind="cluster", of=of)
    user, user_folder = _User(), cluster_folder
    if context.user:
        user, user_folder = _named(merged.users, context.user, kind="user", of=of)
    _check_user(user, f'user "{context.user}" of {where}')
    return Config(
        server=_server(cluster.server, where),
        namespace=context.namespace or "default",
        ca_data=_pem(cluster.certificate_authority_data, "certificate-authority-data", where),
        ca_file=_existing(cluster.certificate_authority, cluster_folder, where),
        verify=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name or None,
        token=user.token or None,
        token_file=_existing(user.token_file, user_folder, where),
        client_cert=_pem(user.client_certificate_data, "client-certificate-data", where)
        or _text(_existing(user.client_certificate, user_folder, where)),
        client_key=_pem(user.client_key_data, "client-key-data", where)
        or _text(_existing(user.client_key, user_folder, where)),
    )


def _named(entries: Mapping[str, _Entry], name: str, *, kind: str, of: str) -> _Entry:
    found = entries.get(name)
    if found is None:
        known = ", ".join(sorted(entries)) or "none"
        raise errors.ConfigurationError(
            f'{of} names {kind} "{name}", which is not there ({kind}s: {known})'
        )
    return found


def _check_user(user: _User, what: str) -> None:
    remedy = "use a token, a tokenFile or a client certificate instead"
    if user.exec is not None or user.auth_provider is not None:
        raise errors.ConfigurationError(f"{what} needs a program to log in: {remedy}")
    if user.username:
        raise errors.ConfigurationError(f"{what} has a user name and password: {remedy}")
    has_cert = bool(user.client_certificate or user.client_certificate_data)
    if has_cert != bool(user.client_key or user.client_key_data):
        raise errors.ConfigurationError(
            f"{what} has only one half of client certificate and client key: give both or neither"
        )


def _server(url: str, where: str) -> str:
    try:
        parts = parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise errors.ConfigurationError(
            f'{where} has server "{url}": write it as https://HOST:PORT'
        )
    return url.rstrip("/")


def _pem(data: str, name: str, where: str) -> str | None:
    if not data:
        return None
    try:
        return base64.b64decode(data, validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise errors.ConfigurationError(
            f"{where}: {name} is not base64 of PEM text: copy it again from its source"
        ) from error


def _existing(name: str, folder: Path, where: str) -> Path | None:
    """A file named in a kubeconfig: relative to that kubeconfig's folder, as kubectl reads it."""
    if not name:
        return None
    path = folder / name
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
